// Variants side by side: what each has set differently from the reference, and what came of it.

function changes(group, reference) {
  const keys = [
    ...new Set([...Object.keys(group.config), ...Object.keys(reference.config)]),
  ].sort();
  if (group.method !== reference.method) return `method ${group.method}`;
  const found = keys
    .filter((key) => JSON.stringify(group.config[key]) !== JSON.stringify(reference.config[key]))
    .map((key) => `${key.split(".").at(-1)}=${group.config[key]}`);
  return found.join(", ") || "as the reference";
}

function ablation(body, dataset) {
  if (dataset.groups.length < 2) return "Only one variant was run on this dataset.";
  const groups = ordered(dataset);
  const draw = (host, { metric, form }) => {
    const rows = groups.map((group) => {
      const found = group.estimates[metric];
      return {
        name: group.name,
        value: found.mean,
        low: found.low,
        high: found.high,
        claim: group.claims[metric]?.mean ?? null,
        colour: colour(group.name),
        lines: [
          group.name,
          changes(group, groups[0]),
          `${METRICS[metric]} ${spread(found)}, n = ${found.n}`,
          `95 % interval ${range(found.low, found.high)}`,
          ...(group.claims[metric] ? [`paper ${number(group.claims[metric].mean)}`] : []),
        ],
      };
    });
    rowsChart(host, `${METRICS[metric]} of every variant`, rows, { bars: form === "bars" });
  };
  const controls = {
    metric: [segmented, "Metric", Object.entries(METRICS), "pm"],
    form: [segmented, "Axis", [["bars", "from zero"], ["dots", "zoomed"]], "bars"],
  };
  adjustable(body, controls, draw);
  body.append(
    h(
      "p",
      { class: "key" },
      h("span", {}, h("i", { class: "whisker" }), "95 % interval"),
      groups.some((group) => Object.keys(group.claims).length)
        ? h("span", {}, h("i", { class: "diamond" }), "the paper's mean")
        : null,
    ),
  );
}
