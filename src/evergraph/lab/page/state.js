// The page of a state: what it knows, how sure that is, and what changed.

const shown = data.datasets[0];
const { about, changes } = shown;
const one = (value) => number(value, 1);
const chance = (value) => (value < 1e-4 ? "< 0.0001" : number(value, 4));
const share = (row) => row.accuracy.mean;
const within = (title, of) => ({
  head: "95 % interval",
  title,
  value: (row) => of(row).low,
  cell: (row) => range(of(row).low, of(row).high),
});

function outline(body) {
  const judged = changes.at(-1)?.accuracy;
  const sure = judged?.n
    ? `${plural(judged.n, "held-out node")}, 95 % ${range(judged.low, judged.high)}`
    : "no held-out nodes";
  const known = `of classes: ${about.classes.length}`;
  body.append(
    h(
      "div",
      { class: "tiles" },
      tile("Accuracy", percent(about.accuracy), sure),
      tile("Nodes", String(about.nodes), plural(about.edges, "edge")),
      tile("Labels learned", String(about.learned_labels), known),
      tile("Alarms", String(about.alarms.length), "in the last change"),
    ),
    about.warnings.length
      ? h("ul", { class: "told" }, about.warnings.map((words) => h("li", {}, words)))
      : h("p", { class: "note" }, "Nothing deserves attention."),
  );
}

function accuracy(body) {
  if (!changes.some((change) => change.accuracy.mean !== null)) return "No node is held out.";
  const draw = (host, { picked }) => {
    const judged = (change) => (picked === "all" ? change.accuracy : change.by_class[picked]);
    const unknown = describe([]); // before a class came
    const points = changes.map((c) => ({ x: c.change, ...(judged(c) ?? unknown) }));
    const axis = { xTitle: "after change", xName: "after change" };
    linesChart(host, "Accuracy over changes", [{ name: data.order[0], points }], axis);
  };
  const judged = about.classes.map((part, at) => [String(at), part.name, part.held_out]);
  const options = [["all", "all classes"], ...judged.filter((part) => part[2])];
  adjustable(body, { picked: [choice, "Accuracy on", options, "all"] }, draw);
}

function classes(body) {
  if (!about.classes.length) return "No label has been learned yet.";
  const rows = about.classes.map((one, at) => ({ ...one, accuracy: changes.at(-1).by_class[at] }));
  const list = [
    ["class", "name", "Sort by name", prose],
    ["labels", "labels", "Labels learned"],
    ["in buffer", "buffer", "Nodes kept in the buffer"],
    ["held out", "held_out", "Nodes that only judge"],
    ["accuracy", share, "On held-out nodes", percent],
    within("Wilson's", (row) => row.accuracy),
    ["best", "best_accuracy", "The best accuracy ever", percent],
  ];
  body.append(sortable("Classes", columns(list), rows));
}

function drift(body) {
  const found = changes
    .flatMap(({ change, new_nodes: n, watch }) => watch.map((part) => ({ ...part, change, n })))
    .reverse();
  if (!found.length) return "No change so far brought enough nodes to compare.";
  const kinds = data.order.slice(1).filter((kind) => found.some((part) => part.kind === kind));
  const hidden = new Set();
  const point = (part) => ({ ...part, x: part.change, mean: part.value - part.before, std: null });
  const draw = (host) => {
    const series = kinds.filter((kind) => !hidden.has(kind)).map((name) => {
      const mine = found.filter((part) => part.kind === name); // of several columns the last counts
      const points = new Map(mine.map((part) => [part.change, point(part)]));
      return { name, points: [...points.values()].reverse() };
    });
    const axis = { xTitle: "change", xName: "change", limits: [-100, 100] };
    linesChart(host, "New nodes minus earlier ones, percent points", series, axis);
  };
  if (kinds.length) {
    const paint = adjustable(body, {}, draw);
    body.append(legend(kinds, colour, hidden, paint));
  }
  const list = [
    ["change", "change"],
    ["compared", "kind", null, prose],
    ["where", "where", "Class or column", prose],
    ["now", "value", "Percent", one],
    ["before", "before", "Percent", one],
    within("Of the difference, percent points", (row) => row),
    ["p", "p", "Chance of as much without drift, not corrected for their number", chance],
    ["alarm", (row) => (row.alarm ? "alarm" : ""), "Beyond the stated rate of false alarms", prose],
  ];
  body.append(sortable("Comparisons", columns(list), found));
}

