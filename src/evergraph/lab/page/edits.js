// The neighbourhood of a replayed node: which edges structure learning added and removed.

const STATES = {
  "+": ["added", "edge added"],
  "-": ["removed", "edge removed"],
  "=": ["unchanged", "edge kept"],
};

function drawEgo(svg, width, height, node, dataset, phase) {
  const shown = node.neighbours
    .map((id, index) => ({ id, label: node.labels[index], state: node.states[index] }))
    .filter(
      ({ state }) => phase === "all" || state === "=" || state === (phase === "before" ? "-" : "+"),
    );
  const order = { "=": 0, "+": 1, "-": 2 };
  shown.sort((a, b) => order[a.state] - order[b.state] || a.label - b.label);
  const cx = width / 2,
    cy = height / 2,
    reach = Math.min(width, height) / 2 - 30;
  const marks = [
    {
      x: cx,
      y: cy,
      lines: [`node ${node.node}`, dataset.class_names[node.label], "replayed node"],
    },
  ];
  const placed = shown.map((part, index) => {
    const angle = (2 * Math.PI * index) / shown.length - Math.PI / 2;
    const far = reach * (shown.length > 14 && index % 2 ? 0.7 : 1);
    return {
      ...part,
      x: cx + far * Math.cos(angle) * Math.min(width / height, 1.35),
      y: cy + far * Math.sin(angle),
    };
  });
  for (const { x, y, state } of placed)
    svg.append(line(cx, cy, x, y, { class: `edge ${STATES[state][0]}` }));
  for (const { id, label, state, x, y } of placed) {
    svg.append(
      s("circle", {
        cx: x,
        cy: y,
        r: 9,
        class: state === "-" ? "ego gone" : "ego",
        style: { fill: hue(label), stroke: hue(label) },
      }),
    );
    const side = Math.sign(Math.round(x - cx));
    const anchor = ["end", "middle", "start"][side + 1];
    if (placed.length <= 14)
      svg.append(
        text(x + side * 15, y + (side ? 4 : y < cy ? -15 : 24), String(id), "ego-name", anchor),
      );
    marks.push({
      x,
      y,
      lines: [
        `node ${id}`,
        dataset.class_names[label] + (label === node.label ? ", same class" : ", another class"),
        STATES[state][1],
      ],
    });
  }
  svg.append(s("circle", { cx, cy, r: 14, class: "centre", style: { fill: hue(node.label) } }));
  return marks;
}

function facts(host, node) {
  const count = (state) => [...node.states].filter((other) => other === state).length;
  const same = (states) =>
    node.labels.filter(
      (label, index) => states.includes(node.states[index]) && label === node.label,
    ).length;
  const share = (states) => {
    const all = [...states].reduce((sum, state) => sum + count(state), 0);
    return all ? `${Math.round((100 * same(states)) / all)} % of ${all}` : "no neighbour";
  };
  const more = node.left_out ? ` ${node.left_out} more neighbours are not shown.` : "";
  host.textContent =
    `${plural(count("+"), "edge")} added, ${count("-")} removed, ${count("=")} kept. Neighbours of the node's own class: ` +
    `${share("=-")} before, ${share("=+")} after.${more}`;
}

function edits(body, dataset) {
  const groups = ordered(dataset, (group) => group.edited);
  if (!groups.length) return "No run here recorded edges that structure learning changed.";
  let name = groups[0].name,
    at = Math.max(
      groups[0].edited.nodes.findIndex((node) => node.states.includes("-")),
      0,
    ),
    phase = "all";
  const host = h("div", {}),
    picker = h("div", {}),
    note = h("p", { class: "note" });
  const paint = () => {
    const node = groups.find((group) => group.name === name).edited.nodes[at];
    host.replaceChildren();
    chart(
      host,
      `Edges around node ${node.node}`,
      (width) => Math.min(400, Math.max(280, width * 0.5)),
      (svg, width, height) => drawEgo(svg, width, height, node, dataset, phase),
    );
    facts(note, node);
  };
  const offer = () => {
    const nodes = groups.find((group) => group.name === name).edited.nodes;
    at = Math.min(at, nodes.length - 1);
    picker.replaceChildren(
      choice(
        "Replayed node",
        nodes.map((node, index) => [
          String(index),
          `${node.node} · ${dataset.class_names[node.label]}`,
        ]),
        String(at),
        (value) => {
          at = Number(value);
          paint();
        },
      ),
    );
    paint();
  };
  body.append(
    h(
      "div",
      { class: "tools" },
      groups.length > 1
        ? choice(
            "Variant",
            groups.map((group) => [group.name, `${group.name}, seed ${group.edited.seed}`]),
            name,
            (value) => {
              name = value;
              offer();
            },
          )
        : null,
      picker,
      segmented(
        "Edges",
        [
          ["all", "all"],
          ["before", "before"],
          ["after", "after"],
        ],
        phase,
        (value) => {
          phase = value;
          paint();
        },
      ),
    ),
    host,
    h(
      "p",
      { class: "key" },
      h("span", {}, h("i", { class: "stroke added" }), "added"),
      h("span", {}, h("i", { class: "stroke removed" }), "removed"),
      h("span", {}, h("i", { class: "stroke" }), "kept"),
      h(
        "span",
        { class: "wide" },
        dataset.class_names.map((word, index) => h("span", {}, swatch(hue(index)), word)),
      ),
    ),
    note,
  );
  offer();
}
