// Figures, each also as a table. Plotly reads a little markup in names, so they are escaped for it.
const escaped = (text) => String(text).replace(/\s+/g, " ").slice(0, 80).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const SINGLE = 60; // seeds up to which each one is a line of its own that tells its name

function faded(hex, alpha) {
  const [r, g, b] = [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

function plot(element, traces, layout, height) {
  if (!window.Plotly) return;
  const axis = { gridcolor: ink("line"), zerolinecolor: ink("line"), linecolor: ink("line"), tickcolor: ink("line"), automargin: true, fixedrange: matchMedia("(pointer: coarse)").matches };
  const full = {
    height, autosize: true, margin: { l: 56, r: 18, t: 10, b: 44 }, showlegend: false, hovermode: "closest", dragmode: "zoom",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: ink("sans"), size: 12.5, color: ink("soft") },
    hoverlabel: { bgcolor: ink("sheet"), bordercolor: ink("line"), font: { color: ink("ink"), family: ink("sans") }, align: "left" },
    ...layout, xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
  };
  element.style.height = `${height}px`; // what Plotly fills when the window changes
  window.Plotly.react(element, traces, full, { displayModeBar: false, responsive: true, doubleClick: "reset", locale: "en" });
}

function drawCurves() {
  const element = byId("curves-figure"), curves = view.curves.get(view.metric), { data } = view;
  if (!curves) return;
  const time = byId("axis").value === "time", seeds = byId("seeds").checked;
  const visible = new Set(view.runs), traces = [];
  const { tasks, task } = taskShown();
  byId("task-label").hidden = tasks.length < 2;
  fill(byId("task"), tasks.map((name) => make("option", { value: name }, name || "no task")));
  byId("task").value = task;
  const ofTask = (number) => data.groups[number].task === task;
  const line = (number) => curves.runs[number];
  const x = (one) => (time ? one.t || one.x.map(() => null) : one.x);
  const grey = view.groups.filter((number) => ofTask(number) && !view.bright.includes(number));
  const joined = (numbers) => {
    const xs = [], ys = [];
    for (const number of numbers) { xs.push(...x(line(number)), null); ys.push(...line(number).y, null); }
    return { x: xs, y: ys };
  };
  const members = (group) => data.groups[group].runs.filter((number) => visible.has(number) && line(number));
  const others = grey.flatMap(members);
  if (others.length) traces.push({ ...joined(others), mode: "lines", hoverinfo: "skip", line: { width: 1, color: faded("#8b8f96", Math.max(0.07, 0.35 / Math.sqrt(1 + others.length / 15))) } });
  for (const group of view.bright.filter(ofTask)) {
    const band = curves.groups[group], paint = colour(group), list = members(group);
    const alone = !band || time;
    if (!alone) traces.push({ x: [...band.x, ...[...band.x].reverse()], y: [...band.high, ...[...band.low].reverse()], fill: "toself", mode: "lines", line: { width: 0 }, fillcolor: faded(paint, 0.14), hoverinfo: "skip" });
    if (seeds || alone) {
      const style = alone ? { width: 1.6, color: faded(paint, list.length > 1 ? 0.7 : 1) } : { width: 1, color: faded(paint, 0.38) };
      const few = view.runs.length <= SINGLE;
      const dots = list.length && list.every((number) => line(number).y.length < 2) ? "markers" : "lines";
      if (few) for (const number of list) traces.push({ x: x(line(number)), y: line(number).y, mode: dots, marker: { color: paint, size: 7 }, line: style, name: escaped(data.runs[number].name), hovertemplate: hoverText(time) });
      else traces.push({ ...joined(list), mode: "lines", line: style, hoverinfo: "skip" });
    }
    if (!alone) traces.push({ x: band.x, y: band.centre, mode: band.x.length < 2 ? "markers" : "lines", marker: { color: paint, size: 8 }, line: { width: 2.6, color: paint }, name: escaped(label(group)), hovertemplate: hoverText(false) });
  }
  const bases = view.metric.endsWith("/return") ? Object.entries(data.baselines[task] || {}) : [];
  const lowest = Math.min(...bases.map(([, value]) => value)); // its name stands below its line, so that they do not meet
  const shapes = bases.map(([, value]) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value, line: { color: ink("faint"), width: 1, dash: "dot" } }));
  const annotations = bases.map(([name, value]) => ({ xref: "paper", x: 1, xanchor: "right", y: value, yanchor: value === lowest && bases.length > 1 ? "top" : "bottom", showarrow: false, text: escaped(`${name} actions`), font: { size: 11, color: ink("faint") } }));
  const log = byId("log").checked;
  plot(element, traces, {
    shapes: log ? [] : shapes, annotations: log ? [] : annotations,
    xaxis: { title: { text: time ? "seconds" : "environment steps", standoff: 8 }, tickformat: "~s", rangemode: "tozero" },
    yaxis: { title: { text: escaped(view.metric), standoff: 6 }, type: log ? "log" : "linear" },
  }, Math.max(300, Math.min(460, window.innerHeight * 0.55)));
  const spread = curves.band === "bootstrap" ? "95 % bootstrap intervals" : "the range of the runs";
  const bands = Object.keys(curves.groups).length && !time ? `Thick lines are interquartile means, bands ${spread}. ` : "";
  byId("curves-caption").textContent = bands + (others.length ? `${counted(view.bright.length, "group")} in colour, ${whole(grey.length)} more in grey; tick others in Results.` : "");
  element.dataset.points = String(Object.values(curves.runs).reduce((sum, one) => sum + one.x.length, 0));
  element.dataset.metric = view.metric;
}

