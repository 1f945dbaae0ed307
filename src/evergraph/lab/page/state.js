// The page of a state: what it knows, how sure that is, and what changed.

const shown = data.datasets[0];
const { about, changes } = shown;
const percent = (value) => (value === null ? "–" : `${number(value, 1)} %`);

// How values are read and shown: shares have a mean and an interval.
const FORMS = {
  number: [(value) => value, (value) => value ?? "–"],
  words: [(value) => [value].flat().join(" "), (value) => [value].flat().join(" ")],
  one: [(value) => value, (value) => number(value, 1)],
  percent: [(value) => value, percent],
  share: [(value) => value.mean, (value) => percent(value.mean)],
  within: [(value) => value.low, (value) => range(value.low, value.high)],
  chance: [(value) => value, (value) => (value < 1e-4 ? "< 0.0001" : number(value, 4))],
};

// Columns: head, key, what it means, form.
const grid = (label, rows, columns) =>
  sortable(
    label,
    columns.map(([head, key, title, form = "number"]) => ({
      head,
      title: title || `Sort by ${head}`,
      words: form === "words",
      value: (row) => FORMS[form][0](row[key]),
      cell: (row) => h("span", { class: Array.isArray(row[key]) && "wrapped" }, FORMS[form][1](row[key])),
    })),
    rows,
  );

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
  return true;
}

function accuracy(body) {
  if (!changes.some((change) => change.accuracy.mean !== null)) return "No node is held out.";
  const host = h("div");
  const paint = (picked) => {
    const unknown = { n: 0, mean: null, std: null, low: null, high: null }; // before it came
    const share = (change) => (picked === "all" ? change.accuracy : change.by_class[picked]);
    const points = changes.map((c) => ({ x: c.change, ...(share(c) ?? unknown) }));
    const axis = { xTitle: "after change", xName: "after change" };
    host.replaceChildren();
    linesChart(host, "Accuracy over changes", [{ name: data.order[0], points }], axis);
  };
  const judged = about.classes.map((part, at) => [String(at), part.name, part.held_out]);
  const options = [["all", "all classes"], ...judged.filter((part) => part[2])];
  body.append(h("div", { class: "tools" }, choice("Accuracy on", options, "all", paint)), host);
  paint("all");
  return true;
}

function classes(body) {
  if (!about.classes.length) return "No label has been learned yet.";
  const rows = about.classes.map((one, at) => ({ ...one, accuracy: changes.at(-1).by_class[at] }));
  body.append(
    grid("Classes", rows, [
      ["class", "name", "Sort by name", "words"],
      ["labels", "labels", "Labels learned"],
      ["in buffer", "buffer", "Nodes kept in the buffer"],
      ["held out", "held_out", "Nodes that only judge"],
      ["accuracy", "accuracy", "On held-out nodes", "share"],
      ["95 % interval", "accuracy", "Wilson's", "within"],
      ["best", "best_accuracy", "The best accuracy ever", "percent"],
    ]),
  );
  return true;
}

function drift(body) {
  const found = changes.flatMap(({ change, new_nodes: n, watch }) =>
    watch.map((one) => {
      const { low, high, alarm } = one;
      return { ...one, change, n, gap: { low, high }, said: alarm ? "alarm" : "" };
    }),
  );
  if (!found.length) return "No change so far brought enough nodes to compare.";
  const kinds = data.order.slice(1).filter((kind) => found.some((one) => one.kind === kind));
  const hidden = new Set();
  const host = h("div");
  const point = ({ change: x, n, value, before, low, high }) => {
    return { x, n, mean: value - before, std: null, low, high };
  };
  const paint = () => {
    const drawn = kinds.filter((kind) => !hidden.has(kind));
    const series = drawn.map((name) => {
      const mine = new Map(); // of several columns the first, which stands out most
      found.forEach((one) => one.kind === name && !mine.has(one.change) && mine.set(one.change, one));
      return { name, points: [...mine.values()].map(point) };
    });
    const axis = { xTitle: "change", xName: "change", limits: [-100, 100] };
    host.replaceChildren();
    linesChart(host, "New nodes minus earlier ones, percent points", series, axis);
  };
  if (kinds.length) {
    body.append(host, legend(kinds, colour, hidden, paint));
    paint();
  }
  body.append(
    grid("Comparisons", found.reverse(), [
      ["change", "change"],
      ["compared", "kind", null, "words"],
      ["where", "where", "Class or column", "words"],
      ["now", "value", "Percent", "one"],
      ["before", "before", "Percent", "one"],
      ["95 % interval", "gap", "Of the difference, percent points", "within"],
      ["p", "p", "Chance of as much without drift, not corrected for their number", "chance"],
      ["alarm", "said", "Beyond the stated rate of false alarms", "words"],
    ]),
  );
  return true;
}

function why(body) {
  if (!shown.why.length) return "No held-out node is wrong, or its scores cannot be explained.";
  const host = h("div");
  const paint = (at) => {
    const one = shown.why[at];
    host.replaceChildren(h("p", { class: "note" }, one.text));
    contributions(host, one);
  };
  const options = shown.why.map((one, at) => [String(at), one.id]);
  body.append(h("div", { class: "tools" }, choice("Node", options, "0", paint)), host);
  paint("0");
  return true;
}

function facts(body, rows) {
  const row = ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value ?? "–")));
  body.append(h("dl", { class: "facts" }, rows.map(row)));
  return true;
}

function everyChange(body) {
  body.append(
    grid("Changes", [...changes].reverse(), [
      ["change", "change"],
      ["kind", "kind", null, "words"],
      ["new", "new_nodes", "New nodes"],
      ["gone", "removed_nodes", "Removed nodes"],
      ["nodes", "num_nodes", "Nodes after it"],
      ["edges", "num_edges", "Edges after it"],
      ["labels", "trained_on", "Labels learned"],
      ["accuracy", "accuracy", "On held-out nodes", "share"],
      ["new classes", "new_classes", null, "words"],
      ["alarms", "told", null, "words"],
    ]),
  );
  return true;
}

const unknown = about.novel && [
  ["asked", about.novel.asked],
  ["fit no known class", about.novel.novel],
  ["would by chance", about.novel.expected],
  ["sizes of their groups", about.novel.groups.join(", ") || "–"],
];

const { buffer, edited_edges: edits } = about;
const kept = [
  ["bytes kept beside the network", about.memory_bytes],
  ["nodes in the buffer", buffer.nodes],
  ["the most it holds", buffer.size],
  ["mean degree of these", buffer.mean_degree && number(buffer.mean_degree, 1)],
  ["of these without neighbour", buffer.isolated],
  ["edges added for itself", edits.added],
  ["edges left out for itself", edits.deleted],
];

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
  ...(about.novel
    ? [["novelty", "Novelty", "The last nodes without a label: how many fit no known class.", (body) => facts(body, unknown)]]
    : []),
  ["why", "Why", "Held-out nodes that are surest of a wrong class: what decided for it and against the runner-up, in percent of the margin.", why],
  ["buffer", "Buffer", "What the method keeps.", (body) => facts(body, kept)],
  ["changes", "Changes", "What came, last first.", everyChange],
];

theme();
byId("overview").textContent =
  `${about.method} · version ${about.version} · ${plural(about.changes, "change")}`;
menu(PARTS);
byId("main").replaceChildren(...PARTS.map((part) => section(part, shown)));
byId("footer").append(
  h("p", {}, `Written by Evergraph ${data.version}. This file needs no network.`),
);
