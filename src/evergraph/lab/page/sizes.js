// PM and FM over the buffer's size.

function overSize(body, dataset) {
  if (!dataset.sizes.length) return "No two variants here differ in the buffer's size alone.";
  const hidden = new Set();
  const host = h("div", { class: "pair" });
  const paint = () => {
    host.replaceChildren();
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
  body.append(
    host,
    legend(
      dataset.sizes.map((part) => part.name),
      colour,
      hidden,
      paint,
    ),
  );
  paint();
  return true;
}