const hoverText = (time) => `%{fullData.name}<br>${time ? "%{x:.0f} s" : "step %{x:,}"}<br><b>%{y:.5~g}</b><extra></extra>`;

function drawProfile() {
  const found = view.data.profiles.filter((one) => Object.keys(one.groups).some((number) => view.bright.includes(Number(number))));
  byId("profile").hidden = !found.length;
  const body = byId("profile-body");
  while (body.children.length > found.length) body.lastChild.remove();
  while (body.children.length < found.length) body.append(make("div", { class: "figure" }, make("h3", {}), make("div", {})));
  found.forEach((one, place) => {
    const [head, element] = body.children[place].children;
    head.textContent = found.length > 1 ? one.task : "";
    head.hidden = found.length < 2;
    const traces = [];
    for (const [key, line] of Object.entries(one.groups)) {
      const number = Number(key);
      if (!view.bright.includes(number)) continue;
      traces.push({ x: [...one.x, ...[...one.x].reverse()], y: [...line.high, ...[...line.low].reverse()], fill: "toself", mode: "lines", line: { width: 0 }, fillcolor: faded(colour(number), 0.1), hoverinfo: "skip" });
      traces.push({ x: one.x, y: line.value, mode: "lines", line: { width: 2.4, color: colour(number), shape: "hv" }, name: escaped(label(number)), hovertemplate: "%{fullData.name}<br>above %{x:.5~g}: <b>%{y:.0%}</b><extra></extra>" });
    }
    plot(element, traces, { xaxis: { title: { text: escaped(view.data.metric), standoff: 8 } }, yaxis: { title: { text: "share of runs above", standoff: 6 }, tickformat: ".0%", range: [-0.03, 1.05] } }, 300);
  });
}

