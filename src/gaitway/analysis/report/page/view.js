// What is looked at: the data, the filter, the groups that have a colour.
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#c0578f", "#c98a00", "#3d9bd1", "#7a5195", "#6b5f4b"];
const DARK = ["#5ab0f0", "#ff8f52", "#3ccb9c", "#f0a5cd", "#f5bd4f", "#97d6ff", "#bda2ee", "#c2b59b"];
const COLOURED = 8;

const view = {
  data: null,
  curves: new Map(),
  metric: null,
  task: null,
  words: [],
  chosen: null, // labels that the reader chose; null: the best ones
  places: new Map(), // label -> place in the palette, kept while points arrive
};

const isDark = () => document.documentElement.dataset.theme === "dark";
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function runText(number) {
  const run = view.data.runs[number];
  const group = view.data.groups[view.groupOf[number]];
  return [run.name, run.task, run.state, `seed=${run.seed}`, group ? group.label : "", view.settingText[view.groupOf[number]] || ""].join(" ").toLowerCase();
}

function index() {
  const data = view.data;
  view.groupOf = {};
  data.groups.forEach((group, number) => group.runs.forEach((run) => { view.groupOf[run] = number; }));
  view.settingText = data.settings.rows.map((row) => row.map((value, place) => `${data.settings.keys[place]}=${value}`).join(" "));
  view.texts = data.runs.map((_, number) => runText(number));
  refilter();
}

function refilter() {
  const { data, words } = view;
  view.runs = data.runs.map((_, number) => number).filter((number) => words.every((word) => view.texts[number].includes(word)));
  const groups = new Set(view.runs.map((number) => view.groupOf[number]));
  const rest = data.groups.map((_, number) => number).filter((number) => !data.order.includes(number));
  view.groups = [...data.order, ...rest].filter((number) => groups.has(number));
  recolour();
}

function recolour() {
  const { data } = view;
  const wanted = view.groups.filter((number) => view.chosen === null || view.chosen.has(data.groups[number].label));
  view.bright = view.chosen === null ? wanted.slice(0, COLOURED) : wanted;
  const labels = new Set(view.bright.map((number) => data.groups[number].label));
  for (const label of [...view.places.keys()]) if (!labels.has(label)) view.places.delete(label);
  for (const label of labels) {
    if (view.places.has(label)) continue;
    const taken = new Set(view.places.values());
    let place = 0;
    while (taken.has(place) && place < COLOURED - 1) place += 1;
    view.places.set(label, taken.has(place) ? view.places.size % COLOURED : place);
  }
}

// Scores of different tasks are on different scales: curves are of one task.
function taskShown() {
  const { data } = view;
  const counts = new Map();
  for (const number of view.groups) counts.set(data.groups[number].task, (counts.get(data.groups[number].task) || 0) + data.groups[number].runs.length);
  const tasks = [...counts.keys()];
  if (!tasks.includes(view.task)) view.task = tasks.sort((one, two) => counts.get(two) - counts.get(one))[0];
  return { tasks: [...counts.keys()].sort(), task: view.task };
}

function colour(number) {
  const place = view.places.get(view.data.groups[number].label);
  return place === undefined ? ink("grey") : (isDark() ? DARK : LIGHT)[place];
}

function swatch(number) {
  const mark = make("span", { class: "swatch", "aria-hidden": "true" });
  if (view.bright.includes(number)) mark.style.setProperty("background", colour(number));
  return mark;
}

const label = (number) => view.data.groups[number].label;
const withSwatch = (number) => make("span", { class: "group" }, swatch(number), make("span", { class: wrapping(label(number)) }, label(number)));
