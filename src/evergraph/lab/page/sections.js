// Sections with their menu; they are drawn when they come near the window.

const drawer = new IntersectionObserver(
  (entries) =>
    entries.forEach((entry) => {
      if (entry.isIntersecting) entry.target.fillIn();
    }),
  { rootMargin: "600px" },
);

function section([id, title, intro, draw], dataset) {
  const body = h("div", { class: "body" });
  const lead = h("p", { class: "intro" }, intro);
  const host = h(
    "section",
    { id, class: "waiting", "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title),
    lead,
    body,
  );
  host.fillIn = () => {
    if (body.hasChildNodes()) return;
    drawer.unobserve(host);
    const nothing = draw(body, dataset); // why there is nothing to show
    host.className = nothing ? "quiet" : "";
    if (nothing) {
      lead.remove();
      body.replaceChildren(h("p", { class: "empty" }, nothing));
    } else {
      lead.after(exports(body, `${data.title}-${dataset.name}-${id}`.replace(/[^\w.-]+/g, "-")));
    }
  };
  if (id === "summary") host.fillIn();
  else drawer.observe(host);
  return host;
}

const menu = (sections) =>
  byId("nav").append(...sections.map(([id, title]) => h("a", { href: `#${id}` }, title)));

// Paper cannot scroll: everything is drawn before printing.
addEventListener("beforeprint", () =>
  document.querySelectorAll("main > section").forEach((host) => host.fillIn()),
);
