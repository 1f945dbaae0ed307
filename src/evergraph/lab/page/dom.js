// Elements, words and numbers. Text always goes in as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "style")
      for (const [name, part] of Object.entries(value)) element.style.setProperty(name, part);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat())
    if (child !== null && child !== undefined) element.append(child);
  return element;
}

const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);
const byId = (id) => document.getElementById(id);

function number(value, digits = 2, sign = false) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return text;
  return (value < 0 ? "−" : sign ? "+" : "") + text;
}

const percent = (value) => (value === null || value === undefined ? "–" : `${number(value, 1)} %`);
const spread = (e) => number(e.mean) + (e.std === null ? "" : " ± " + number(e.std));
const range = (low, high, sign = false) =>
  low === null || low === undefined
    ? "no interval"
    : `[${number(low, 2, sign)}, ${number(high, 2, sign)}]`;
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const unit of ["B", "KB", "MB"]) {
    if (value < 1000) return `${value.toFixed(unit === "B" ? 0 : 1)} ${unit}`;
    value /= 1000;
  }
  return `${value.toFixed(1)} GB`;
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 100) return `${value.toFixed(1)} s`;
  if (value < 5400) return `${(value / 60).toFixed(1)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

const tile = (title, value, note) =>
  h("div", { class: "tile" }, h("p", {}, title), h("b", {}, value), h("small", {}, note));

let controls = 0;

// A row of radio buttons that looks like one switch; arrow keys move within it.
function segmented(label, options, value, change) {
  const group = `control-${++controls}`;
  return h(
    "fieldset",
    { class: "segmented" },
    h("legend", {}, label),
    h(
      "div",
      {},
      options.map(([key, text]) =>
        h(
          "label",
          {},
          h("input", {
            type: "radio",
            name: group,
            value: key,
            checked: key === value,
            onchange: () => change(key),
          }),
          h("span", {}, text),
        ),
      ),
    ),
  );
}

function choice(label, options, value, change) {
  const select = h(
    "select",
    { onchange: () => change(select.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
  );
  return h("label", { class: "choice" }, h("span", {}, label), select);
}

// Draws anew whatever its controls choose. A control is [kind, label, options, first value, whether
// it is there], by the key that it sets. Returns what draws.
function adjustable(body, controls, draw, props = {}) {
  const host = h("div", props);
  const chosen = {};
  const paint = () => {
    host.replaceChildren();
    draw(host, chosen);
  };
  const tools = Object.entries(controls).map(([key, control]) => {
    const [kind, label, options, first, there = true] = control;
    chosen[key] = first;
    const change = (value) => {
      chosen[key] = value;
      paint();
    };
    return there ? kind(label, options, first, change) : null;
  });
  body.append(h("div", { class: "tools" }, tools), host);
  paint();
  return paint;
}

// Shows a few of many; the button shows the rest.
function some(host, items, limit, draw, noun) {
  const rest = items.slice(limit);
  items.slice(0, limit).forEach((item) => host.append(draw(item)));
  if (!rest.length) return;
  const button = h(
    "button",
    {
      class: "more",
      type: "button",
      onclick: () => {
        button.remove();
        rest.forEach((item) => host.append(draw(item)));
      },
    },
    `Show ${rest.length} more ${noun}`,
  );
  host.append(button);
}

// The switch between light and dark.
function theme() {
  let stored = "auto";
  try {
    stored = localStorage.getItem("evergraph-theme") || "auto";
  } catch {
    /* not allowed here */
  }
  const apply = (value) => {
    if (value === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = value;
    try {
      localStorage.setItem("evergraph-theme", value);
    } catch {
      /* not allowed here */
    }
  };
  apply(stored);
  byId("theme").append(
    segmented(
      "Theme",
      [
        ["auto", "Auto"],
        ["light", "Light"],
        ["dark", "Dark"],
      ],
      stored,
      apply,
    ),
  );
}
