// Rows of names with bars or dots beside them.

// The room that names need to the left of a chart.
const margin = (names, width) =>
  Math.min(Math.max(...names.map((name) => name.length)) * 7.4 + 14, width * 0.36, 230);

// The range that most rows lie in: one far away does not squeeze all others.
function nearby(rows, origin) {
  const centre = origin ?? median(rows.map((row) => row.value));
  const reach =
    4 * median(rows.map((row) => Math.max(Math.abs(row.value - centre), row.high - row.low)));
  const near = rows.filter((row) => Math.abs(row.value - centre) <= reach);
  return extent(
    (near.length ? near : rows)
      .flatMap((row) => [row.value, row.low, row.high, row.claim])
      .concat(origin ?? []),
  );
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)];
}

// Rows with a value and its interval: bars from zero, or dots on the range of most; what lies
// beyond is an arrow at the edge. Or dots on the range of all, if it is to be whole.
function rowsChart(host, label, rows, { bars = false, origin = null, sign = false, whole = false } = {}) {
  const known = rows.filter((row) => row.value !== null);
  if (!known.length) return host.append(h("p", { class: "empty" }, "No run has this number."));
  const [low, high] = bars
    ? [0, extent(known.flatMap((row) => [row.value, row.high, row.claim]))[1]]
    : whole
      ? extent([origin, ...known.map((row) => row.value)])
      : nearby(known, origin);
  return chart(host, label, rows.length * 34 + 34, (svg, width, height) => {
    const left = margin(
        rows.map((row) => row.name),
        width,
      ),
      right = width > 520 ? 158 : 56,
      bottom = height - 24;
    const x = scale(low, high, left + 6, width - right - 10);
    const { found, digits } = ticks(low, high, Math.max(2, (width - left - right) / 80));
    for (const value of found) {
      svg.append(
        line(x(value), 4, x(value), bottom, { class: value === origin ? "axis" : "grid" }),
      );
      svg.append(text(x(value), height - 6, number(value, digits, sign), "tick", "middle"));
    }
    return rows.map((row, index) => {
      const y = 21 + index * 34;
      svg.append(text(left - 6, y + 4, clip(row.name, left - 8), "label", "end"));
      if (row.value === null) return { x: left, y, lines: row.lines };
      const words =
        number(row.value, 2, sign) +
        (width > 520 && row.low !== null ? `  ${range(row.low, row.high, sign)}` : "");
      svg.append(text(width - 2, y + 4, words, "value", "end"));
      return { x: drawRow(svg, row, x, y, bars, low, high), y, lines: row.lines };
    });
  });
}

function drawRow(svg, row, x, y, bars, low, high) {
  const paint = { style: { fill: row.colour, stroke: row.colour } };
  if (row.value < low || row.value > high) {
    const right = row.value > high,
      edge = x(right ? high : low);
    svg.append(
      s("path", {
        d: right ? `M${edge - 11} ${y - 6}l11 6l-11 6z` : `M${edge + 11} ${y - 6}l-11 6l11 6z`,
        ...paint,
      }),
    );
    return edge;
  }
  if (bars)
    svg.append(
      s("rect", {
        x: x(0),
        y: y - 9,
        width: Math.max(x(row.value) - x(0), 1),
        height: 18,
        rx: 3,
        class: "solid",
        ...paint,
      }),
    );
  if (row.low !== null) {
    const look = bars ? { class: "error" } : { class: "interval", ...paint };
    const ends = [Math.max(row.low, low), Math.min(row.high, high)];
    svg.append(
      line(x(ends[0]), y, x(ends[1]), y, look),
      ...ends.map((end) => line(x(end), y - 5, x(end), y + 5, look)),
    );
  }
  if (!bars) svg.append(s("circle", { cx: x(row.value), cy: y, r: 5.5, class: "dot", ...paint }));
  if (row.claim !== null && row.claim >= low && row.claim <= high)
    svg.append(s("path", { d: `M${x(row.claim)} ${y - 7}l6 7l-6 7l-6 -7z`, class: "claim" }));
  return x(row.value);
}
