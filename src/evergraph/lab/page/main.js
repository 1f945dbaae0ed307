// Puts the page of runs together.

const SECTIONS = [
  [
    "summary",
    "Summary",
    "Mean over seeds; click a column to sort. PM is the mean accuracy over all tasks at the end, FM what tasks lost since they were learned, Current the accuracy of each task when just learned.",
    summary,
  ],
  [
    "differences",
    "Differences",
    "The chosen variant minus each other one, seed by seed: the same seed means the same split. Intervals are 95\u00a0%, corrected for the overlap of splits (Nadeau and Bengio), not for their number. An arrow at the edge lies beyond the axis.",
    differences,
  ],
  [
    "matrices",
    "Matrices",
    "Row i, column j: accuracy in percent on task j after task i.",
    matrices,
  ],
  [
    "time",
    "Over time",
    "How a task fares while others are learned. Whiskers are 95 % intervals over seeds.",
    overTime,
  ],
  [
    "probabilities",
    "Probabilities",
    "Left, accuracy by the probability of the class that a node is given, after the last task: on the broken line probabilities mean what they say. Right, what the nodes of each class are given, in percent of them.",
    probabilities,
  ],
  ["sizes", "Buffer size", "Variants that differ in the buffer's size alone.", overSize],
  [
    "ablation",
    "Ablation",
    "Variants side by side; point at one to see what it has set differently from the first.",
    ablation,
  ],
  [
    "embedding",
    "Embedding",
    "What the last model makes of the nodes; those in the buffer are ringed.",
    embedding,
  ],
  [
    "edges",
    "Edges",
    "Around a replayed node: what structure learning added and removed before the last task was learned.",
    edits,
  ],
  [
    "buffer",
    "Buffer",
    "What is kept, as means over seeds; an arrow leads from before to after structure learning. Point at a column's head for its meaning.",
    bufferFacts,
  ],
  [
    "stages",
    "Cost",
    "Mean time of each stage; memory is what a method keeps from task to task beyond the network.",
    stages,
  ],
  [
    "settings",
    "Settings",
    "Everything needed to run this again.",
    settings,
  ],
];

function show(index) {
  hideTip();
  overlap = data.datasets[index].overlap;
  resizer.disconnect();
  drawer.disconnect();
  byId("main").replaceChildren(...SECTIONS.map((part) => section(part, data.datasets[index])));
}

function overview() {
  const names = data.datasets.map((dataset) => dataset.name);
  const seeds = new Set(
    data.datasets.flatMap((dataset) => dataset.groups.flatMap((group) => group.seeds)),
  ).size;
  const where = [...new Set(data.datasets.map((dataset) => dataset.evaluated_on))].join(" and ");
  const parts = [
    plural(data.num_runs, "run"),
    plural(data.order.length, "variant"),
    plural(seeds, "seed"),
    names.length > 3 ? plural(names.length, "dataset") : names.join(", "),
    `${where} nodes, class-incremental`,
  ];
  byId("overview").textContent = parts.join(" · ");
  for (const [names, words] of [
    [data.unfinished, "not finished, and not shown"],
    [data.copies, "left out: the same run is there already"],
  ])
    if (names.length)
      byId("overview").append(
        h(
          "details",
          {},
          h("summary", {}, `${plural(names.length, "run")} ${words}`),
          h("ul", { class: "names" }, names.map((name) => h("li", {}, name))),
        ),
      );
}

theme();
overview();
if (data.datasets.length > 1)
  byId("datasets").append(
    segmented(
      "Dataset",
      data.datasets.map((dataset, index) => [String(index), dataset.name]),
      "0",
      (value) => show(Number(value)),
    ),
  );
menu(SECTIONS);
byId("footer").append(
  h(
    "p",
    {},
    `Written by Evergraph ${data.version}. Mean ± sample standard deviation; 95 % intervals are Student's over seeds, Welch's against the paper (10 runs each). `,
    "This file needs no network: everything it shows is inside it.",
  ),
);
show(0);
