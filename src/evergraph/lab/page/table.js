// Tables that sort by a click or a key press on the head of a column.

// A table in a frame that scrolls where it is too wide.
function scroll(label, ...content) {
  const props = { class: "scroll", tabindex: 0, role: "region", "aria-label": label };
  return h("div", props, h("table", {}, content));
}

// Columns: {title, value(row), cell(row), words}; words marks a column of text.
function sortable(label, columns, rows, start) {
  let { key, down } = start || { key: null, down: false };
  const body = h("tbody", {});
  const heads = columns.map((column, index) =>
    h(
      "th",
      { scope: "col", class: column.words ? "" : "num" },
      h(
        "button",
        {
          type: "button",
          title: column.title,
          onclick: () => {
            down = key === index ? !down : !column.words;
            key = index;
            paint();
          },
        },
        column.head,
        h("span", { class: "arrow", "aria-hidden": true }),
      ),
    ),
  );
  const compare = (a, b) => {
    const x = columns[key].value(a),
      y = columns[key].value(b);
    const missing = (value) => value === null || value === undefined;
    if (missing(x) || missing(y)) return missing(x) - missing(y); // last, whichever way
    const order = typeof x === "string" ? x.localeCompare(y) : x - y;
    return down ? -order : order;
  };
  const paint = () => {
    heads.forEach((head, index) =>
      head.setAttribute("aria-sort", index !== key ? "none" : down ? "descending" : "ascending"),
    );
    const sorted = key === null ? rows : [...rows].sort(compare);
    body.replaceChildren(
      ...sorted.map((row) =>
        h(
          "tr",
          {},
          columns.map((column, index) => {
            const props = { class: column.words ? "" : "num", scope: index ? null : "row" };
            return h(index ? "td" : "th", props, column.cell(row));
          }),
        ),
      ),
    );
  };
  paint();
  return scroll(label, h("thead", {}, h("tr", {}, heads)), body);
}

const plainly = (value) => value ?? "–";
const prose = (value) => plainly(value);
const wrapped = (value) => h("span", { class: "wrapped" }, value);

// Columns for sortable, as [head, key or what finds the value, meaning, what shows the value]; or
// ready ones. What is false is left out.
const columns = (list) =>
  list.filter(Boolean).map((one) => {
    if (!Array.isArray(one)) return one;
    const [head, key, title, show = plainly] = one;
    const value = typeof key === "string" ? (row) => row[key] : key;
    const words = show === prose || show === wrapped;
    const cell = (row) => show(value(row));
    return { head, title: title || `Sort by ${head}`, words, value, cell };
  });

// A list of facts: rows of a name and its value.
function factList(rows) {
  const row = ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, plainly(value)));
  return h("dl", { class: "facts" }, rows.map(row));
}

// A table that stays as it is: rows of cells, the first of each row its head.
function plain(label, head, rows) {
  const titleCell = (title, index) => h("th", { scope: "col", class: index ? "num" : "" }, title);
  const cell = (content, index) =>
    h(index ? "td" : "th", { scope: index ? null : "row", class: index ? "num" : "" }, content);
  return scroll(
    label,
    head && h("thead", {}, h("tr", {}, head.map(titleCell))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell)))),
  );
}

const swatch = (paint) => h("i", { class: "swatch", style: { background: paint } });

// The column that most tables begin with.
const VARIANT_COLUMN = {
  head: "variant",
  title: "Sort by name",
  words: true,
  value: (row) => row.name,
  cell: (row) => h("span", { class: "name" }, swatch(colour(row.name)), row.name),
};
