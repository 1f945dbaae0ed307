// The page of a server: asks it every two seconds, and draws anew what has changed.

const EVERY = 2000;
const shown = { tag: "", about: null, novel: null };
let token = "";
try {
  token = sessionStorage.getItem("evergraph-token") || "";
} catch {
  /* not allowed here */
}

async function ask(path, body, key) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = { headers, cache: "no-store" };
  if (body) {
    Object.assign(headers, { "Content-Type": "application/json", "Idempotency-Key": key });
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  }
  const answer = await fetch(path, options);
  const told = await answer.json();
  if (answer.status === 401) askForToken();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

const PARTS = [
  ["summary", "Now", ""],
  ["alarms", "Alarms", "What the last changes show of drift, of classes that are missed and of nodes that fit none."],
  ["node", "A node", "Its class, and what decided for it and against the runner-up."],
  ["novel", "Novel nodes", "Groups of nodes that wait for a name. Give one to teach it: that is a change like any other."],
  ["time", "Over time", "Accuracy on held-out nodes with 95 % intervals (Wilson), and the classes known, by change."],
  ["queue", "Queue", "What clients taught, last first."],
  ["latency", "Latency", "Questions in the last quarter of an hour, in milliseconds: half and 99 of 100 were answered within."],
];
const bodies = {};
byId("main").replaceChildren(
  ...PARTS.map(([id, title, intro]) => {
    bodies[id] = h("div", { class: "body" });
    const lead = intro ? h("p", { class: "intro" }, intro) : null;
    return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), lead, bodies[id]);
  }),
);
byId("nav").append(...PARTS.map(([id, title]) => h("a", { href: `#${id}` }, title)));

function askForToken() {
  if (byId("token")) return;
  const field = h("input", { type: "password", id: "token", required: true, autocomplete: "off" });
  const form = h(
    "form",
    {
      class: "line",
      onsubmit: (event) => {
        event.preventDefault();
        token = field.value;
        try {
          sessionStorage.setItem("evergraph-token", token);
        } catch {
          /* not allowed here */
        }
        form.remove();
        look();
      },
    },
    h("label", {}, "Token", field),
    h("button", { class: "act" }, "Open"),
  );
  byId("overview").after(form);
}

function summary({ about, novel, queue, latency }) {
  const last = about.changes.at(-1);
  const amiss = about.warnings.length + (novel?.surely ? 1 : 0);
  const waiting = queue ? queue.queued + queue.learning : null;
  const window_ = latency.at(-1);
  bodies.summary.replaceChildren(
    h(
      "div",
      { class: "tiles" },
      tile("Accuracy", percent(last?.mean), last?.n ? `${plural(last.n, "held-out node")}, ${range(last.low, last.high)}` : "no held-out nodes"),
      tile("Nodes", String(about.nodes), plural(about.edges, "edge")),
      tile("Classes", String(about.classes.length), plural(about.labels, "label")),
      tile("Alarms", String(amiss), amiss ? "see below" : "nothing amiss"),
      tile("Waiting", waiting === null ? "–" : String(waiting), queue ? `${queue.done} done, ${queue.refused} refused` : "read-only"),
      tile("p99", window_ ? seconds(window_.p99 / 1000) : "–", window_ ? `${number(window_.rate, 1)} a second` : "nobody asks"),
    ),
  );
}

function alarms({ about, novel }) {
  const words = [...about.warnings];
  if (novel?.surely)
    words.push(`${novel.novel} of the last ${novel.asked} nodes without a label fit no known class (${novel.expected} would by chance): name their groups below.`);
  bodies.alarms.replaceChildren(
    words.length
      ? h("ul", { class: "alarms", role: "status" }, words.map((told) => h("li", { class: "alarm" }, told)))
      : h("p", { class: "empty" }, "Nothing deserves attention."),
  );
}

