// The table of the field: every column sorts, graph, stream and words filter.

const data = JSON.parse(byId("data").textContent);
const chosen = { dataset: "", stream: "", words: "" };

const COLUMNS = columns([
  ["graph", "dataset", null, prose],
  ["stream", "stream", null, prose],
  ["method", "name", null, prose],
  ["year", "year", "Year of the method"],
  ["needs", "needs", "What it needs beyond the view", prose],
  ["seeds", "seeds", "Number of seeds"],
  ...[
    ["pm", "PM ↑"],
    ["fm", "FM ↓"],
    ["current", "Current ↑"],
  ].map(([key, head]) => ({
    head,
    title: `Sort by ${key}`,
    value: (r) => r[key].mean,
    cell: (r) => spread(r[key]),
  })),
  ["kept", "memory_bytes", "Bytes kept beside the network, graph at hand", bytes],
  ["time", (r) => r.seconds.mean, "Mean time of a run, on whatever machine it ran", seconds],
  {
    head: "published PM",
    title: "What a paper prints, under its own protocol",
    value: (r) => r.published && r.published.pm,
    cell: (r) =>
      r.published ? h("span", { title: r.published.source }, number(r.published.pm)) : "–",
  },
  ["run", "variant_hash", "Hash of the configuration", prose],
]);

function paint() {
  const words = chosen.words.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = data.rows.filter(
    (row) =>
      ["dataset", "stream"].every((key) => !chosen[key] || row[key] === chosen[key]) &&
      words.every((word) => row.name.toLowerCase().includes(word)),
  );
  const heads = [...document.querySelectorAll("main th[aria-sort]")];
  const order = (head) => head.getAttribute("aria-sort");
  const sorted = heads.findIndex((head) => order(head) !== "none"); // as the reader left it
  const pm = COLUMNS.findIndex((column) => column.head.startsWith("PM"));
  const start =
    sorted < 0
      ? { key: pm, down: true }
      : { key: sorted, down: order(heads[sorted]) === "descending" };
  const table = sortable(data.title, COLUMNS, rows, start);
  byId("main").replaceChildren(
    h("section", {}, h("h2", {}, plural(rows.length, "row")), h("div", { class: "body" }, table)),
  );
}

const pick = (key, value) => {
  chosen[key] = value;
  paint();
};
const filters = [
  ["dataset", "Graph"],
  ["stream", "Stream"],
].map(([key, label]) => {
  const values = [...new Set(data.rows.map((row) => row[key]))].sort();
  const options = [["", "all"], ...values.map((value) => [value, value])];
  return choice(label, options, "", (value) => pick(key, value));
});
const search = h("input", {
  type: "search",
  oninput: (event) => pick("words", event.target.value),
});
byId("datasets").append(
  h(
    "div",
    { class: "tools" },
    filters,
    h("label", { class: "choice" }, h("span", {}, "Method"), search),
  ),
);
theme();
byId("overview").textContent =
  "Mean ± sample standard deviation over seeds, test nodes, percent. Rows of one graph and stream share their protocol.";
byId("footer").append(h("p", {}, `Written by Evergraph ${data.version}; this file needs no network.`));
paint();
