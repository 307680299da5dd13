// Query by query: two systems, their values, the relevant documents and both lists.
const drill = MODEL.drill;
const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._";
const STEP = 40; // queries shown at once

// The number in `width` digits to base 64 at `at`; null where there is none.
function unpack(text, at, width) {
  let number = 0;
  for (let i = 0; i < width; i++) {
    const digit = DIGITS.indexOf(text[at + i]);
    if (digit < 0) return null;
    number = number * 64 + digit;
  }
  return number;
}

function valueOf(system, query) {
  const found = unpack(system.values[metric] || "", query * 2, 2);
  return found === null ? null : found / 1000;
}

function listOf(system, query) {
  const found = [];
  for (let i = 0; i < drill.depth; i++) {
    const number = unpack(system.tops, (query * drill.depth + i) * 3, 3);
    if (number !== null) found.push(number);
  }
  return found;
}

const labelOf = (system) => MODEL.rows[system.row].label;
const side = (name) => drill.systems[Number(byId(name).value)];

function documentParts(number) {
  const [id, title, text] = drill.documents[number] || ["?"];
  return [
    make("bdi", {}, make("code", {}, id)), title ? " " : null, title ? make("bdi", { dir: "auto" }, title) : null,
    text ? make("span", { class: "text", dir: "auto" }, text) : null,
  ];
}

function hit(rank, number, grade) {
  const mark = grade >= 1 ? make("span", { class: "grade" }, ` relevant, grade ${grade}`)
    : grade !== undefined ? make("span", { class: "sub" }, ` judged ${grade}`) : null;
  return make("li", { class: grade >= 1 ? "rel" : null }, make("span", { class: "rank" }, rank),
    make("span", { class: "doc" }, ...documentParts(number), mark));
}

function queryBody(query) {
  const [, text, , judged] = drill.queries[query];
  const grades = new Map(judged);
  const sides = [side("side-a"), side("side-b")];
  const lists = sides.map((system) => listOf(system, query));
  const rankIn = (list, number) => (list.includes(number) ? `rank ${list.indexOf(number) + 1}` : `not in the first ${drill.depth}`);
  const body = make("div", { class: "q-body" });
  if (text.length > 90) body.append(make("p", { dir: "auto" }, text));
  const relevant = judged.filter(([, grade]) => grade >= 1);
  if (relevant.length) {
    body.append(make("h4", {}, `Relevant documents (${relevant.length})`));
    body.append(make("ul", { class: "hits" }, ...relevant.map(([number, grade]) => {
      const item = hit("", number, grade);
      const where = drill.systems.length > 1 ? ` · A ${rankIn(lists[0], number)}, B ${rankIn(lists[1], number)}` : ` · ${rankIn(lists[0], number)}`;
      if (sides[0].tops) item.lastChild.append(make("span", { class: "sub" }, where));
      return item;
    })));
  }
  body.append(make("div", { class: "pair" }, ...sides.map((system, i) => make("div", {},
    make("h4", {}, `${"AB"[i]}: `, make("bdi", {}, labelOf(system))),
    lists[i].length
      ? make("ol", { class: "hits" }, ...lists[i].map((number, place) => hit(String(place + 1), number, grades.get(number))))
      : make("p", { class: "note" }, system.tops ? "Found nothing." : "Its list was not kept.")))));
  return body;
}

// A bar to the right where A is ahead, to the left where B is.
function differenceBar(gap) {
  const size = `${Math.min(50, Math.abs(gap) * 50)}%`;
  const svg = make("svg", { class: "q-diff", height: 12, "aria-hidden": "true" });
  if (gap) svg.append(make("rect", { class: gap > 0 ? "up" : "down", x: gap > 0 ? "50%" : `${50 - parseFloat(size)}%`, width: size, y: 2, height: 8 }));
  svg.append(make("line", { class: "zero", x1: "50%", x2: "50%", y1: 0, y2: 12 }));
  return svg;
}

function queryItem([query, a, b]) {
  const [id, text, tags] = drill.queries[query];
  const show = (value) => (value === null ? "–" : value.toFixed(3));
  const gap = a !== null && b !== null ? a - b : 0;
  const item = make("details", { "data-query": id }, make("summary", {},
    make("span", { class: "q-text" }, make("bdi", { dir: "auto" }, text || id), make("small", {}, make("bdi", {}, [text ? id : "", tags].filter(Boolean).join(" · ")))),
    differenceBar(gap),
    make("span", { class: "q-vals" }, `A ${show(a)} · B ${show(b)} (${signed(gap)})`)));
  item.addEventListener("toggle", () => {
    if (item.open && !item.querySelector(".q-body")) item.append(queryBody(query));
  });
  return item;
}

let ordered = [];
const ORDERS = {
  ab: ([, a, b]) => b - a, ba: ([, a, b]) => a - b, apart: ([, a, b]) => -Math.abs(a - b), low: ([, a]) => a, id: () => 0,
};

function listQueries() {
  const [first, second] = [side("side-a"), side("side-b")];
  const words = byId("find-query").value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = drill.queries.map((_, query) => [query, valueOf(first, query), valueOf(second, query)]);
  const key = ORDERS[byId("order").value];
  ordered = all
    .filter(([query]) => words.every((word) => drill.queries[query].slice(0, 3).join(" ").toLowerCase().includes(word)))
    .sort((x, y) => key(x) - key(y) || x[0] - y[0]);
  const counts = { a: 0, b: 0, same: 0 };
  for (const [, a, b] of ordered) counts[a > b ? "a" : b > a ? "b" : "same"]++;
  byId("pair-said").textContent = `${MODEL.metrics[metric].title}, ${ordered.length} queries: A is ahead on ${counts.a}, B on ${counts.b}, even on ${counts.same}.`;
  byId("query-list").replaceChildren();
  showMore();
}

function showMore() {
  const list = byId("query-list");
  list.append(...ordered.slice(list.children.length, list.children.length + STEP).map(queryItem));
  const left = ordered.length - list.children.length;
  byId("more").hidden = left <= 0;
  byId("more").textContent = `Show ${Math.min(left, STEP)} more of ${left}`;
}

if (drill.systems) {
  drill.systems.forEach((system, place) => {
    for (const name of ["side-a", "side-b"]) byId(name).append(make("option", { value: place }, labelOf(system)));
  });
  const placeOf = (row) => drill.systems.findIndex((system) => system.row === row);
  byId("side-a").value = Math.max(0, placeOf(MODEL.winner));
  byId("side-b").value = placeOf(MODEL.runner_up) >= 0 ? placeOf(MODEL.runner_up) : Math.min(1, drill.systems.length - 1);
  for (const name of ["side-a", "side-b", "order"]) byId(name).addEventListener("change", listQueries);
  byId("find-query").addEventListener("input", listQueries);
  byId("pair").addEventListener("submit", (event) => event.preventDefault());
  byId("swap").addEventListener("click", () => {
    [byId("side-a").value, byId("side-b").value] = [byId("side-b").value, byId("side-a").value];
    listQueries();
  });
  byId("more").addEventListener("click", showMore);
  document.addEventListener("metric", listQueries);
  byId("query-notes").append(...drill.notes.map((note) => make("p", { class: "note" }, note)));
  listQueries();
}