let picked = "all";
function overTime({ about }) {
  const { changes, classes } = about;
  if (!changes.length) return bodies.time.replaceChildren(h("p", { class: "empty" }, "Nothing is learned yet."));
  const host = h("div", { class: "pair" });
  const axis = { xTitle: "after change", xName: "after change", height: 240 };
  const paint = (value) => {
    picked = value;
    const share = (change) => {
      const mean = change.by_class[Number(value)] ?? null;
      return { x: change.change, mean, std: null, low: null, high: null, note: classes[value].name };
    };
    const points = changes.map((change) => (value === "all" ? { ...change, x: change.change } : share(change)));
    const left = h("figure", {}, h("figcaption", {}, "Accuracy, %")),
      right = h("figure", {}, h("figcaption", {}, "Classes"));
    host.replaceChildren(left, right);
    if (points.some((point) => point.mean !== null)) linesChart(left, "Accuracy over changes", [{ name: "accuracy", points }], axis);
    else left.append(h("p", { class: "empty" }, "No node is held out."));
    const known = changes.map((change) => ({ x: change.change, mean: change.classes, std: null, low: null, high: null, note: change.new_classes.length ? `new: ${change.new_classes.slice(0, 5).join(", ")}` : "none is new" }));
    linesChart(right, "Classes over changes", [{ name: "classes", points: known }], { ...axis, limits: [0, Infinity] });
  };
  const judged = classes.map((part, at) => [String(at), part.name, part.held_out]).filter((part) => part[2]);
  if (!judged.some(([at]) => at === picked)) picked = "all";
  bodies.time.replaceChildren(h("div", { class: "tools" }, choice("Accuracy on", [["all", "all classes"], ...judged], picked, paint)), host);
  paint(picked);
}

function queueTable({ queue, last }) {
  if (!queue) return bodies.queue.replaceChildren(h("p", { class: "empty" }, "This server is read-only."));
  if (!last.length) return bodies.queue.replaceChildren(h("p", { class: "empty" }, "Nobody has taught anything yet."));
  const cells = (one) => [
    one.number,
    h("span", { class: `badge ${one.status}` }, one.status),
    one.version ?? "–",
    new Date(one.received).toLocaleTimeString(),
    one.ended ? seconds((new Date(one.ended) - new Date(one.received)) / 1000) : "–",
    h("span", { class: "wrapped" }, one.sentence || "–"),
  ];
  const heads = ["change", "status", "version", "received", "took", "sentence"];
  bodies.queue.replaceChildren(
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
        h("tbody", {}, last.map((one) => h("tr", {}, cells(one).map((cell) => h("td", {}, cell))))),
      ),
    ),
  );
}

function latencyChart({ latency, now }) {
  if (!latency.length) return bodies.latency.replaceChildren(h("p", { class: "empty" }, "Nobody has asked yet."));
  const point = (key) => (part) => ({ x: Math.round((part.at - now) / 6) / 10, mean: part[key], std: null, low: null, high: null, note: `${number(part.rate, 1)} questions a second` });
  const series = [["median", "p50"], ["p99", "p99"]].map(([name, key]) => ({ name, points: latency.map(point(key)) }));
  const axis = { xTitle: "minutes", xName: "minutes", height: 220, limits: [0, Infinity], xText: (x) => number(x, 1) };
  const host = h("div");
  bodies.latency.replaceChildren(host, h("p", { class: "key" }, ["median", "p99"].map((name) => h("span", {}, h("i", { class: "swatch", style: { background: colour(name) } }), name))));
  linesChart(host, "Latency, milliseconds", series, axis);
}

const result = h("div", { id: "found", "aria-live": "polite" });
const search = h("input", { type: "search", required: true, autocomplete: "off" });
bodies.node.append(
  h(
    "form",
    { class: "line", role: "search", onsubmit: (event) => (event.preventDefault(), find(search.value)) },
    h("label", {}, "Name", search),
    h("button", { class: "act" }, "Look up"),
  ),
  result,
);

