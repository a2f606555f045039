// Beginning, keys, and what arrives while one looks.
const KEYS = [["/", "filter the runs"], ["m", "choose a metric"], ["[ ]", "metric before, next"], ["t", "light or dark"], ["Esc", "clear the filter"], ["?", "these keys"]];

function drawAll() {
  drawVerdict();
  drawResults();
  drawTests();
  drawSettings();
  drawSweep();
  drawFilms();
  drawRuns();
  drawAbout();
  drawMetrics();
  drawFigures();
  drawNav();
}

function drawNav() {
  const sections = [...document.querySelectorAll("section[data-title]")].filter((section) => !section.hidden);
  const links = sections.map((section) => make("a", { href: `#${section.id}` }, section.dataset.title));
  if (byId("nav").textContent !== links.map((one) => one.textContent).join("")) fill(byId("nav"), links);
  const now = sections.filter((section) => section.getBoundingClientRect().top < 180).pop();
  for (const link of byId("nav").children) link.toggleAttribute("aria-current", Boolean(now) && link.hash === `#${now.id}`);
}

function drawMetrics() {
  const select = byId("metric"), names = view.data.metrics;
  byId("curves").hidden = !names.length;
  const known = [...select.options].map((option) => option.value);
  if (known.length !== names.length || known.some((name, place) => name !== names[place])) {
    const groups = new Map();
    for (const name of names) {
      const kind = name.includes("/") ? name.split("/")[0] : "other";
      if (!groups.has(kind)) groups.set(kind, make("optgroup", { label: kind }));
      groups.get(kind).append(make("option", { value: name }, name));
    }
    fill(select, ...groups.values());
  }
  select.value = view.metric;
}

async function showMetric(name) {
  view.metric = name;
  byId("metric").value = name;
  if (view.live && !view.curves.has(name)) await fetchCurves(name);
  drawCurves();
  const open = document.querySelector('details[data-table="curves"][open]');
  if (open) fillTable(open);
}

async function fetchCurves(name) {
  const reply = await fetch(`api/curves?metric=${encodeURIComponent(name)}`);
  if (reply.ok) view.curves.set(name, await reply.json());
}

function take(data) {
  const first = view.data === null;
  view.data = data;
  if (first || !data.metrics.includes(view.metric)) view.metric = data.metric;
  index();
  drawAll();
  document.documentElement.dataset.ready = String(data.runs.length);
}

let version = null, asked = 0;
async function look() {
  try {
    const reply = await fetch(`api/state${version === null ? "" : `?version=${version}`}`);
    if (reply.status === 200) {
      const data = await reply.json();
      view.curves.clear();
      take(data);
      await fetchCurves(view.metric);
      drawFigures();
      version = data.version;
    } else if (reply.status !== 204) throw new Error(String(reply.status));
    asked = Date.now();
    byId("live").classList.remove("lost");
    byId("live").textContent = view.data && view.data.reading ? "reading" : "live";
  } catch {
    byId("live").classList.add("lost");
    byId("live").textContent = asked ? `no answer for ${duration((Date.now() - asked) / 1000)}` : "no answer";
  }
  setTimeout(look, view.data && view.data.reading ? 400 : 1500);
}

function setTheme(theme, keep) {
  document.documentElement.dataset.theme = theme;
  try { if (keep) localStorage.setItem("gaitway-theme", theme); } catch { /* a page from a file may not keep anything */ }
  if (view.data) { drawResults(); drawTests(); drawSettings(); drawFigures(); }
}

function begin() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let kept = null;
  try { kept = localStorage.getItem("gaitway-theme"); } catch { /* as above */ }
  setTheme(kept || (system.matches ? "dark" : "light"), false);
  system.addEventListener("change", () => { if (!kept) setTheme(system.matches ? "dark" : "light", false); });
  byId("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark", true));
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("keys-close").addEventListener("click", () => byId("keys").close());
  addEventListener("load", () => { if (view.data) drawFigures(); }); // Plotly comes last, so that words need not wait
  fill(byId("keys-list"), KEYS.flatMap(([key, what]) => [make("dt", {}, key), make("dd", {}, what)]));
  byId("filter").addEventListener("input", () => {
    view.words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!view.data) return;
    refilter();
    drawResults(); drawSettings(); drawFilms(); drawRuns(); drawFigures(); drawNav();
    byId("found").textContent = `${counted(view.runs.length, "run")} found`;
  });
  byId("metric").addEventListener("change", (event) => showMetric(event.target.value));
  byId("task").addEventListener("change", (event) => { view.task = event.target.value; drawFigures(); });
  for (const id of ["axis", "seeds", "log"]) byId(id).addEventListener("change", drawCurves);
  byId("films-more").addEventListener("click", () => { filmsShown += 24; drawFilms(); });
  document.querySelectorAll("details.as-table").forEach((one) => one.addEventListener("toggle", () => { if (one.open) fillTable(one); }));
  document.addEventListener("keydown", onKey);
  let waiting = null;
  addEventListener("scroll", () => { waiting ??= setTimeout(() => { waiting = null; drawNav(); }, 100); }, { passive: true });
  const inside = document.getElementById("data");
  if (inside) {
    const { state, curves } = JSON.parse(inside.textContent);
    view.curves = new Map(Object.entries(curves));
    take(state);
  } else {
    view.live = true;
    byId("live").hidden = false;
    byId("live").textContent = "reading";
    look();
  }
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) && event.target.type !== "checkbox";
  if (event.key === "Escape" && event.target === byId("filter")) {
    byId("filter").value = "";
    byId("filter").dispatchEvent(new Event("input"));
    byId("filter").blur();
  }
  if (typing || !view.data) return;
  const step = { "[": -1, "]": 1 }[event.key];
  if (event.key === "/") byId("filter").focus();
  else if (event.key === "m") byId("metric").focus();
  else if (event.key === "t") byId("theme").click();
  else if (event.key === "?") byId("keys").showModal();
  else if (step) {
    const names = view.data.metrics;
    showMetric(names[(names.indexOf(view.metric) + step + names.length) % names.length]);
  } else return;
  event.preventDefault();
}

begin();
