// Accuracy matrices as heat maps: row i after task i, column j on task (or class) j.

const short = (words, most = 14) => (words.length > most ? words.slice(0, most - 1) + "…" : words);
const taskName = (dataset, task) =>
  dataset.steps?.[task] ??
  dataset.tasks[task].map((label) => dataset.class_names[label]).join(" + ");

// A cell of a heat map, shaded by a percentage; the first line of its tooltip says where it is.
function shaded(percent, lines, words) {
  const strength = 4 + 96 * (percent / 100) ** 2.2;
  const show = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    showTip(lines, box.left + box.width / 2, box.top);
  };
  return h(
    "td",
    {
      class: `heat${strength > 66 ? " deep" : strength > 50 ? " middling" : ""}`,
      tabindex: -1,
      style: { "--strength": `${strength.toFixed(1)}%` },
      onpointerenter: show,
      onpointerleave: hideTip,
      onfocus: show,
      onblur: hideTip,
    },
    words,
  );
}

function heatCell(found, where, wide) {
  if (!found || found.mean === null) return h("td", { class: "void" });
  const lines = [
    where,
    `${spread(found)} %`,
    found.low === null
      ? plural(found.n, "run")
      : `${plural(found.n, "run")}, 95 % interval ${range(found.low, found.high)}`,
  ];
  return shaded(found.mean, lines, number(found.mean, wide ? 0 : 1));
}

// Arrow keys move between the cells of a heat map, which is one stop of the tab key.
function walk(table) {
  const cells = [...table.querySelectorAll("td.heat")];
  if (!cells.length) return table;
  cells[0].tabIndex = 0;
  table.addEventListener("keydown", (event) => {
    const at = cells.indexOf(document.activeElement);
    const row = document.activeElement.parentElement,
      column = [...row.children].indexOf(document.activeElement);
    const beside = {
      ArrowRight: cells[at + 1],
      ArrowLeft: cells[at - 1],
      ArrowDown: row.nextElementSibling?.children[column],
      ArrowUp: row.previousElementSibling?.children[column],
    }[event.key];
    if (at < 0 || !beside || !beside.classList.contains("heat")) return;
    event.preventDefault();
    cells[at].tabIndex = -1;
    beside.tabIndex = 0;
    beside.focus();
  });
  return table;
}

// A figure of one variant, with what is said of it.
function figureOf({ name }, said, ...content) {
  const caption = h("figcaption", {}, swatch(colour(name)), name, h("small", {}, said));
  return h("figure", { class: "matrix" }, caption, content);
}

function heatMap(group, dataset, kind, seed) {
  const picked =
    seed === "all"
      ? group.matrices[kind]
      : group.matrices[kind].filter((_, index) => String(group.seeds[index]) === seed);
  const full = picked.filter((matrix) => matrix.length);
  const units =
    kind === "class"
      ? dataset.class_names
      : dataset.tasks.map((_, task) => taskName(dataset, task));
  const wide = units.length > 8;
  const columns = units.map((name, unit) =>
    h(
      "th",
      { scope: "col", title: name },
      kind === "class" && !wide ? short(name, 7) : String(unit + 1),
    ),
  );
  const rows = dataset.tasks.map((_, task) =>
    h(
      "tr",
      {},
      h("th", { scope: "row", title: taskName(dataset, task) }, String(task + 1)),
      units.map((name, unit) => {
        const known = full.map((matrix) => matrix[task]?.[unit]);
        return heatCell(
          known.some((value) => value !== undefined) ? describe(known) : null,
          `after task ${task + 1}, on ${name}`,
          wide,
        );
      }),
    ),
  );
  const last = full.map((m) => m.at(-1).reduce((a, b) => a + b, 0) / m.at(-1).length);
  return figureOf(
    group,
    full.length ? `PM ${number(describe(last).mean, 1)}` : "no such run",
    walk(
      h(
        "table",
        { class: "heatmap" },
        h("thead", {}, h("tr", {}, h("th", { class: "corner" }, "after ↓ on →"), columns)),
        h("tbody", {}, rows),
      ),
    ),
  );
}

// A control for one seed or all of them, where there are several.
function seedChoice(seeds, all) {
  const options = [["all", all], ...seeds.map((seed) => [String(seed), `seed ${seed}`])];
  return [choice, "Runs", options, "all", seeds.length > 1];
}

function matrices(body, dataset) {
  const seeds = [...new Set(dataset.groups.flatMap((group) => group.seeds))].sort((a, b) => a - b);
  const draw = (host, { kind, seed }) => {
    const groups = ordered(dataset);
    some(host, groups, 12, (group) => heatMap(group, dataset, kind, seed), "heat maps");
  };
  const kinds = [["task", "tasks"], ["class", "classes"], ["known", "tasks, task known"]];
  const controls = {
    kind: [segmented, "Columns", kinds, "task"],
    seed: seedChoice(seeds, "mean of all seeds"),
  };
  adjustable(body, controls, draw, { class: "matrices" });
  body.append(
    h(
      "ul",
      { class: "names" },
      dataset.tasks.map((_, task) =>
        h("li", {}, h("b", {}, `Task ${task + 1}`), ` ${taskName(dataset, task)}`),
      ),
    ),
  );
}
