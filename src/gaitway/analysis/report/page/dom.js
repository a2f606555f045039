// Elements and numbers. Texts of runs become text nodes, never markup: nothing here parses HTML.
const byId = (id) => document.getElementById(id);

function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "checked" || name === "value") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
  const digits = size >= 1e4 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 };
  return value.toLocaleString("en", digits).replace("-", "−");
}

function whole(value) {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en").replace("-", "−");
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

function bytes(size) {
  return size < 1e6 ? `${Math.max(1, Math.round(size / 1e3))} kB` : `${(size / 1e6).toFixed(1)} MB`;
}

function counted(count, what) {
  return `${whole(count)} ${what}${count === 1 ? "" : "s"}`;
}

function span(low, high) {
  return low === null || low === undefined ? "–" : `${short(low)} to ${short(high)}`;
}

function stateMark(state) {
  const known = ["done", "training", "failed", "stopped", "silent", "pruned", "waiting"];
  return make("span", { class: `state ${known.includes(state) ? state : ""}` }, state);
}

// columns: {title, value(row), show(row), number, class}. With `sortable`, a click on a head sorts; `limit` rows at first.
function table(columns, rows, { caption, limit = Infinity, sortable = false, kind = "" } = {}) {
  const body = make("tbody");
  const wrapper = make("div", { class: "wide" });
  const more = make("button", { class: "more", type: "button" });
  let sorted = rows, shown = limit;
  const draw = () => {
    fill(body, sorted.slice(0, shown).map((row) => make("tr", {}, columns.map((column, place) => make(
      place === 0 ? "th" : "td",
      { class: [column.number ? "number" : column.show ? "" : wrapping(column.value(row)), column.class].filter(Boolean).join(" "), scope: place === 0 ? "row" : null },
      column.show ? column.show(row) : column.number ? short(column.value(row)) : column.value(row) ?? "–",
    )))));
    more.hidden = sorted.length <= shown;
    more.textContent = `Show all ${whole(sorted.length)}`;
  };
  more.addEventListener("click", () => { shown = Infinity; draw(); });
  const heads = columns.map((column) => {
    const head = make("th", { scope: "col", class: column.number ? "number" : "" });
    if (!sortable || !column.value) { head.append(column.title); return head; }
    head.append(make("button", { type: "button", onclick: () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sorted = [...rows].sort((one, two) => (down ? 1 : -1) * compare(column.value(two), column.value(one)));
      draw();
    } }, column.title));
    return head;
  });
  wrapper.append(make("table", { class: kind }, caption ? make("caption", {}, caption) : null, make("thead", {}, make("tr", {}, heads)), body));
  draw();
  return make("div", {}, wrapper, more);
}

const wrapping = (value) => (String(value ?? "").length > 36 ? "text" : "brief");

function compare(one, two) {
  const missing = (value) => value === null || value === undefined;
  if (missing(one) || missing(two)) return missing(one) - missing(two) ? (missing(one) ? -1 : 1) : 0;
  return typeof one === "number" && typeof two === "number" ? one - two : String(one).localeCompare(String(two), "en", { numeric: true });
}
