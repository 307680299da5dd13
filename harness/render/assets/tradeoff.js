// Quality against p95, on a logarithmic axis: drawn anew for every width and metric.
const plotBox = byId("plot");
const plotSaid = byId("plot-said");
const kindOf = (pipeline) => ({ vector: "vector", bm25: "bm25", hybrid: "hybrid", "hybrid+rerank": "rerank" })[pipeline] || "other";

// A shape for each pipeline, so that colour is not the only sign.
const SHAPES = {
  vector: "M-6,0a6,6 0 1,0 12,0a6,6 0 1,0 -12,0",
  bm25: "M-5.5,-5.5h11v11h-11z",
  hybrid: "M0,-7.5L7.5,0L0,7.5L-7.5,0z",
  rerank: "M0,-7L7,6H-7z",
  other: "M0,7L7,-6H-7z",
};

function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const step of [1, 2, 5]) {
      const value = step * 10 ** power;
      if (value >= low && value <= high) ticks.push(Number(value.toPrecision(1)));
    }
  }
  return ticks.length > 7 ? ticks.filter((t) => /^[0.]*1/.test(String(t))) : ticks;
}

const niceStep = (span) => [0.01, 0.02, 0.05, 0.1, 0.2].find((step) => span / step <= 6) || 0.5;

// A point's words: what is said below the plot, and to those who cannot see it.
function pointWords(row) {
  const bounds = row.bounds[metric];
  const title = MODEL.metrics[metric].title;
  const interval = bounds && bounds[0] !== null ? ` (${bounds[0].toFixed(3)}–${bounds[1].toFixed(3)})` : "";
  const place = row.front[metric] ? "on the line: no other system beats it in both" : "another system beats it in both";
  return [row.label, `${title} ${row.means[metric].toFixed(3)}${interval} · ${row.said} · ${place}`];
}

