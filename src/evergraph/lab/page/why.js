// What decided on a node's class: by node, by feature, and drawn as a small graph.

function contributions(host, one) {
  const row = ({ name, adds, steps }) => {
    const where = steps === undefined ? "" : steps ? `, ${plural(steps, "edge")} away` : ", itself";
    const value = (100 * adds) / Math.abs(one.margin || 1);
    const lines = [`${name}${where}`, `${number(value, 1, true)} % of the margin`];
    return { name: String(name), value, low: null, high: null, claim: null, colour: hue(0), lines };
  };
  for (const what of ["nodes", "features"]) {
    const rows = [...one[`${what}_for`], ...[...one[`${what}_against`]].reverse()].map(row);
    host.append(h("h3", {}, what === "nodes" ? "By node" : "By feature"));
    rowsChart(host, `What ${what} add to the margin, percent`, rows, { origin: 0, sign: true, whole: true });
  }
}

// The node in the middle, those that decided around it: neighbours within, others beyond them.
function whyGraph(host, one, paintOf, choose) {
  const parts = [...one.nodes_for, ...one.nodes_against].filter((part) => part.name !== one.id);
  const classOf = new Map(one.classes);
  const most = Math.max(...parts.map((part) => Math.abs(part.adds)), 1e-12);
  chart(
    host,
    `The nodes that decided on ${one.id}`,
    (width) => Math.min(380, Math.max(260, width * 0.5)),
    (svg, width, height) => {
      const cx = width / 2,
        cy = height / 2,
        reach = height / 2 - 34;
      const places = new Map([[one.id, [cx, cy]]]);
      parts.forEach(({ name, steps }, at) => {
        const angle = (2 * Math.PI * at) / parts.length - Math.PI / 2,
          far = reach * (steps > 1 ? 1 : 0.68);
        const wide = Math.min((width - 150) / height, 1.6);
        places.set(name, [cx + far * Math.cos(angle) * Math.max(wide, 0.7), cy + far * Math.sin(angle)]);
      });
      const joined = new Set(one.edges.flat());
      one.edges.forEach(([a, b]) =>
        svg.append(line(...places.get(a), ...places.get(b), { class: "edge" })),
      );
      parts.forEach(({ name }) => {
        if (!joined.has(name))
          svg.append(line(cx, cy, ...places.get(name), { class: "edge far" }));
      });
      const marks = [{ x: cx, y: cy, lines: [String(one.id), String(one.label), "the node itself"] }];
      for (const { name, adds, steps } of parts) {
        const [x, y] = places.get(name);
        const side = Math.sign(Math.round(x - cx));
        const below = side ? 4 : y < cy ? -18 : 28;
        const short = clip(String(name), width / 2 - 60);
        svg.append(
          s("circle", {
            cx: x,
            cy: y,
            r: 6 + 7 * Math.sqrt(Math.abs(adds) / most),
            class: adds < 0 ? "ego against" : "ego",
            style: { fill: paintOf(classOf.get(name)) },
            onclick: () => choose(name),
          }),
          text(x + side * 18, y + below, short, "ego-name", ["end", "middle", "start"][side + 1]),
        );
        const lines = [String(name), String(classOf.get(name)), `adds ${number(adds, 3, true)}`];
        marks.push({ x, y, lines: [...lines, plural(steps, "edge") + " away"] });
      }
      svg.append(s("circle", { cx, cy, r: 14, class: "centre", style: { fill: paintOf(one.label) } }));
      return marks;
    },
  );
}
