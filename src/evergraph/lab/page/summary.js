// The first section: every variant with its spread, beside the paper.

const METRICS = { pm: "PM", fm: "FM", current: "Current" };
const BETTER = { pm: "higher is better", fm: "lower is better", current: "higher is better" };

function tiles(host, dataset) {
  const groups = dataset.groups.filter((group) => group.estimates.pm.mean !== null);
  const lead = groups.find((group) => group.name === data.order[0]) || groups[0];
  // What was never learnt cannot be forgotten: no praise for that.
  const currents = groups.map((group) => group.estimates.current.mean);
  const learnt = groups.filter(
    (_, index) => currents[index] >= Math.max(...currents) - data.not_learnt,
  );
  const best = (key, sign) =>
    learnt
      .filter((group) => group.estimates[key].mean !== null)
      .sort((a, b) => sign * (b.estimates[key].mean - a.estimates[key].mean))[0];
  const claim = lead.claims.pm;
  const about = claim
    ? `paper ${number(claim.mean)}, difference ${number(claim.difference, 2, true)}`
    : lead.estimates.pm.low === null
      ? plural(lead.seeds.length, "seed")
      : `95 % interval ${range(lead.estimates.pm.low, lead.estimates.pm.high)}`;
  const row = [tile(`PM of ${lead.name}`, `${number(lead.estimates.pm.mean)} %`, about)];
  const kept = best("fm", -1),
    top = best("pm", 1);
  if (top && groups.length > 1)
    row.push(tile("Highest PM", `${number(top.estimates.pm.mean)} %`, top.name));
  if (kept)
    row.push(
      tile(
        "Least forgetting",
        `${number(kept.estimates.fm.mean)}`,
        groups.length > 1 ? kept.name : "FM, percent points",
      ),
    );
  const total = groups.reduce(
    (sum, group) => sum + group.estimates.seconds.mean * group.seeds.length,
    0,
  );
  const runs = groups.reduce((sum, group) => sum + group.seeds.length, 0);
  row.push(tile("Computed in", seconds(total), plural(runs, "run")));
  host.append(h("div", { class: "tiles" }, row));
}

function estimateCell(estimate, form) {
  if (form === "interval" && estimate.low !== null) {
    return h(
      "span",
      {},
      number(estimate.mean),
      h("small", {}, ` ${range(estimate.low, estimate.high)}`),
    );
  }
  return h(
    "span",
    {},
    number(estimate.mean),
    estimate.std === null ? null : h("small", {}, ` ± ${number(estimate.std)}`),
  );
}

function claimCell(claim, otherSettings) {
  if (!claim) return "–";
  const against = `${number(claim.difference, 2, true)} ${claim.low === null ? "" : range(claim.low, claim.high, true)}`;
  return h(
    "span",
    {
      class: "stacked",
      title:
        claim.low === null
          ? "The paper prints no deviation, so the difference has no interval."
          : "Measured minus printed, with Welch's 95 % interval, corrected for splits that overlap.",
    },
    h(
      "span",
      {},
      number(claim.mean),
      claim.std === null ? null : h("small", {}, ` ± ${number(claim.std)}`),
    ),
    claim.difference === null ? null : h("small", {}, `ours ${against}`),
    otherSettings ? h("small", {}, "with other settings") : null,
  );
}

function summary(body, dataset) {
  tiles(body, dataset);
  const draw = (host, { form, shown }) => {
    const all = shown === "all";
    const rows = (all ? data.datasets : [dataset]).flatMap((part) =>
      part.groups.map((group) => ({ ...group, dataset: part.name })),
    );
    const claimed = rows.some((row) => Object.keys(row.claims).length);
    const metric = (key) => ({
      head: `${METRICS[key]} ${key === "fm" ? "↓" : "↑"}`,
      title: `${METRICS[key]}, ${BETTER[key]}`,
      value: (row) => row.estimates[key].mean,
      cell: (row) => estimateCell(row.estimates[key], form),
    });
    const paper = (key) => ({
      head: `paper ${METRICS[key]}`,
      title: `${METRICS[key]} that the paper prints; below, ours minus the paper's`,
      value: (row) => row.claims[key]?.mean,
      cell: (row) => claimCell(row.claims[key], row.other_settings),
    });
    const list = [
      VARIANT_COLUMN,
      all && ["dataset", "dataset", null, prose],
      ["n", (row) => row.seeds.length, "Runs, one per seed"],
      metric("pm"),
      metric("fm"),
      metric("current"),
      ...(claimed ? [paper("pm"), paper("fm")] : []),
      ["time", (row) => row.estimates.seconds.mean, "Mean time of a run", seconds],
      [
        "memory",
        "memory_bytes",
        "Kept for the next task beside the network, with the graph at hand",
        bytes,
      ],
      [
        "without graph",
        "memory_bytes_without_graph",
        "Kept where the graph does not stay at hand: features and neighbourhoods of replayed nodes too",
        bytes,
      ],
      rows.some((row) => row.learns_from) && [
        "also learns from",
        (row) => row.learns_from || "–",
        "What a method learns from beyond current labels and its buffer",
        prose,
      ],
    ];
    host.append(sortable("Summary", columns(list), rows, { key: all ? 3 : 2, down: true }));
  };
  const forms = [["std", "± std"], ["interval", "95 % interval"]];
  const whose = [["one", dataset.name], ["all", "all datasets"]];
  const controls = {
    form: [segmented, "Show", forms, "std"],
    shown: [segmented, "Rows", whose, "one", data.datasets.length > 1],
  };
  adjustable(body, controls, draw);
}
