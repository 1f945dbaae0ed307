// Where the time goes, and what is kept from task to task.

const STAGES = {
  classify: "training",
  structure: "link predictor",
  inference: "refinement",
  selection: "selection",
  candidates: "candidates",
  evaluate: "evaluation",
};
const stageName = (stage) => STAGES[stage] || stage;

function stackedRows(host, label, rows, names) {
  const most = Math.max(...rows.map((row) => row.total), 1e-9);
  chart(host, label, rows.length * 34 + 30, (svg, width, height) => {
    const left = margin(
        rows.map((row) => row.name),
        width,
      ),
      right = width > 520 ? 130 : 64;
    const x = scale(0, most, left + 6, width - right - 8),
      marks = [];
    const { found, digits } = ticks(0, most, Math.max(2, (width - left - right) / 90));
    for (const value of found) {
      svg.append(
        line(x(value), 4, x(value), height - 24, { class: "grid" }),
        text(x(value), height - 6, `${number(value, digits)} s`, "tick", "middle"),
      );
    }
    rows.forEach((row, index) => {
      const y = 21 + index * 34;
      let from = 0;
      svg.append(text(left - 6, y + 4, clip(row.name, left - 8), "label", "end"));
      names.forEach((stage, position) => {
        const part = row.stages[stage] || 0;
        if (!part) return;
        svg.append(
          s("rect", {
            x: x(from),
            y: y - 9,
            width: Math.max(x(from + part) - x(from), 0.5),
            height: 18,
            class: "solid",
            style: { fill: hue(position), stroke: hue(position) },
          }),
        );
        marks.push({
          x: x(from + part / 2),
          y,
          lines: [
            row.name,
            `${stageName(stage)}: ${seconds(part)}`,
            `${Math.round((100 * part) / row.total)} % of ${seconds(row.total)}`,
          ],
        });
        from += part;
      });
      svg.append(
        text(
          width - 2,
          y + 4,
          width > 520 ? `${seconds(row.total)} · ${bytes(row.memory)}` : seconds(row.total),
          "value",
          "end",
        ),
      );
    });
    return marks;
  });
}

function stages(body, dataset) {
  const groups = ordered(dataset);
  const names = [...new Set(groups.flatMap((group) => Object.keys(group.stages)))];
  const total = (part) => Object.values(part).reduce((a, b) => a + b, 0);
  names.sort(
    (a, b) =>
      Math.max(...groups.map((group) => group.stages[b] || 0)) -
      Math.max(...groups.map((group) => group.stages[a] || 0)),
  );
  const hasTasks = groups.some((group) => group.by_task.length);
  const draw = (host, { unit }) => {
    const rows = groups
      .filter((group) => unit === "all" || group.by_task.length)
      .map((group) => {
        const part =
          unit === "all"
            ? { seconds: group.stages, memory_bytes: group.memory_bytes }
            : group.by_task[Number(unit)];
        return {
          name: group.name,
          stages: part.seconds,
          total: total(part.seconds),
          memory: part.memory_bytes,
        };
      });
    stackedRows(host, "Seconds per stage", rows, names);
  };
  const options = [
    ["all", "whole run"],
    ...dataset.tasks.map((_, task) => [String(task), `task ${task + 1}`]),
  ];
  adjustable(body, { unit: [choice, "Time of", options, "all", hasTasks] }, draw);
  body.append(
    h(
      "p",
      { class: "key" },
      names.map((stage, index) => h("span", {}, swatch(hue(index)), stageName(stage))),
    ),
  );
  if (hasTasks)
    body.append(
      stageTable(
        groups.filter((group) => group.by_task.length),
        dataset,
        names,
      ),
    );
}

function stageTable(groups, dataset, names) {
  const edges = (part) =>
    part.edits ? `+${number(part.edits.added, 0)} −${number(part.edits.removed, 0)}` : "–";
  const rows = groups.flatMap((group) =>
    group.by_task.map((part, task) => [
      `${group.name} · task ${task + 1}`,
      ...names.map((stage) => seconds(part.seconds[stage] || 0)),
      bytes(part.memory_bytes),
      edges(part),
    ]),
  );
  return h(
    "details",
    {},
    h("summary", {}, "By task: seconds of each stage, memory kept, edges changed"),
    plain("Stages by task", ["", ...names.map(stageName), "memory", "edges"], rows),
  );
}
