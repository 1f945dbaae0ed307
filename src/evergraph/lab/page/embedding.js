// The embedding of a sample of nodes; what the buffer holds stands out.

const ROLES = { b: "in the buffer", t: "training node", e: "evaluated node" };

function embedding(body, dataset) {
  const groups = ordered(dataset, (group) => group.embedding);
  if (!groups.length) return "These runs recorded no sample of their embedding.";
  const first = groups.find((group) => group.embedding.roles.includes("b")) || groups[0];
  const hidden = new Set();
  const note = h("p", { class: "note" });
  const className = (label) => dataset.class_names[label];
  const classIndex = new Map(dataset.class_names.map((word, index) => [word, index]));
  const draw = (host, { name, how, mark }) => {
    const sample = groups.find((group) => group.name === name).embedding;
    const nodes = sample.nodes
      .map((_, index) => index)
      .filter((index) => !hidden.has(className(sample.labels[index])));
    nodes.sort((a, b) => (sample.roles[a] === "b") - (sample.roles[b] === "b"));
    const kept = [...sample.roles].filter((role) => role === "b").length;
    const right = nodes.filter((index) => sample.labels[index] === sample.predicted[index]).length;
    note.textContent =
      `Seed ${sample.seed}, last model: ${sample.nodes.length} nodes, ${kept} of them in the buffer. ` +
      `${nodes.length ? Math.round((100 * right) / nodes.length) : 0} % of the nodes shown are predicted rightly. ` +
      (how === "pca"
        ? `The two components hold ${Math.round(100 * (sample.explained[0] + (sample.explained[1] || 0)))} % of the variance.`
        : "t-SNE keeps neighbours together; distances between clusters mean little.");
    const [first, second = first.map(() => 0)] = sample.components;
    const xs = how === "pca" ? first : sample.places.map((place) => place[0]);
    const ys = how === "pca" ? second : sample.places.map((place) => place[1]);
    chart(
      host,
      `Embedding of ${name}`,
      (width) => Math.min(520, Math.max(320, width * 0.62)),
      (svg, width, height) => {
        const span = (values) => [Math.min(...values), Math.max(...values)];
        const x = scale(...span(xs), 18, width - 18),
          y = scale(...span(ys), height - 18, 18);
        return nodes.map((index) => {
          const label = sample.labels[index],
            guess = sample.predicted[index],
            role = sample.roles[index];
          const px = x(xs[index]),
            py = y(ys[index]);
          const paint = {
            style: {
              fill: hue(mark === "class" ? label : guess),
              stroke: hue(mark === "class" ? label : guess),
            },
          };
          svg.append(
            s("circle", {
              cx: px,
              cy: py,
              r: role === "b" ? 6.5 : 3.6,
              class: role === "b" ? "kept" : role === "t" ? "node open" : "node",
              ...paint,
            }),
          );
          return {
            x: px,
            y: py,
            lines: [
              `node ${sample.nodes[index]}`,
              className(label),
              guess === label ? "predicted rightly" : `predicted ${className(guess)}`,
              ROLES[role],
            ],
          };
        });
      },
    );
  };
  const names = groups.map((group) => [group.name, group.name]);
  const controls = {
    name: [choice, "Variant", names, first.name, groups.length > 1],
    how: [segmented, "Projection", [["tsne", "t-SNE"], ["pca", "PCA"]], "tsne"],
    mark: [segmented, "Colour", [["class", "true class"], ["guess", "prediction"]], "class"],
  };
  const paint = adjustable(body, controls, draw);
  body.append(
    legend(dataset.class_names, (word) => hue(classIndex.get(word)), hidden, paint),
    h(
      "p",
      { class: "key" },
      h("span", {}, h("i", { class: "disc kept" }), ROLES.b),
      h("span", {}, h("i", { class: "disc open" }), ROLES.t),
      h("span", {}, h("i", { class: "disc" }), ROLES.e),
    ),
    note,
  );
}
