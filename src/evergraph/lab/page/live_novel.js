// Novel nodes, in groups that wait for a name: to name one is a change like any other.

function novelGroups(host, novel, classes, { teach, choose }) {
  host.replaceChildren();
  if (!novel || novel.sentence || !novel.groups.length) {
    const words = novel ? novel.sentence || "No node stands out." : "Nobody has looked yet.";
    return host.append(h("p", { class: "empty" }, words));
  }
  const by = novel.surely ? "more than chance explains" : `${novel.expected} would by chance`;
  host.append(
    h(
      "p",
      { class: "note" },
      `${novel.novel} of the last ${novel.asked} nodes without a label fit no known class (${by}). Version ${novel.version}.`,
    ),
    h("datalist", { id: "known-classes" }, classes.map((part) => h("option", { value: part.name }))),
    h("div", { class: "groups" }, novel.groups.map((group, at) => groupForm(group, at + 1, teach, choose))),
  );
}

function groupForm(group, number_, teach, choose) {
  const boxes = group.nodes.map((node) => h("input", { type: "checkbox", checked: true, "aria-label": `Label ${node.id}` }));
  const name = h("input", { type: "text", required: true, maxlength: 200, list: "known-classes", autocomplete: "off" });
  const button = h("button", { class: "act", type: "submit" }, "Teach");
  const rows = group.nodes.map((node, at) =>
    h(
      "li",
      {},
      boxes[at],
      h("button", { class: "link", type: "button", onclick: () => choose(node.id) }, String(node.id)),
      h("small", {}, `${number(node.novelty)}, nearest ${node.nearest}`),
    ),
  );
  const more = group.size > group.nodes.length ? `, the ${group.nodes.length} most novel` : "";
  return h(
    "form",
    {
      class: "group",
      onsubmit: async (event) => {
        event.preventDefault();
        const chosen = group.nodes.filter((_, at) => boxes[at].checked);
        if (!chosen.length || !name.value.trim()) return;
        button.disabled = true;
        await teach(chosen.map((node) => [node.id, name.value.trim()]));
        button.disabled = false;
        name.value = "";
      },
    },
    h("h3", {}, `Group ${number_}: ${plural(group.size, "node")}${more}`),
    h("ul", {}, rows),
    h("div", { class: "line" }, h("label", { class: "choice" }, h("span", {}, "Class"), name, button)),
  );
}