function drawPlot() {
  const rows = MODEL.rows.filter((row) => row.p95 > 0 && row.means[metric] !== null && row.means[metric] !== undefined);
  plotBox.replaceChildren();
  if (!rows.length) { plotSaid.textContent = "No system has both a value of this metric and a p95."; return; }
  const width = Math.max(300, plotBox.clientWidth);
  const narrow = width < 560;
  const height = narrow ? 400 : 460;
  const edge = { left: 46, right: 14, top: 26, bottom: 62 };
  const xs = rows.map((row) => row.p95);
  const [xLow, xHigh] = [Math.min(...xs) / 1.7, Math.max(...xs) * (narrow ? 2 : 2.4)];
  const ends = rows.flatMap((row) => [row.means[metric], ...(row.bounds[metric] || [])]).filter((v) => v !== null);
  const step = niceStep(Math.max(...ends) - Math.min(...ends) || 0.1);
  const yLow = Math.max(0, Math.floor(Math.min(...ends) / step) * step);
  const yHigh = Math.min(1.02, Math.ceil(Math.max(...ends) / step + 0.2) * step);
  const toX = (v) => edge.left + ((Math.log(v) - Math.log(xLow)) / (Math.log(xHigh) - Math.log(xLow))) * (width - edge.left - edge.right);
  const toY = (v) => height - edge.bottom - ((v - yLow) / (yHigh - yLow)) * (height - edge.top - edge.bottom);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": `${MODEL.metrics[metric].title} against p95 latency; ${rows.length} systems` });
  plotBox.append(svg);

  for (const tick of logTicks(xLow, xHigh)) {
    svg.append(make("line", { class: "grid", x1: toX(tick), x2: toX(tick), y1: edge.top, y2: height - edge.bottom }));
    svg.append(make("text", { x: toX(tick), y: height - edge.bottom + 18, "text-anchor": "middle" }, String(tick)));
  }
  for (let tick = Math.ceil(yLow / step) * step; tick <= yHigh + 1e-9; tick += step) {
    svg.append(make("line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: toY(tick), y2: toY(tick) }));
    svg.append(make("text", { x: edge.left - 8, y: toY(tick) + 4, "text-anchor": "end" }, tick.toFixed(2)));
  }
  svg.append(make("line", { class: "axis", x1: edge.left, x2: width - edge.right, y1: height - edge.bottom, y2: height - edge.bottom }));
  svg.append(make("text", { x: width - edge.right, y: height - edge.bottom + 36, "text-anchor": "end" }, "p95 of a query, ms (logarithmic) · lower is better"));
  svg.append(make("text", { x: 4, y: 12 }, `${MODEL.metrics[metric].title} · higher is better`));
  drawKey(svg, rows, edge.left, height - 8);

  const front = rows.filter((row) => row.front[metric]).sort((a, b) => a.p95 - b.p95);
  const corners = front.map((row, i) => (i ? `H${toX(row.p95)}V${toY(row.means[metric])}` : `M${toX(row.p95)},${toY(row.means[metric])}`));
  if (front.length) svg.append(make("path", { class: "front", d: corners.join("") }));

  const order = [...rows].sort((a, b) => a.front[metric] - b.front[metric]); // the front is drawn on top
  const points = order.map((row) => drawPoint(svg, row, toX, toY));
  const unnamed = placeNames(points.reverse(), narrow ? [12, 22, 36] : [12, 22, 36, 54, 76], { left: edge.left, right: width - 2, top: edge.top - 2, bottom: height - edge.bottom }, front, toX, toY);
  plotSaid.replaceChildren("Point at a system or tap it, or reach it with the tab key, to read its figures." + (unnamed ? ` ${unnamed} of ${rows.length} have no name here, for want of room.` : ""));
}

function drawKey(svg, rows, left, y) {
  let x = left;
  for (const pipeline of [...new Set(rows.map((row) => row.pipeline))]) {
    const g = make("g", { class: `point p-${kindOf(pipeline)}`, transform: `translate(${x + 6},${y - 4})` });
    g.append(make("path", { class: "dot", d: SHAPES[kindOf(pipeline)] }));
    const text = make("text", { x: 12, y: 4 }, pipeline);
    g.append(text);
    svg.append(g);
    x += 12 + text.getComputedTextLength() + 22;
  }
}

function drawPoint(svg, row, toX, toY) {
  const [x, y] = [toX(row.p95), toY(row.means[metric])];
  const words = pointWords(row);
  const g = make("g", {
    class: `point p-${kindOf(row.pipeline)}${row.front[metric] ? "" : " pale"}${row.winner ? " best" : ""}`,
    tabindex: 0, role: "img", "aria-label": words.join(": "),
  });
  const bounds = row.bounds[metric];
  if (bounds && bounds[0] !== null) g.append(make("line", { class: "err", x1: x, x2: x, y1: toY(bounds[0]), y2: toY(bounds[1]) }));
  g.append(make("circle", { class: "ring", cx: x, cy: y, r: 11 }));
  g.append(make("path", { class: "dot", d: SHAPES[kindOf(row.pipeline)], transform: `translate(${x},${y})` }));
  g.append(make("circle", { cx: x, cy: y, r: 14, fill: "transparent" })); // easier to point at
  const say = () => plotSaid.replaceChildren(make("b", {}, make("bdi", {}, words[0])), " — ", words[1]);
  g.addEventListener("mouseenter", say);
  g.addEventListener("focus", say);
  g.addEventListener("click", () => { say(); g.focus(); });
  svg.append(g);
  return { g, row, x, y };
}

// Each name takes the first free place around its point; where there is none, it stays without.
function placeNames(points, distances, frame, front, toX, toY) {
  const taken = points.map(({ x, y }) => [x - 8, y - 8, x + 8, y + 8]);
  for (const { x, row } of points) {
    const bounds = row.bounds[metric];
    if (bounds && bounds[0] !== null) taken.push([x - 1, toY(bounds[1]), x + 1, toY(bounds[0])]);
  }
  front.forEach((row, i) => {
    if (!i) return;
    const [x0, y0] = [toX(front[i - 1].p95), toY(front[i - 1].means[metric])];
    const [x1, y1] = [toX(row.p95), toY(row.means[metric])];
    taken.push([x0, y0 - 1, x1, y0 + 1], [x1 - 1, y1, x1 + 1, y0]);
  });
  const meets = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
  let unnamed = 0;
  points.forEach(({ g, row, x, y }, own) => {
    const text = make("text", { class: "name" }, row.label + (row.baseline ? " (baseline)" : ""));
    g.append(text);
    const [w, h] = [text.getComputedTextLength(), 14];
    for (const far of distances.map((one) => (row.winner ? one + 4 : one))) {
      for (const degrees of [0, 180, 90, 270, 45, 315, 135, 225, 20, 340, 160, 200]) {
        const [dx, dy] = [far * Math.cos(degrees * Math.PI / 180), -far * Math.sin(degrees * Math.PI / 180)];
        const left = dx > 1 ? x + dx : dx < -1 ? x + dx - w : x - w / 2;
        const top = y + dy - h / 2;
        const box = [left - 2, top - 1, left + w + 2, top + h + 1];
        const inside = box[0] >= frame.left && box[2] <= frame.right && box[1] >= frame.top && box[3] <= frame.bottom;
        if (!inside || taken.some((other, i) => i !== own && meets(box, other))) continue;
        taken.push(box);
        text.setAttribute("x", left);
        text.setAttribute("y", top + 11);
        if (far > 26) g.prepend(make("line", { class: "leader", x1: x, y1: y, x2: dx > 1 ? left : dx < -1 ? left + w : x, y2: y + dy + (Math.abs(dx) > 1 ? 0 : dy < 0 ? 6 : -6) }));
        return;
      }
    }
    text.remove();
    unnamed++;
  });
  return unnamed;
}

new ResizeObserver((entries) => {
  const width = Math.round(entries[0].contentRect.width);
  if (width && width !== Number(plotBox.dataset.width)) { plotBox.dataset.width = width; drawPlot(); }
}).observe(plotBox);
document.addEventListener("metric", drawPlot);