async function find(name) {
  search.value = name;
  let node;
  try {
    node = await ask(`/nodes/${encodeURIComponent(name)}`);
  } catch (error) {
    return result.replaceChildren(h("p", { class: "empty lost" }, error.message));
  }
  const names = shown.about.classes.map((part) => part.name);
  const paintOf = (label) => hue(Math.max(names.indexOf(String(label)), 0));
  const second = node.top[1] ? `then ${node.top[1].label}, ${percent(100 * node.top[1].probability)}` : "the only class";
  const novelty = node.novelty === null ? "not known yet" : "1: unlike all classes";
  result.replaceChildren(
    h(
      "div",
      { class: "tiles" },
      tile("Class", String(node.label), second),
      tile("Probability", percent(100 * node.probability), `version ${node.version}`),
      tile("Novelty", number(node.novelty), novelty),
    ),
  );
  const why = node.explanation;
  if (!why) return result.append(h("p", { class: "note" }, node.not_explained));
  whyGraph(result, why, paintOf, (other) => find(String(other)));
  const used = [...new Set(why.classes.map(([, label]) => String(label)))];
  const others = why.classes.slice(1).map(([other]) => h("button", { class: "link", type: "button", onclick: () => find(String(other)) }, String(other)));
  result.append(
    h("p", { class: "key" }, used.map((label) => h("span", {}, h("i", { class: "swatch", style: { background: paintOf(label) } }), label)), h("span", {}, "broken rim: speaks against it")),
    h("p", { class: "note" }, "Go to ", others),
  );
  contributions(result, why);
}

const taught = h("p", { class: "note", role: "status" });
const novelHost = h("div");
bodies.novel.append(novelHost, taught);

async function teach(pairs) {
  const labels = shown.about.whole ? pairs.map(([id, name]) => [id, Number(name)]) : pairs;
  const key = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  try {
    const { number: at } = await ask("/changes", { labels }, key);
    for (;;) {
      const { status, version, sentence } = await ask(`/changes/${at}`);
      taught.textContent = `Change ${at}: ${status}${version === null ? "" : `, version ${version}`}. ${sentence}`;
      if (status === "done" || status === "refused") return;
      await new Promise((done) => setTimeout(done, 300));
    }
  } catch (error) {
    taught.textContent = error.message;
  }
}

// What somebody is typing into stays.
const busy = (host) => [...host.querySelectorAll("input[type=text]")].some((field) => field.value || field === document.activeElement);

let again = 0,
  drawn = null;
async function look() {
  clearTimeout(again);
  try {
    const told = await ask(`/status?known=${encodeURIComponent(shown.tag)}`);
    const fresh = told.tag !== shown.tag;
    if (fresh) Object.assign(shown, { tag: told.tag, about: told.about, novel: told.novel });
    const all = { ...told, ...shown };
    byId("overview").textContent = `${all.about.method} · version ${told.version} · live${told.read_only ? " · read-only" : ""}`;
    byId("overview").classList.remove("lost");
    summary(all);
    queueTable(all);
    latencyChart(all);
    if (fresh) {
      alarms(all);
      overTime(all);
    }
    if (drawn !== shown.tag && !busy(novelHost)) {
      drawn = shown.tag;
      novelGroups(novelHost, shown.novel, shown.about.classes, { teach, choose: (name) => find(String(name)) });
    }
  } catch (error) {
    byId("overview").textContent = `No answer at ${new Date().toLocaleTimeString()}: ${error.message}`;
    byId("overview").classList.add("lost");
  }
  again = setTimeout(look, document.hidden ? 5 * EVERY : EVERY);
}

theme();
byId("footer").append(h("p", {}, "Served by Evergraph. ", h("a", { href: "/docs" }, "What else can be asked")));
document.addEventListener("visibilitychange", () => document.hidden || look());
look();
