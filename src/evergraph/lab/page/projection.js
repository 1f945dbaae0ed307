// Two dimensions for the embedding: the first principal components, or t-SNE from there.
// Exact t-SNE: the sample is small, and without random numbers every reader sees the same.

function conditional(points, perplexity) {
  const n = points.length,
    target = Math.log(perplexity);
  const p = new Float64Array(n * n);
  const far = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      far[j] = points[i].reduce((sum, value, k) => sum + (value - points[j][k]) ** 2, 0);
    }
    let low = 0,
      high = Infinity,
      sharp = 1 / (far.reduce((a, b) => a + b) / n || 1);
    for (let round = 0; round < 60; round++) {
      let sum = 0,
        weighted = 0;
      for (let j = 0; j < n; j++) {
        const value = j === i ? 0 : Math.exp(-sharp * far[j]);
        p[i * n + j] = value;
        sum += value;
        weighted += value * far[j];
      }
      sum = Math.max(sum, 1e-300);
      for (let j = 0; j < n; j++) p[i * n + j] /= sum;
      const entropy = Math.log(sum) + (sharp * weighted) / sum;
      if (Math.abs(entropy - target) < 1e-5) break;
      if (entropy > target) {
        low = sharp;
        sharp = high === Infinity ? sharp * 2 : (sharp + high) / 2;
      } else {
        high = sharp;
        sharp = (sharp + low) / 2;
      }
    }
  }
  return p;
}

function affinities(points, perplexity) {
  const n = points.length,
    p = conditional(points, perplexity);
  const joint = new Float64Array(n * n);
  for (let i = 0; i < n; i++)
    for (let j = 0; j < n; j++) {
      joint[i * n + j] = Math.max((p[i * n + j] + p[j * n + i]) / (2 * n), 1e-12);
    }
  return joint;
}

function tsne(components, rounds = 400) {
  const n = components[0].length;
  const points = Array.from({ length: n }, (_, i) => components.map((part) => part[i]));
  const p = affinities(points, Math.max(2, Math.min(20, (n - 1) / 3)));
  const unit = Math.sqrt(components[0].reduce((sum, x) => sum + x * x, 0) / n) || 1;
  // A tiny push apart, by position, so that equal points can part.
  const y = [0, 1].map((d) =>
    Float64Array.from(
      { length: n },
      (_, i) => (1e-4 * (components[d] || components[0])[i]) / unit + 1e-6 * Math.sin(i * (d + 1)),
    ),
  );
  const move = [new Float64Array(n), new Float64Array(n)];
  const gain = [new Float64Array(n).fill(1), new Float64Array(n).fill(1)];
  const q = new Float64Array(n * n);
  for (let round = 0; round < rounds; round++) {
    let total = 0;
    for (let i = 0; i < n; i++)
      for (let j = i + 1; j < n; j++) {
        const near = 1 / (1 + (y[0][i] - y[0][j]) ** 2 + (y[1][i] - y[1][j]) ** 2);
        q[i * n + j] = q[j * n + i] = near;
        total += 2 * near;
      }
    const pull = round < 100 ? 12 : 1,
      inertia = round < 100 ? 0.5 : 0.8;
    for (const d of [0, 1]) {
      const slope = new Float64Array(n);
      for (let i = 0; i < n; i++)
        for (let j = 0; j < n; j++) {
          const near = q[i * n + j];
          slope[i] += 4 * (pull * p[i * n + j] - near / total) * near * (y[d][i] - y[d][j]);
        }
      for (let i = 0; i < n; i++) {
        gain[d][i] = Math.max(
          Math.sign(slope[i]) === Math.sign(move[d][i]) ? gain[d][i] * 0.8 : gain[d][i] + 0.2,
          0.01,
        );
        move[d][i] = inertia * move[d][i] - Math.max(n / 12 / 4, 12) * gain[d][i] * slope[i];
      }
    }
    for (const d of [0, 1]) for (let i = 0; i < n; i++) y[d][i] += move[d][i];
  }
  return y;
}

const projections = new Map();

function project(sample, how) {
  if (how === "pca")
    return [sample.components[0], sample.components[1] || sample.components[0].map(() => 0)];
  if (!projections.has(sample)) projections.set(sample, tsne(sample.components));
  return projections.get(sample);
}
