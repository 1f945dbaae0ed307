// What probabilities are worth: reliability diagrams, and confusion matrices as heat maps.

const SMALL_CELLS = 12; // classes from which on cells bear no numbers

// Bins [count, mean probability, accuracy] of several runs as one; they have a fifteenth each.
function pooled(runs) {
  const bins = new Map();
  for (const [count, sure, right] of runs.flatMap((run) => run.reliability)) {
    const key = Math.max(Math.ceil(sure * 15 - 1e-3), 1);
    const bin = bins.get(key) || { count: 0, sure: 0, right: 0 };
    bin.count += count;
    bin.sure += count * sure;
    bin.right += count * right;
    bins.set(key, bin);
  }
  return [...bins.entries()]
    .sort((a, b) => a[0] - b[0])
    .map(([, { count, sure, right }]) => ({ count, sure: sure / count, right: right / count }));
}

function reliabilityChart(host, name, runs) {
  const bins = pooled(runs);
  const most = Math.max(...bins.map((bin) => bin.count));
  chart(
    host,
    `Reliability of ${name}: accuracy by probability`,
    280,
    (svg, width, height) => {
      const left = 40,
        top = 10,
        bottom = height - 40,
        x = scale(0, 1, left, width - 12),
        y = scale(0, 1, bottom, top),
        paint = { style: { stroke: colour(name), fill: colour(name) } };
      for (const value of [0, 0.25, 0.5, 0.75, 1])
        svg.append(
          line(left, y(value), width - 12, y(value), { class: "grid" }),
          text(left - 8, y(value) + 4, number(100 * value, 0), "tick", "end"),
          text(x(value), bottom + 18, number(100 * value, 0), "tick", "middle"),
        );
      svg.append(
        text((left + width - 12) / 2, height - 4, "probability, %", "tick", "middle"),
        text(left + 6, top + 14, "accuracy, %", "tick"),
        line(x(0), y(0), x(1), y(1), { class: "axis", "stroke-dasharray": "4 4" }),
        s("path", {
          d: "M" + bins.map((bin) => `${x(bin.sure)} ${y(bin.right)}`).join("L"),
          class: "series",
          ...paint,
        }),
      );
      return bins.map((bin) => {
        const r = 2.5 + 5.5 * Math.sqrt(bin.count / most);
        svg.append(s("circle", { cx: x(bin.sure), cy: y(bin.right), r, class: "dot", ...paint }));
        return {
          x: x(bin.sure),
          y: y(bin.right),
          lines: [
            `${number(100 * bin.sure, 1)} % sure`,
            `${number(100 * bin.right, 1)} % right`,
            plural(bin.count, "node"),
          ],
        };
      });
    },
  );
}

function confusionTable(dataset, runs) {
  const names = dataset.class_names,
    wide = names.length > SMALL_CELLS;
  const sums = names.map((_, row) =>
    names.map((_, column) =>
      runs.reduce((sum, run) => sum + (run.confusion[row]?.[column] ?? 0), 0),
    ),
  );
  const head = (name, at, scope) =>
    h("th", { scope, title: name }, !wide ? short(name, 7) : (at + 1) % 5 ? "" : String(at + 1));
  return walk(
    h(
      "table",
      { class: wide ? "heatmap dense" : "heatmap named" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { class: "corner" }, "class ↓ given →"),
          names.map((name, at) => head(name, at, "col")),
        ),
      ),
      h(
        "tbody",
        {},
        sums.map((counts, row) => {
          const total = counts.reduce((a, b) => a + b, 0);
          return h(
            "tr",
            {},
            head(names[row], row, "row"),
            counts.map((count, column) => {
              if (!total) return h("td", { class: "void" });
              const part = (100 * count) / total;
              const lines = [
                row === column
                  ? `${names[row]}, given its class`
                  : `${names[row]} given ${names[column]}`,
                `${number(part, 1)} %: ${count} of ${plural(total, "node")}`,
              ];
              return shaded(part, lines, wide ? "" : number(part, 0));
            }),
          );
        }),
      ),
    ),
  );
}

function probabilities(body, dataset) {
  const groups = ordered(dataset, (group) => group.probability.some((run) => run));
  if (!groups.length) return "These runs have not recorded how sure they were.";
  const seeds = [...new Set(groups.flatMap((group) => group.seeds))].sort((a, b) => a - b);
  const draw = (host, { seed }) => {
    const figureOfGroup = (group) => {
      const runs = group.probability.filter(
        (run, at) => run && (seed === "all" || String(group.seeds[at]) === seed),
      );
      const said = runs.length
        ? `ECE ${number(describe(runs.map((run) => run.ece)).mean, 3)}, ${runs[0].calibrated_on ? `calibrated on ${runs[0].calibrated_on}` : "not calibrated"}`
        : "no such run";
      const pair = h("div", { class: "pair" });
      if (runs.length) {
        reliabilityChart(pair.appendChild(h("div")), group.name, runs);
        pair.append(
          runs.every((run) => run.confusion)
            ? h("div", {}, confusionTable(dataset, runs))
            : h("p", { class: "empty" }, "There are too many classes for a confusion matrix."),
        );
      }
      return figureOf(group, said, pair);
    };
    some(host, groups, 6, figureOfGroup, "variants");
  };
  adjustable(body, { seed: seedChoice(seeds, "all seeds") }, draw, { class: "reliabilities" });
  body.append(
    dataset.class_names.length > SMALL_CELLS
      ? h(
          "ul",
          { class: "names" },
          dataset.class_names.map((name, at) => h("li", {}, h("b", {}, String(at + 1)), ` ${name}`)),
        )
      : "",
  );
}
