// Means with their 95 % interval, corrected for splits that overlap (Nadeau and Bengio); quantiles
// come with the data, by degrees of freedom.

const data = JSON.parse(byId("data").textContent);
let overlap = 0; // test nodes per training node of the dataset shown

function describe(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const n = known.length;
  if (!n) return { n, mean: null, std: null, low: null, high: null };
  const mean = known.reduce((sum, value) => sum + value, 0) / n;
  if (n < 2) return { n, mean, std: null, low: null, high: null };
  const std = Math.sqrt(known.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1));
  const half = data.quantiles[n - 2] * std * Math.sqrt(1 / n + overlap);
  return { n, mean, std, low: mean - half, high: mean + half };
}

// Differences between two variants on the seeds that both have.
function paired(first, second, metric) {
  const other = new Map(second.seeds.map((seed, index) => [seed, second[metric][index]]));
  const differences = first.seeds
    .map((seed, index) => [first[metric][index], other.get(seed)])
    .filter(([a, b]) => a !== null && b !== null && b !== undefined)
    .map(([a, b]) => a - b);
  return describe(differences);
}

function verdict({ low, high }) {
  if (low !== null && low > 0) return "above";
  if (high !== null && high < 0) return "below";
  return "not distinguishable";
}
