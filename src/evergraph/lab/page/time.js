// Accuracy of tasks while others are learned.

// Series of one unit: the mean of the tasks seen, or one task from when it was learned.
function timeSeries(groups, dataset, unit) {
  const average = (row) => row.reduce((a, b) => a + b, 0) / row.length;
  const first = unit === "mean" ? 0 : Number(unit);
  return groups.map((group) => ({
    name: group.name,
    points: dataset.tasks
      .map((_, task) => ({
        x: task + 1,
        ...describe(
          group.matrices.task.map((matrix) =>
            unit === "mean" ? average(matrix[task]) : matrix[task][first],
          ),
        ),
      }))
      .slice(first),
  }));
}

function overTime(body, dataset) {
  const T = dataset.tasks.length;
  if (T < 2) return "There is one task only, so nothing changes over time.";
  const groups = ordered(dataset);
  const hidden = new Set(groups.slice(10).map((group) => group.name));
  const titles = { mean: "Mean of the tasks seen" };
  dataset.tasks.slice(0, -1).forEach((_, task) => {
    titles[task] = `Task ${task + 1}: ${taskName(dataset, task)}`;
  });
  const units = ["mean", ...Object.keys(titles).filter((key) => key !== "mean")];
  const many = T > 6; // then one at a time
  const draw = (host, { picked }) => {
    for (const unit of many ? [picked] : units) {
      const figure = h(
        "figure",
        {},
        h("figcaption", {}, h("span", { class: "clip", title: titles[unit] }, titles[unit])),
      );
      host.append(figure);
      linesChart(
        figure,
        `Accuracy over time. ${titles[unit]}`,
        timeSeries(
          groups.filter((group) => !hidden.has(group.name)),
          dataset,
          unit,
        ),
        { xTitle: "after task", xName: "after task", height: many ? 320 : 250 },
      );
    }
  };
  const options = units.map((unit) => [unit, short(titles[unit], 60)]);
  const controls = { picked: [choice, "Accuracy on", options, "mean", many] };
  const paint = adjustable(body, controls, draw, { class: many ? "" : "panels" });
  body.append(legend(groups.map((group) => group.name), colour, hidden, paint));
}