function drawParts(id, percent) {
  const rows = view.data[id].filter((one) => view.groups.includes(one.group));
  byId(id).hidden = !rows.length;
  if (!rows.length) return;
  const names = [...new Set(rows.flatMap((one) => Object.keys(one.parts)))];
  const palette = isDark() ? DARK : LIGHT;
  const traces = names.map((name, place) => ({ type: "bar", orientation: "h", y: rows.map((_, row) => row), x: rows.map((one) => one.parts[name] ?? null), name: escaped(name), marker: { color: palette[place % palette.length], opacity: place < palette.length ? 0.9 : 0.5 }, hovertemplate: `%{fullData.name}<br><b>%{x:${percent ? ".1%" : ".4~g"}}</b><extra></extra>` }));
  const narrow = window.innerWidth < 640;
  // a label stands above its bars: groups may differ in much, and a phone has no room beside them
  const annotations = rows.map((one, row) => ({ text: escaped(cut(label(one.group), narrow ? 44 : 120)), x: 0, xref: "paper", xanchor: "left", y: row, yshift: 15, yanchor: "bottom", showarrow: false, font: { size: 12 } }));
  plot(byId(`${id}-figure`), traces, {
    barmode: "relative", bargap: 0.58, showlegend: true, legend: { orientation: "h", y: -0.02, yanchor: "top", yref: "paper", traceorder: "normal", font: { size: 12 } },
    margin: { l: 16, r: 18, t: 10, b: 50 }, annotations,
    xaxis: { tickformat: percent ? ".0%" : "~g", nticks: narrow ? 4 : 8, side: "top" },
    yaxis: { showticklabels: false, showgrid: false, range: [rows.length - 0.6, -0.85], fixedrange: true },
  }, 105 + 46 * (rows.length + 0.25) + 19 * Math.ceil(names.length / (narrow ? 2 : 6)));
}

function drawFigures() {
  drawCurves();
  drawProfile();
  drawParts("rewards", false);
  drawParts("times", true);
  document.querySelectorAll("details.as-table[open]").forEach(fillTable);
}

// The same figures as tables, made when they are opened.
const TABLES = {
  curves() {
    const curves = view.curves.get(view.metric);
    if (!curves) return make("p", { class: "lead" }, "No values.");
    const groups = view.bright.filter((number) => curves.groups[number] && view.data.groups[number].task === view.task);
    const lines = groups.length
      ? groups.map((number) => ({ title: label(number), x: curves.groups[number].x, text: (place) => `${short(curves.groups[number].centre[place])} (${span(curves.groups[number].low[place], curves.groups[number].high[place])})` }))
      : view.runs.filter((number) => curves.runs[number]).slice(0, 12).map((number) => ({ title: view.data.runs[number].name, x: curves.runs[number].x, text: (place) => short(curves.runs[number].y[place]) }));
    const steps = [...new Set(lines.flatMap((line) => line.x))].sort((one, two) => one - two);
    const maps = lines.map((line) => new Map(line.x.map((step, place) => [step, place])));
    return table([{ title: "Step", number: true, value: (step) => step, show: whole }, ...lines.map((line, place) => ({ title: line.title, number: true, show: (step) => (maps[place].has(step) ? line.text(maps[place].get(step)) : "–") }))], steps, { limit: 60 });
  },
  profile() {
    return make("div", {}, view.data.profiles.filter((one) => one.x.length).map((one) => {
      const groups = Object.keys(one.groups).map(Number);
      return table([{ title: "Above", number: true, value: (place) => one.x[place] }, ...groups.map((number) => ({ title: label(number), number: true, show: (place) => `${Math.round(100 * one.groups[number].value[place])} %` }))], one.x.map((_, place) => place).filter((place) => place % 4 === 0), { caption: view.data.profiles.length > 1 ? one.task : null });
    }));
  },
  rewards: () => partsTable("rewards", short),
  times: () => partsTable("times", (value) => (value === undefined ? "–" : `${(100 * value).toFixed(1)} %`)),
};

function partsTable(id, show) {
  const rows = view.data[id], names = [...new Set(rows.flatMap((one) => Object.keys(one.parts)))];
  return table([{ title: "Group", show: (row) => withSwatch(row.group), class: "name" }, ...names.map((name) => ({ title: name, number: true, show: (row) => show(row.parts[name]) }))], rows);
}

function fillTable(details) {
  fill(details.lastElementChild, TABLES[details.dataset.table]());
}
