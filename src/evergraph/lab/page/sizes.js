// PM and FM over the buffer's size.

function overSize(body, dataset) {
  if (!dataset.sizes.length) return "No two variants here differ in the buffer's size alone.";
  const hidden = new Set();
  const draw = (host) => {
    for (const metric of ["pm", "fm"]) {
      const series = dataset.sizes
        .filter((part) => !hidden.has(part.name))
        .map((part) => ({
          name: part.name,
          points: part.sizes.map(([size, name]) => ({
            x: size,
            ...dataset.groups.find((group) => group.name === name).estimates[metric],
          })),
        }));
      const figure = h("figure", {}, h("figcaption", {}, `${METRICS[metric]}, ${BETTER[metric]}`));
      host.append(figure);
      linesChart(figure, `${METRICS[metric]} over buffer size`, series, {
        xTitle: "nodes in the buffer, at most",
        xName: "|B| =",
        limits: metric === "fm" ? [-100, 100] : [0, 100],
      });
    }
  };
  const paint = adjustable(body, {}, draw, { class: "pair" });
  body.append(legend(dataset.sizes.map((part) => part.name), colour, hidden, paint));
}
