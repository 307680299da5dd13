// The table of systems: sorting by a column's head, filtering, and the choice of the metric.
const systems = byId("systems");
const systemRows = [...systems.tBodies[0].rows];
let metric = MODEL.main;

const cellAt = (row, column) => {
  // A row with a reason has fewer cells; it sorts last by every figure.
  const cell = row.cells[column];
  return cell && !cell.classList.contains("reason") ? cell.dataset.v : "";
};

function sortBy(head, direction) {
  const column = head.cellIndex;
  const isText = head.dataset.kind === "text";
  const sign = direction === "ascending" ? 1 : -1;
  const sorted = [...systemRows].sort((a, b) => {
    const [x, y] = [cellAt(a, column), cellAt(b, column)];
    if (isText) return sign * x.localeCompare(y);
    if (x === "" || y === "") return (x === "") - (y === ""); // what was not measured stays below
    return sign * (Number(x) - Number(y));
  });
  systems.tBodies[0].append(...sorted);
  for (const other of systems.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", direction);
}

for (const head of systems.tHead.rows[0].cells) {
  head.querySelector("button").addEventListener("click", () => {
    const now = head.getAttribute("aria-sort");
    const first = head.dataset.kind === "text" ? "ascending" : "descending";
    const second = first === "ascending" ? "descending" : "ascending";
    sortBy(head, now === first ? second : first);
  });
}

function filterSystems() {
  const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const [provider, pipeline] = [byId("provider").value, byId("pipeline").value];
  let shown = 0;
  for (const row of systemRows) {
    const text = row.textContent.toLowerCase() + " " + row.dataset.status;
    const fits = words.every((word) => text.includes(word))
      && (!provider || row.dataset.provider === provider)
      && (!pipeline || row.dataset.pipeline === pipeline);
    row.classList.toggle("off", !fits);
    shown += fits;
  }
  byId("count").textContent = shown === systemRows.length ? `${shown} systems` : `${shown} of ${systemRows.length} systems`;
}

function chooseMetric(chosen) {
  metric = chosen;
  for (const cell of systems.querySelectorAll("[data-m]")) cell.hidden = Number(cell.dataset.m) !== metric;
  const head = systems.tHead.querySelector(`[data-m="${metric}"]`);
  if (head) sortBy(head, "descending");
  document.dispatchEvent(new CustomEvent("metric"));
}

byId("filters").addEventListener("input", filterSystems);
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("reset", () => setTimeout(() => { chooseMetric(MODEL.main); filterSystems(); }));
byId("metric").addEventListener("change", () => chooseMetric(Number(byId("metric").value)));
filterSystems();
