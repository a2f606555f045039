// Films, pictures and texts. In a file they are in the page, as base64; live they come from the server.
let filmsShown = 12;
const tiles = new Map();

function drawFilms() {
  const visible = new Set(view.runs);
  const found = view.data.media.map((medium, place) => ({ medium, place })).filter((one) => visible.has(one.medium.run));
  byId("films").hidden = !view.data.media.length;
  const turn = new Map();
  for (const one of found) { // the newest of every run, then the next ones
    one.turn = turn.get(one.medium.run) || 0;
    turn.set(one.medium.run, one.turn + 1);
  }
  found.sort((one, two) => one.turn - two.turn || one.place - two.place);
  const shown = found.slice(0, filmsShown).map(({ medium, place }) => {
    const key = `${view.data.runs[medium.run].id}/${medium.name}/${medium.size}`;
    if (!tiles.has(key)) tiles.set(key, tile(medium, place));
    return tiles.get(key);
  });
  const body = byId("films-body");
  const same = body.children.length === shown.length && shown.every((one, place) => one === body.children[place]);
  if (!same) fill(body, shown); // a film that plays goes on
  byId("films-more").hidden = found.length <= filmsShown;
  byId("films-more").textContent = `Show ${Math.min(24, found.length - filmsShown)} more of ${whole(found.length)}`;
}

function tile(medium, place) {
  const run = view.data.runs[medium.run];
  const address = medium.link ?? (view.live ? `media/${run.id}/${medium.name.split("/").map(encodeURIComponent).join("/")}` : null);
  const shown = medium.gone ? make("pre", {}, "gone") : content(medium, place, address);
  const far = address ? [" · ", make("a", { href: address, download: medium.name.split("/").pop() }, "file")] : [];
  return make("figure", { class: "tile" }, shown, make("figcaption", {}, make("b", {}, run.name), ` · ${medium.shown} · ${bytes(medium.size)}`, far));
}

function content(medium, place, address) {
  const inside = document.getElementById(`medium-${place}`);
  if (medium.kind === "page") return make("pre", {}, "A page of the run. It is not shown here, because it may hold programs.");
  if (medium.kind === "text") {
    const text = make("pre", {}, "…");
    if (inside) text.textContent = new TextDecoder().decode(decoded(inside).slice(0, 65536));
    else if (view.live) fetch(address, { headers: { Range: "bytes=0-65535" } }).then((reply) => reply.text()).then((said) => { text.textContent = said; }, () => { text.textContent = "gone"; });
    else text.textContent = "In the file beside this page.";
    return text;
  }
  const element = medium.kind === "video"
    ? make("video", { controls: true, loop: true, playsinline: true, preload: "metadata", "aria-label": `Film ${medium.shown}` })
    : make("img", { alt: `Picture ${medium.shown}`, loading: "lazy" });
  const frame = medium.kind === "video" ? "#t=0.001" : ""; // shows a picture before it plays
  if (inside) seen(element, () => { element.src = URL.createObjectURL(new Blob([decoded(inside)], { type: inside.dataset.type })) + frame; });
  else element.src = address + frame;
  return element;
}

function decoded(element) {
  return Uint8Array.from(atob(element.textContent.trim()), (character) => character.charCodeAt(0));
}

function seen(element, then) {
  const watcher = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) { watcher.disconnect(); then(); }
  }, { rootMargin: "400px" });
  watcher.observe(element);
}
