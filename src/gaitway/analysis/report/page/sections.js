// Words and tables.
function drawVerdict() {
  const { data } = view;
  byId("title").textContent = data.title;
  document.title = data.title;
  const tasks = [...new Set(data.groups.map((group) => group.task))].filter(Boolean);
  const some = tasks.length > 3 ? `${tasks.length} tasks` : tasks.join(", ");
  const counts = [counted(data.runs.length, "run"), data.groups.length > 1 ? counted(data.groups.length, "group") : "", some];
  byId("over").textContent = counts.filter(Boolean).join(" · ");
  byId("heading").textContent = data.verdict.heading;
  fill(byId("sentences"), data.verdict.sentences.slice(0, 6).map((text) => make("p", {}, text.replace(/(^|[\s(])-(?=\d)/g, "$1−"))));
  const reading = data.reading ? [make("li", {}, `${counted(data.reading, "more run")} being read.`)] : [];
  const problems = data.problems.slice(0, 8).map((one) => make("li", { class: "bad" }, `${one.folder}: ${one.sentence}`));
  if (data.problems.length > 8) problems.push(make("li", { class: "bad" }, `${data.problems.length - 8} more folders cannot be read.`));
  fill(byId("notes"), reading, data.verdict.notes.map((text) => make("li", {}, text)), problems);
  if (data.made) byId("foot").textContent = data.made;
}

let groupsShown = 12;
function drawResults() {
  const { data } = view;
  byId("results").hidden = !view.groups.length;
  const steps = [...new Set(data.groups.map((group) => group.at))];
  const where = steps.length === 1 && steps[0] !== null ? ` at step ${whole(steps[0])}` : "";
  byId("results-lead").textContent = `${data.metric}${where}: interquartile mean of each group with its 95 % interval; small dots are runs. What is ticked has a colour in the curves.`;
  const tasks = [...new Set(view.groups.map((number) => data.groups[number].task))];
  const body = make("tbody");
  for (const task of tasks) {
    const members = view.groups.filter((number) => data.groups[number].task === task);
    if (tasks.length > 1) body.append(make("tr", { class: "task" }, make("th", { colspan: 5, scope: "colgroup" }, task || "no task")));
    const rows = members.slice(0, groupsShown);
    const scale = scaleOf(task, rows);
    body.append(...rows.map((number) => groupRow(number, scale)));
  }
  const heads = [["Group", ""], ["Runs", "number"], ["Interquartile mean", "number"], ["95 % interval", "number"], ["", "forest"]];
  const more = make("button", { class: "more", type: "button", onclick: () => { groupsShown = Infinity; drawResults(); } }, `Show all ${counted(view.groups.length, "group")}`);
  more.hidden = view.groups.length <= groupsShown;
  fill(byId("results-body"), make("div", { class: "wide" }, make("table", { class: "groups" },
    make("thead", {}, make("tr", {}, heads.map(([title, kind]) => make("th", { scope: "col", class: kind }, title)))), body)), more);
}

function scaleOf(task, members) {
  const values = members.flatMap((number) => [...view.data.groups[number].scores, view.data.groups[number].low, view.data.groups[number].high]);
  values.push(...Object.values(view.data.baselines[task] || {}));
  const known = values.filter((value) => value !== null && value !== undefined);
  const low = Math.min(...known), high = Math.max(...known);
  return (value) => `${high > low ? 3 + (94 * (value - low)) / (high - low) : 50}%`;
}

function groupRow(number, scale) {
  const group = view.data.groups[number];
  const box = make("input", { type: "checkbox", checked: view.bright.includes(number), onchange: () => toggle(number) });
  const track = make("div", { class: "track", "aria-hidden": "true" });
  const place = (kind, left, paint, title) => {
    const mark = make("i", { class: kind, title });
    mark.style.setProperty("left", left);
    if (paint) mark.style.setProperty("background", paint);
    track.append(mark);
    return mark;
  };
  for (const [name, value] of Object.entries(view.data.baselines[group.task] || {})) place("base", scale(value), null, `${name} actions`);
  const paint = view.bright.includes(number) ? colour(number) : ink("grey");
  if (group.low !== null) place("range", scale(group.low), paint).style.setProperty("width", `calc(${scale(group.high)} - ${scale(group.low)})`);
  group.scores.forEach((score) => { if (score !== null) place("dot", scale(score), paint); });
  if (group.centre !== null) place("centre", scale(group.centre), paint);
  const runs = group.scores.length === group.runs.length ? whole(group.runs.length) : `${group.scores.length} of ${group.runs.length}`;
  return make("tr", {},
    make("th", { scope: "row", class: "name" }, make("label", {}, box, swatch(number), make("span", {}, group.label))),
    make("td", { class: "number count" }, runs, make("span", { class: "phone" }, group.runs.length === 1 ? " run" : " runs")),
    make("td", { class: "number strong" }, short(group.centre)),
    make("td", { class: "number interval" }, span(group.low, group.high)),
    make("td", { class: "forest" }, track));
}

function toggle(number) {
  const chosen = new Set(view.bright.map(label));
  if (!chosen.delete(label(number))) chosen.add(label(number));
  view.chosen = chosen;
  recolour();
  drawResults();
  drawFigures();
  byId("results-body").querySelectorAll("input")[view.groups.indexOf(number)]?.focus();
}

function drawTests() {
  const found = view.data.tests;
  byId("tests").hidden = !found.length;
  if (!found.length) return;
  const total = found.reduce((sum, one) => sum + one.pairs, 0);
  const how = found.some((one) => one.correction === "bonferroni") ? "Bonferroni" : "Holm";
  byId("tests-lead").textContent = `Welch's t-test of the final scores, p-values corrected for ${counted(total, "pair")} by ${how}'s method. The chance is that a run of the first beats one of the second.`;
  fill(byId("tests-body"), found.map((one) => table([
    { title: one.is_cost ? "Lower" : "Higher", show: (row) => withSwatch(row.better), class: "name" },
    { title: one.is_cost ? "Higher" : "Lower", show: (row) => withSwatch(row.worse), class: "name" },
    { title: "Difference", number: true, value: (row) => row.difference },
    { title: "95 % interval", number: true, show: (row) => span(row.low, row.high) },
    { title: "Chance to win", number: true, value: (row) => row.improvement },
    { title: "p", number: true, show: (row) => probability(row.p) },
    { title: "Corrected", number: true, show: (row) => make("span", { class: row.significant ? "strong" : "soft" }, probability(row.adjusted)) },
    { title: "", value: (row) => (row.significant ? "differs" : "not shown") },
  ], one.rows, { caption: found.length > 1 ? one.task : null })));
}

function probability(value) {
  if (value === null) return "–";
  return value < 1e-4 ? "< 0.0001" : value.toPrecision(2);
}

function drawSettings() {
  const { keys, rows } = view.data.settings;
  const members = view.groups.filter((number) => rows[number]);
  byId("settings").hidden = !keys.length || members.length < 2;
  if (byId("settings").hidden) return;
  const columns = [{ title: "Group", show: withSwatch, value: label, class: "name" }];
  keys.forEach((key, place) => columns.push({ title: key, value: (number) => rows[number][place] }));
  fill(byId("settings-body"), table(columns, members, { limit: 12, sortable: true }));
}

function drawSweep() {
  const found = view.data.sweeps;
  byId("sweep").hidden = !found.length;
  fill(byId("sweep-body"), found.map((sweep) => table([
    { title: "Trial", number: true, value: (row) => row.trial, show: (row) => String(row.trial) },
    ...sweep.parameters.map((name, place) => ({ title: name, value: (row) => row.parameters[place] })),
    { title: "Seed", number: true, value: (row) => row.seed, show: (row) => row.seed },
    { title: `Best ${view.data.metric}`, number: true, value: (row) => row.value },
    { title: "Steps", number: true, value: (row) => row.steps, show: (row) => whole(row.steps) },
    { title: "State", value: (row) => row.state, show: (row) => make("span", {}, stateMark(row.state), row.sentence ? make("div", { class: "soft" }, row.sentence) : null) },
  ], sweep.rows, { caption: sweep.name, limit: 20, sortable: true })));
}

function drawRuns() {
  byId("runs").hidden = !view.data.runs.length;
  const run = (number) => view.data.runs[number];
  fill(byId("runs-body"), table([
    { title: "Run", value: (n) => run(n).name, class: "name" },
    { title: "Seed", number: true, value: (n) => run(n).seed, show: (n) => run(n).seed ?? "–" },
    { title: "State", value: (n) => run(n).state, show: (n) => stateMark(run(n).state) },
    { title: "Steps", number: true, value: (n) => run(n).steps, show: (n) => whole(run(n).steps) },
    { title: "Last", number: true, value: (n) => run(n).last },
    { title: "Best", number: true, value: (n) => run(n).best },
    { title: "Steps/s", number: true, value: (n) => run(n).rate, show: (n) => whole(run(n).rate) },
    { title: "Time", number: true, value: (n) => run(n).seconds, show: (n) => duration(run(n).seconds) },
  ], view.runs, { limit: 20, sortable: true }));
}

function drawAbout() {
  const { contracts, wirings, code, commands } = view.data;
  byId("about").hidden = !(contracts.length || wirings.length || code.length || commands.length);
  const names = (one) => one.groups.slice(0, 3).map(label).join(", ") + (one.groups.length > 3 ? ` and ${one.groups.length - 3} more` : "");
  const rows = (heads, list) => table(heads.map((title, place) => ({ title, value: (row) => row[place] })), list);
  const parts = [];
  for (const one of contracts) parts.push(make("details", {}, make("summary", {}, `What the environment promises: ${names(one)}`), make("div", {},
    rows(["", "value"], one.facts), one.rows.length ? make("h3", {}, "Observations") : null, one.rows.length ? rows(["group", "component", "size", "unit"], one.rows) : null)));
  for (const one of wirings) parts.push(make("details", {}, make("summary", {}, `Who reads and writes what: ${names(one)}`), make("div", {}, rows(one.heads, one.rows))));
  for (const one of code) parts.push(make("p", { class: "what" }, `${counted(one.runs, "run")} by ${[...one.revisions, ...one.versions].join(", ")}`));
  const listed = commands.map((one) => make("div", {}, make("p", { class: "what" }, one.what), make("div", { class: "command" }, make("code", {}, one.command), copyButton(one.command))));
  parts.push(make("h3", {}, "Again"), ...listed.slice(0, 6));
  if (listed.length > 6) parts.push(make("details", {}, make("summary", {}, `${listed.length - 6} more commands`), make("div", {}, listed.slice(6))));
  const open = [...byId("about-body").querySelectorAll("details")].map((one) => one.open);
  fill(byId("about-body"), parts);
  byId("about-body").querySelectorAll("details").forEach((one, place) => { one.open = Boolean(open[place]); });
}

function copyButton(text) {
  const button = make("button", { type: "button", onclick: async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Select it"; }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  return button;
}
