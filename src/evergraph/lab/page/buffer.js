// What is kept: how diverse, how central, how well connected.

// Columns of the buffer's table: title, key (or keys before and after), digits, meaning.
const FACTS = [
  [
    "diversity",
    ["diversity"],
    2,
    "Mean distance among kept nodes, relative to all training nodes of their class",
  ],
  [
    "from centre",
    ["centre"],
    2,
    "Distance of kept nodes from the centre of their class, relative to the mean distance",
  ],
  [
    "homophily",
    ["homophily_before", "homophily_after"],
    2,
    "Share of neighbours of the same class, before and after structure learning",
  ],
  [
    "degree",
    ["degree_before", "degree_after"],
    1,
    "Mean degree of kept nodes, before and after structure learning",
  ],
  [
    "isolated",
    ["isolated_before", "isolated_after"],
    1,
    "Kept nodes without neighbour, before and after structure learning",
  ],
  [
    "accuracy, low degree",
    ["low_degree"],
    1,
    "Accuracy in percent on nodes of at most the median degree",
  ],
  [
    "accuracy, high degree",
    ["high_degree"],
    1,
    "Accuracy in percent on nodes above the median degree",
  ],
];

function bufferFacts(body, dataset) {
  const groups = ordered(dataset, (group) => "diversity" in group.buffer);
  if (!groups.length) return "No variant here keeps a buffer of nodes.";
  const columns = [
    VARIANT_COLUMN,
    ...FACTS.map(([head, keys, digits, title]) => ({
      head,
      title,
      value: (row) => row.buffer[keys.at(-1)],
      cell: (row) => [...new Set(keys.map((key) => number(row.buffer[key], digits)))].join(" → "),
    })),
  ];
  body.append(sortable("The buffer", columns, groups));
}
