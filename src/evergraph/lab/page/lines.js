// Lines with 95 % intervals, over time or over buffer size.

// Series: {name, points: [{x, n, mean, std, low, high, note}]}.
function linesChart(host, label, series, { height = 300, xTitle, xName, limits = [0, 100], xText = String }) {
  const points = series.flatMap((part) => part.points).filter((point) => point.mean !== null);
  if (!points.length) return host.append(h("p", { class: "empty" }, "Every line is switched off."));
  const wide = extent(points.flatMap((point) => [point.mean, point.low, point.high]));
  // Intervals of few runs may leave what is possible; the axis does not follow them.
  const low = Math.max(wide[0], limits[0] - 2),
    high = Math.min(wide[1], limits[1] + 2);
  const inside = (value) => Math.min(Math.max(value, low), high);
  const xs = [...new Set(points.map((point) => point.x))].sort((a, b) => a - b);
  return chart(host, label, height, (svg, width) => {
    const left = 44,
      right = 16,
      top = 12,
      bottom = height - 40;
    const room = Math.min(34, (width - left - right) / 12);
    const x =
      xs.length > 1
        ? scale(xs[0], xs.at(-1), left + room, width - right - room)
        : () => (left + width - right) / 2;
    const y = scale(low, high, bottom, top);
    const marks = [];
    const { found, digits } = ticks(low, high, height / 48);
    for (const value of found)
      svg.append(
        line(left, y(value), width - right, y(value), { class: "grid" }),
        text(left - 8, y(value) + 4, number(value, digits), "tick", "end"),
      );
    const apart = Math.ceil((xs.length * 26) / (width - left - right));
    for (const value of xs.filter((_, index) => index % apart === 0))
      svg.append(text(x(value), bottom + 18, xText(value), "tick", "middle"));
    svg.append(text((left + width - right) / 2, height - 4, xTitle, "tick", "middle"));
    series.forEach((part, index) => {
      const nudge =
        xs.length > 1
          ? (index - (series.length - 1) / 2) * Math.min(4, (0.6 * room) / series.length)
          : (index - (series.length - 1) / 2) * 14;
      const paint = { style: { stroke: colour(part.name), fill: colour(part.name) } };
      const known = part.points.filter((point) => point.mean !== null);
      const at = (point) => [x(point.x) + nudge, y(point.mean)];
      svg.append(
        s("path", {
          d: "M" + known.map((point) => at(point).join(" ")).join("L"),
          class: "series",
          "stroke-dasharray": dash(part.name),
          ...paint,
        }),
      );
      for (const point of known) {
        const [px, py] = at(point);
        if (point.low !== null)
          svg.append(
            line(px, y(inside(point.low)), px, y(inside(point.high)), {
              class: "interval thin",
              ...paint,
            }),
          );
        svg.append(s("circle", { cx: px, cy: py, r: 4, class: "dot", ...paint }));
        marks.push({
          x: px,
          y: py,
          lines: [
            part.name,
            `${xName} ${xText(point.x)}: ${spread(point)}`,
            point.low === null
              ? (point.note ?? plural(point.n, "run"))
              : `95 % interval ${range(point.low, point.high)}, n = ${point.n}`,
          ],
        });
      }
    });
    return marks;
  });
}
