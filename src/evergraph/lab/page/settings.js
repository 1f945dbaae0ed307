// How the runs were made: settings that differ, complete configurations, machines, every run.

const shownValue = (value) => (value === undefined ? "–" : value === null ? "none" : String(value));

function settingsTable(groups) {
  const keys = [...new Set(groups.flatMap((group) => Object.keys(group.config)))];
  const differ = (key) =>
    new Set(groups.map((group) => JSON.stringify(group.config[key]))).size > 1;
  const head = ["setting", ...groups.map((group) => group.name)];
  const rows = (wanted) =>
    wanted.map((key) => [
      key.split(".").slice(1).join("."),
      ...groups.map((group) => shownValue(group.config[key])),
    ]);
  const differing = keys.filter(differ),
    common = keys.filter((key) => !differ(key));
  return [
    h("h3", {}, "Settings that differ"),
    differing.length
      ? plain("Settings that differ", head, rows(differing))
      : h("p", { class: "note" }, "None: there is one variant, or all are set alike."),
    h(
      "details",
      {},
      h("summary", {}, `Settings that all share (${common.length})`),
      plain(
        "Shared settings",
        null,
        common.map((key) => [key, shownValue(groups[0].config[key])]),
      ),
    ),
  ];
}

// Machines and versions: what all runs share once, what differs side by side.
function environmentTable(groups) {
  const places = new Map();
  for (const group of groups)
    for (const { environment, seeds } of group.environments) {
      const { packages, ...rest } = environment;
      const key = JSON.stringify({ ...rest, ...packages });
      places.set(key, (places.get(key) || 0) + seeds.length);
    }
  const found = [...places.keys()].map((key) => JSON.parse(key)),
    counts = [...places.values()];
  const names = [...new Set(found.flatMap((place) => Object.keys(place)))];
  if (!names.length)
    return [
      h("h3", {}, "Environment"),
      h("p", { class: "note" }, "These runs kept no environment.json."),
    ];
  const same = names.filter((name) => found.every((place) => place[name] === found[0][name]));
  const differing = names.filter((name) => !same.includes(name));
  const cut = (value) => (/^[0-9a-f]{40}$/.test(value) ? value.slice(0, 12) : shownValue(value));
  return [
    h("h3", {}, "Environment"),
    factList(same.map((name) => [name, shownValue(found[0][name])])),
    differing.length
      ? plain(
          "Environments that differ",
          ["differs in", ...counts.map((count) => plural(count, "run"))],
          differing.map((name) => [name, ...found.map((place) => cut(place[name]))]),
        )
      : null,
  ];
}

function everyRun(groups) {
  const rows = groups.flatMap((group) =>
    group.seeds.map((seed, index) => ({
      name: group.name,
      seed,
      pm: group.pm[index],
      fm: group.fm[index],
      current: group.current[index],
    })),
  );
  const list = [
    ["variant", "name", "Sort by name", prose],
    ["seed", "seed", "seed"],
    ...Object.entries(METRICS).map(([key, head]) => [head, key, head, (value) => number(value)]),
  ];
  const details = h(
    "details",
    {
      ontoggle: () => {
        if (details.open && !details.querySelector("table"))
          details.append(sortable("Every run", columns(list), rows));
      },
    },
    h("summary", {}, `Every run (${rows.length})`),
  );
  return details;
}

function settings(body, dataset) {
  const groups = ordered(dataset);
  body.append(
    ...settingsTable(groups),
    everyRun(groups),
    ...environmentTable(groups).filter(Boolean),
  );
}
