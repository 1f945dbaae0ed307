// Saves what a section shows now: its tables as CSV, its charts as one picture, SVG or PNG.

// What a chart takes from the page's style sheet, which a file of its own does not have.
const DRAWN = [
  ...["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity"],
  ...["opacity", "font-size", "font-weight", "font-family", "text-anchor", "dominant-baseline"],
];
const PIXELS = 2; // of a PNG, in each direction, for one of the page

// A number with the page's minus sign becomes one that programs read.
function cellText(cell) {
  const text = cell.innerText.trim().replace(/\s+/g, " ").replace(/−(?=\d)/g, "-");
  const risky = /^[=+\-@]/.test(text) && !/^[+-]?[\d.]+/.test(text); // a formula, to a spreadsheet
  return `"${(risky ? "'" : "") + text.replace(/"/g, '""')}"`;
}

function tablesAsText(host) {
  const tables = [...host.querySelectorAll("table")].map((table) => {
    const caption = table.closest("figure")?.querySelector("figcaption");
    const rows = [...table.rows].map((row) => [...row.cells].map(cellText).join(","));
    return [...(caption ? [cellText(caption)] : []), ...rows].join("\n");
  });
  return `${tables.join("\n\n")}\n`;
}

function chartsAsPicture(host) {
  const charts = [...host.querySelectorAll(".chart svg")];
  const sizes = charts.map((chart) => chart.getBoundingClientRect());
  const captions = charts.map((chart) => chart.closest("figure")?.querySelector("figcaption"));
  const style = getComputedStyle(document.body);
  const width = Math.max(...sizes.map((size) => size.width));
  const picture = s("svg", { xmlns: SVG, "font-family": style.fontFamily });
  let top = 0;
  charts.forEach((chart, index) => {
    if (captions[index]) {
      const text = captions[index].innerText.replace(/\s+/g, " ");
      picture.append(s("text", { x: 0, y: top + 16, "font-size": 14, fill: style.color }, text));
      top += 26;
    }
    const copy = chart.cloneNode(true);
    const marks = [...chart.querySelectorAll("*")];
    copy.querySelectorAll("*").forEach((mark, at) => {
      const found = getComputedStyle(marks[at]);
      mark.removeAttribute("style");
      DRAWN.forEach((key) => mark.setAttribute(key, found.getPropertyValue(key)));
    });
    const { width: wide, height: high } = sizes[index];
    fill(copy, { x: 0, y: top, width: wide, height: high }, []);
    picture.append(copy);
    top += high + 12;
  });
  let left = 0;
  host.querySelectorAll('.legend button:not([aria-pressed="false"])').forEach((item) => {
    const shade = getComputedStyle(item.querySelector("i")).backgroundColor;
    if (left > width - 120) [left, top] = [0, top + 20];
    picture.append(s("circle", { cx: left + 6, cy: top + 8, r: 5, fill: shade }));
    const words = { x: left + 16, y: top + 13, "font-size": 13, fill: style.color };
    picture.append(s("text", words, item.innerText));
    left += item.getBoundingClientRect().width + 8;
  });
  if (left) top += 24;
  fill(picture, { width, height: top, viewBox: `0 0 ${width} ${top}` }, []);
  const back = { width: "100%", height: "100%", fill: style.backgroundColor };
  picture.prepend(s("rect", back));
  return { width, height: top, text: new XMLSerializer().serializeToString(picture) };
}

function asPixels({ width, height, text }, done) {
  const image = new Image();
  image.onload = () => {
    const canvas = h("canvas", { width: width * PIXELS, height: height * PIXELS });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(done);
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

function save(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Buttons for the kinds of file that a section can be saved as.
function exports(host, name) {
  const button = (kind, act) =>
    h("button", { type: "button", title: `Save as ${kind}`, onclick: act }, kind);
  const file = (kind, parts, type) => save(`${name}.${kind}`, new Blob(parts, { type }));
  const svg = () => file("svg", [chartsAsPicture(host).text], "image/svg+xml");
  const png = () => asPixels(chartsAsPicture(host), (blob) => save(`${name}.png`, blob));
  return h(
    "div",
    { class: "save", role: "group", "aria-label": "Save what is shown" },
    host.querySelector("table") && button("CSV", () => file("csv", [tablesAsText(host)], "text/csv")),
    host.querySelector(".chart") && [button("SVG", svg), button("PNG", png)],
  );
}
