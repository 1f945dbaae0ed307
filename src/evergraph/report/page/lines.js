// Lines over time and over buffer size, with 95 % intervals.

// Series: {name, points: [{x, n, mean, std, low, high, note}]}.
function linesChart(host, label, series, { height = 300, xTitle, xName, limits = [0, 100] }) {
  const points = series.flatMap((part) => part.points).filter((point) => point.mean !== null);
  if (!points.length) return host.append(h("p", { class: "empty" }, "Every line is switched off."));
  const wide = extent(points.flatMap((point) => [point.mean, point.low, point.high]));
  // Intervals of few runs may leave what is possible; the axis does not follow them.
  const low = Math.max(wide[0], limits[0] - 2), high = Math.min(wide[1], limits[1] + 2);
  const inside = (value) => Math.min(Math.max(value, low), high);
  const xs = [...new Set(points.map((point) => point.x))].sort((a, b) => a - b);
  return chart(host, label, height, (svg, width) => {
    const left = 44, right = 16, top = 12, bottom = height - 40;
    const room = Math.min(34, (width - left - right) / 12);
    const x = xs.length > 1 ? scale(xs[0], xs.at(-1), left + room, width - right - room) : () => (left + width - right) / 2;
    const y = scale(low, high, bottom, top);
    const marks = [];
    const { found, digits } = ticks(low, high, height / 48);
    for (const value of found) svg.append(line(left, y(value), width - right, y(value), { class: "grid" }), text(left - 8, y(value) + 4, number(value, digits), { class: "tick", "text-anchor": "end" }));
    for (const value of xs) svg.append(text(x(value), bottom + 18, String(value), { class: "tick", "text-anchor": "middle" }));
    svg.append(text((left + width - right) / 2, height - 4, xTitle, { class: "tick", "text-anchor": "middle" }));
    series.forEach((part, index) => {
      const nudge = xs.length > 1 ? (index - (series.length - 1) / 2) * Math.min(4, (0.6 * room) / series.length) : (index - (series.length - 1) / 2) * 14;
      const paint = { style: { stroke: colour(part.name), fill: colour(part.name) } };
      const known = part.points.filter((point) => point.mean !== null);
      const at = (point) => [x(point.x) + nudge, y(point.mean)];
      svg.append(s("path", { d: "M" + known.map((point) => at(point).join(" ")).join("L"), class: "series", "stroke-dasharray": dash(part.name), ...paint }));
      for (const point of known) {
        const [px, py] = at(point);
        if (point.low !== null) svg.append(line(px, y(inside(point.low)), px, y(inside(point.high)), { class: "interval thin", ...paint }));
        svg.append(s("circle", { cx: px, cy: py, r: 4, class: "dot", ...paint }));
        marks.push({ x: px, y: py, lines: [part.name, `${xName} ${point.x}: ${spread(point)}`,
          point.low === null ? plural(point.n, "run") : `95 % interval ${range(point.low, point.high)}, n = ${point.n}`] });
      }
    });
    return marks;
  });
}

// Series of one unit: the mean of the tasks seen, or one task from when it was learned.
function timeSeries(groups, dataset, unit) {
  const average = (row) => row.reduce((a, b) => a + b, 0) / row.length;
  const first = unit === "mean" ? 0 : Number(unit);
  return groups.map((group) => ({ name: group.name, points: dataset.tasks.map((_, task) => ({ x: task + 1,
    ...describe(group.matrices.task.map((matrix) => (unit === "mean" ? average(matrix[task]) : matrix[task][first]))) })).slice(first) }));
}

function overTime(body, dataset) {
  const T = dataset.tasks.length;
  if (T < 2) return "There is one task only, so nothing changes over time.";
  const groups = data.order.map((name) => dataset.groups.find((group) => group.name === name)).filter(Boolean);
  const hidden = new Set(groups.slice(10).map((group) => group.name));
  const titles = { mean: "Mean of the tasks seen" };
  dataset.tasks.slice(0, -1).forEach((_, task) => { titles[task] = `Task ${task + 1}: ${taskName(dataset, task)}`; });
  const units = ["mean", ...Object.keys(titles).filter((key) => key !== "mean")];
  let shown = T <= 6 ? units : ["mean"];
  const host = h("div", { class: shown.length > 1 ? "panels" : "" });
  const paint = () => {
    host.replaceChildren();
    for (const unit of shown) {
      const figure = h("figure", {}, h("figcaption", {}, h("span", { class: "clip", title: titles[unit] }, titles[unit])));
      host.append(figure);
      linesChart(figure, `Accuracy over time. ${titles[unit]}`, timeSeries(groups.filter((group) => !hidden.has(group.name)), dataset, unit),
        { xTitle: "after task", xName: "after task", height: shown.length > 1 ? 250 : 320 });
    }
  };
  if (T > 6) body.append(h("div", { class: "tools" }, choice("Accuracy on", units.map((unit) => [unit, short(titles[unit], 60)]), "mean", (value) => { shown = [value]; paint(); })));
  body.append(host, legend(groups.map((group) => group.name), colour, hidden, paint));
  paint();
  return true;
}

function overSize(body, dataset) {
  if (!dataset.sizes.length) return "No two variants here differ in the buffer's size alone.";
  const hidden = new Set();
  const host = h("div", { class: "pair" });
  const paint = () => {
    host.replaceChildren();
    for (const metric of ["pm", "fm"]) {
      const series = dataset.sizes.filter((part) => !hidden.has(part.name)).map((part) => ({ name: part.name,
        points: part.sizes.map(([size, name]) => ({ x: size, ...dataset.groups.find((group) => group.name === name).estimates[metric] })) }));
      const figure = h("figure", {}, h("figcaption", {}, `${METRICS[metric]}, ${BETTER[metric]}`));
      host.append(figure);
      linesChart(figure, `${METRICS[metric]} over buffer size`, series, { xTitle: "nodes in the buffer, at most", xName: "|B| =", limits: metric === "fm" ? [-100, 100] : [0, 100] });
    }
  };
  body.append(host, legend(dataset.sizes.map((part) => part.name), colour, hidden, paint));
  paint();
  return true;
}
