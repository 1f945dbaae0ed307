// Is one variant better than another? Differences between runs of the same seed.

function differences(body, dataset) {
  if (dataset.groups.length < 2)
    return "Only one variant was run on this dataset, so there is nothing to compare.";
  const names = ordered(dataset).map((group) => group.name);
  const draw = (host, { reference, metric }) => {
    const mine = dataset.groups.find((group) => group.name === reference);
    const rows = names
      .filter((name) => name !== reference)
      .map((name) => {
        const found = paired(
          mine,
          dataset.groups.find((group) => group.name === name),
          metric,
        );
        const judged = verdict(found);
        const good =
          judged === "not distinguishable" ? null : (judged === "above") !== (metric === "fm");
        const lines = [
          `${reference} − ${name}`,
          `${METRICS[metric]} ${number(found.mean, 2, true)}`,
          `95 % interval ${range(found.low, found.high, true)}`,
          `${plural(found.n, "common seed")}, ${judged}`,
        ];
        return {
          name,
          value: found.mean,
          low: found.low,
          high: found.high,
          claim: null,
          lines,
          colour: good === null ? "var(--muted)" : good ? "var(--good)" : "var(--bad)",
        };
      });
    rowsChart(host, `Differences in ${METRICS[metric]} between ${reference} and the others`, rows, {
      origin: 0,
      sign: true,
    });
  };
  const controls = {
    reference: [choice, "Compare", names.map((name) => [name, name]), names[0]],
    metric: [segmented, "in", Object.entries(METRICS), "pm"],
  };
  adjustable(body, controls, draw);
  body.append(
    h(
      "p",
      { class: "key" },
      h("span", {}, swatch("var(--good)"), "better"),
      h("span", {}, swatch("var(--bad)"), "worse"),
      h("span", {}, swatch("var(--muted)"), "not distinguishable: the interval holds zero"),
    ),
  );
}
