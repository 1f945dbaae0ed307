// Charts: SVG drawn to the width at hand; one tooltip; arrow keys walk through the marks.

const tip = byId("tip");
const PALETTE = 10;
const hue = (index) => `var(--c${index % PALETTE})`;
const colour = (name) => hue(Math.max(data.order.indexOf(name), 0));
// The variants of a dataset that pass a test, the reference first.
const ordered = (dataset, test = () => true) =>
  data.order
    .map((name) => dataset.groups.find((group) => group.name === name))
    .filter((group) => group && test(group));
const dash = (name) =>
  ["", "7 4", "2 3", "9 3 2 3"][Math.floor(data.order.indexOf(name) / PALETTE) % 4];

function scale(d0, d1, r0, r1) {
  const span = d1 - d0 || 1;
  return (value) => r0 + ((value - d0) / span) * (r1 - r0);
}

function ticks(low, high, count) {
  const rough = (high - low || 1) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++)
    found.push(k * step);
  return { found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

function extent(values, pad = 0.08, least = 2) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const low = Math.min(...known),
    high = Math.max(...known);
  const room = Math.max((high - low) * pad, least / 2);
  return [low - room, high + room];
}

function showTip(lines, left, top) {
  tip.replaceChildren(...lines.map((line, index) => h(index ? "span" : "strong", {}, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const x = Math.min(
    Math.max(left - width / 2, 8),
    document.documentElement.clientWidth - width - 8,
  );
  const y = top - height - 14 < 8 ? top + 18 : top - height - 14;
  tip.style.setProperty("left", `${x}px`);
  tip.style.setProperty("top", `${y}px`);
}

const hideTip = () => {
  tip.hidden = true;
};

// Makes marks {x, y, lines} reachable by pointer and by arrow keys.
function explore(frame, svg, marks) {
  const ring = s("circle", { r: 8, class: "ring" });
  let at = -1;
  const hide = () => {
    ring.remove();
    hideTip();
  };
  const show = (index) => {
    at = index;
    const mark = marks[at],
      box = svg.getBoundingClientRect();
    ring.setAttribute("cx", mark.x);
    ring.setAttribute("cy", mark.y);
    svg.append(ring);
    showTip(mark.lines, box.left + mark.x, box.top + mark.y);
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = event.clientX - box.left,
      y = event.clientY - box.top;
    let best = -1,
      nearest = 28 ** 2;
    marks.forEach((mark, index) => {
      const far = (mark.x - x) ** 2 + (mark.y - y) ** 2;
      if (far <= nearest) [best, nearest] = [index, far]; // of equals the one on top
    });
    if (best < 0) hide();
    else if (best !== at || tip.hidden) show(best);
  });
  svg.addEventListener("pointerleave", hide);
  frame.onblur = hide;
  frame.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step || !marks.length) return;
    event.preventDefault();
    show((Math.max(at, step > 0 ? -1 : 0) + step + marks.length) % marks.length);
  };
}

const resizer = new ResizeObserver((entries) => entries.forEach((entry) => entry.target.paint()));

// A chart that redraws itself when its width changes; draw(svg, width, height) returns its marks.
function chart(host, label, height, draw) {
  const frame = h("div", {
    class: "chart",
    tabindex: 0,
    role: "group",
    "aria-roledescription": "chart",
    "aria-label": `${label}. Arrow keys read the values.`,
  });
  let last = 0;
  frame.paint = () => {
    const width = Math.floor(frame.clientWidth);
    if (!width || width === last) return;
    last = width;
    const tall = typeof height === "function" ? height(width) : height;
    const svg = s("svg", {
      width,
      height: tall,
      viewBox: `0 0 ${width} ${tall}`,
      "aria-hidden": true,
    });
    const marks = draw(svg, width, tall) || [];
    frame.replaceChildren(svg);
    explore(frame, svg, marks);
  };
  host.append(h("div", { class: "tall" }, frame));
  resizer.observe(frame);
  return frame;
}

const text = (x, y, words, look, anchor) =>
  s("text", { x, y, class: look, "text-anchor": anchor }, words);
const line = (x1, y1, x2, y2, props) => s("line", { x1, y1, x2, y2, ...props });

// Cuts words that would not fit; about 7 units a letter.
const clip = (words, room) =>
  words.length * 6.9 <= room
    ? words
    : words.slice(0, Math.max(Math.floor(room / 6.9) - 1, 1)) + "…";

function legend(names, look, hidden, change) {
  return h(
    "div",
    { class: "legend" },
    names.map((name) => {
      const button = h(
        "button",
        {
          type: "button",
          "aria-pressed": String(!hidden.has(name)),
          onclick: () => {
            if (hidden.has(name)) hidden.delete(name);
            else hidden.add(name);
            button.setAttribute("aria-pressed", String(!hidden.has(name)));
            change();
          },
        },
        h("i", { style: { background: look(name) } }),
        name,
      );
      return button;
    }),
  );
}