function why(body) {
  if (!shown.why.length) return "No held-out node is wrong, or its scores cannot be explained.";
  const draw = (host, { at }) => {
    host.append(h("p", { class: "note" }, shown.why[at].text));
    contributions(host, shown.why[at]);
  };
  const options = shown.why.map((part, at) => [String(at), part.id]);
  adjustable(body, { at: [choice, "Node", options, "0"] }, draw);
}

function everyChange(body) {
  const list = [
    ["change", "change"],
    ["kind", "kind", null, prose],
    ["new", "new_nodes", "New nodes"],
    ["gone", "removed_nodes", "Removed nodes"],
    ["nodes", "num_nodes", "Nodes after it"],
    ["edges", "num_edges", "Edges after it"],
    ["labels", "trained_on", "Labels learned"],
    ["accuracy", share, "On held-out nodes", percent],
    ["new classes", (row) => row.new_classes.join(" "), null, wrapped],
    ["alarms", (row) => row.told.join(" "), null, wrapped],
  ];
  body.append(sortable("Changes", columns(list), [...changes].reverse()));
}

function novelty(body) {
  const { asked, novel, expected, groups } = about.novel;
  const rows = [
    ["asked", asked],
    ["fit no known class", novel],
    ["would by chance", expected],
    ["sizes of their groups", groups.join(", ") || "–"],
  ];
  body.append(factList(rows));
}

function buffer(body) {
  const { buffer: kept, edited_edges: edits } = about;
  const rows = [
    ["bytes kept beside the network", about.memory_bytes],
    ["nodes in the buffer", kept.nodes],
    ["the most it holds", kept.size],
    ["mean degree of these", kept.mean_degree && number(kept.mean_degree, 1)],
    ["of these without neighbour", kept.isolated],
    ["edges added for itself", edits.added],
    ["edges left out for itself", edits.deleted],
  ];
  body.append(factList(rows));
}

const PARTS = [
  ["summary", "Summary", "What the state knows, and what deserves attention.", outline],
  ["time", "Over time", "Accuracy on held-out nodes, with 95 % intervals (Wilson).", accuracy],
  ["classes", "Classes", "Every class with its accuracy on held-out nodes.", classes],
  [
    "probabilities",
    "Probabilities",
    "Left, accuracy of held-out nodes by the probability of the class that they are given: on the broken line probabilities mean what they say. Right, what the nodes of each class are given, in percent of them.",
    probabilities,
  ],
  [
    "drift",
    "Drift",
    `New nodes minus those before them, in percent points: mean confidence, and the share that exceeds the value of the column, or the degree, where both differ most. Below, the strongest comparisons of every change. Where nothing drifts at most ${100 * data.false_alarms} % of changes raise an alarm.`,
    drift,
  ],
  about.novel && [
    "novelty",
    "Novelty",
    "The last nodes without a label: how many fit no known class.",
    novelty,
  ],
  ["why", "Why", "Held-out nodes that are surest of a wrong class: what decided for it and against the runner-up, in percent of the margin.", why],
  ["buffer", "Buffer", "What the method keeps.", buffer],
  ["changes", "Changes", "What came, last first.", everyChange],
].filter(Boolean);

theme();
byId("overview").textContent =
  `${about.method} · version ${about.version} · ${plural(about.changes, "change")}`;
menu(PARTS);
byId("main").replaceChildren(...PARTS.map((part) => section(part, shown)));
byId("footer").append(
  h("p", {}, `Written by Evergraph ${data.version}. This file needs no network.`),
);
