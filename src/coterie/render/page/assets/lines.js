// Curves with bands over seeds, the target, and when it was reached; and points with their front.

let frames = 0; // numbers for ids
const SCALES = [["linear", "linear"], ["log", "log"]];

// Points of a line in some quantity over some axis: {x, y, low, high}.
function pointsOf(line, x, y, band, logX, logY) {
  const xs = line.curve.x[x];
  const ys = line.curve.y[y];
  if (!xs || !ys) return [];
  const points = [];
  for (let at = 0; at < xs.length; at += 1) {
    const mean = ys.mean[at];
    if (mean === null || (logX && xs[at] <= 0) || (logY && mean <= 0)) continue;
    let [low, high] = [mean, mean];
    if (ys.low && band === "range") [low, high] = [ys.low[at], ys.high[at]];
    if (ys.low && band === "sd") [low, high] = [mean - ys.sd[at], mean + ys.sd[at]];
    points.push({ x: xs[at], y: mean, low: logY ? Math.max(low, mean / 100) : low, high, at });
  }
  return points;
}

function curves(block, data, key, title, about) {
  const quantities = data.quantities.filter(
    (q) => q.figure === key && block.lines.some((line) => line.curve.y[q.key]),
  );
  if (!quantities.length) return null;
  const axesOf = data.axes.filter((axis) => block.lines.some((line) => line.curve.x[axis.key]));
  const several = block.lines.some((line) => line.seeds.length > 1);
  const of = (list, wanted) => list.find((each) => each.key === wanted);
  const bands = [["range", "least to most"], ["sd", "± SD"], ["none", "no band"]];
  const logY = key === "divergence" ? "log" : "linear";
  return {
    key,
    title,
    about,
    wide: true,
    options: [
      { key: "y", label: "What to show", choices: quantities.map((q) => [q.key, q.label]) },
      { key: "x", label: "Along", choices: axesOf.map((axis) => [axis.key, axis.label]) },
      { key: "logx", label: "Scale of x", choices: SCALES.map(([v, text]) => [v, `${text} x`]) },
      { key: "logy", label: "Scale of y", choices: SCALES.map(([v, text]) => [v, `${text} y`]), value: logY },
      ...(several ? [{ key: "band", label: "Band over seeds", choices: bands }] : []),
    ],
    legend: () => block.lines.map(({ label, style }) => ({ label, style, toggles: true })),
    draw: (root, width, chosen, figure) => drawCurves(root, width, chosen, figure, block, of(axesOf, chosen.x), of(quantities, chosen.y)),
    caption: (chosen) => curveCaption(block, chosen, several, of(axesOf, chosen.x)),
    csv: (chosen) => curveRows(block, chosen),
  };
}

function curveCaption(block, chosen, several, axis) {
  const said = [];
  if (several) {
    const band = { range: "the band is from the least to the most of the seeds", sd: "the band is ± one standard deviation over seeds", none: "no band" }[chosen.band];
    said.push(`Mean over seeds at the same step, of both axes; ${band}.`);
  }
  if (chosen.y === "test_accuracy" && block.target) {
    const reached = block.lines.filter((line) => line.hit);
    const never = block.lines.filter((line) => !line.hit).map((line) => line.label);
    const list = reached.map(({ label, hit }) => `${label} ${amount(hit[axis.key], axis.unit)}${hit.reached < hit.of ? ` (${hit.reached} of ${hit.of} seeds)` : ""}`);
    said.push(`Target ${number(block.target.mean)}% first measured (rings), in ${axis.label}: ${list.join(", ") || "by none"}.`);
    if (never.length) said.push(`Not reached: ${never.join(", ")}.`);
  }
  if (chosen.logy === "log") {
    const flat = block.lines.filter(({ curve }) => curve.y[chosen.y] && !curve.y[chosen.y].mean.some((v) => v > 0));
    if (flat.length) said.push(`At 0 throughout, which a log scale cannot show: ${flat.map((line) => line.label).join(", ")}.`);
  }
  return said.join(" ");
}

function curveRows(block, chosen) {
  const rows = [["line", "seeds", "seconds", "wall_s", "epoch", "t", `${chosen.y}_mean`, `${chosen.y}_low`, `${chosen.y}_high`, `${chosen.y}_sd`]];
  for (const line of block.lines) {
    const { x, y } = line.curve;
    if (!y[chosen.y]) continue;
    const column = (of, at) => (of ? of[at] : null);
    y[chosen.y].mean.forEach((mean, at) => rows.push([
      line.label, line.seeds.length, ...["seconds", "wall_s", "epoch", "t"].map((key) => column(x[key], at)),
      mean, ...["low", "high", "sd"].map((key) => column(y[chosen.y][key], at)),
    ]));
  }
  return rows;
}

function drawCurves(root, width, chosen, figure, block, axis, quantity) {
  const height = Math.round(Math.max(280, Math.min(430, 0.46 * width)));
  const [logX, logY] = [chosen.logx === "log", chosen.logy === "log"];
  const series = block.lines
    .filter((line) => !figure.memory.hidden.has(line.label))
    .map((line) => ({ line, points: pointsOf(line, axis.key, quantity.key, chosen.band, logX, logY) }))
    .filter(({ points }) => points.length);
  if (!series.length) {
    svg(root, "text", { x: width / 2, y: height / 2, class: "name mid" }, "nothing to show with these choices");
    return height;
  }
  const target = quantity.key === "test_accuracy" ? block.target : null;
  const all = series.flatMap(({ points }) => points);
  const [lowX, highX] = extent(all.map((p) => p.x));
  const [lowY, highY] = extent([...all.flatMap((p) => [p.low, p.high]), ...(target && (!logY || target.mean > 0) ? [target.mean] : [])]);
  const room = (highY - lowY) * 0.04;
  const { zoomed } = chosen;
  const [fromY, toY] = zoomed ? zoomed.y : logY ? [lowY / 1.1, highY * 1.1] : [lowY >= 0 ? Math.max(0, lowY - room) : lowY - room, highY + room];
  const rough = niceTicks(fromY, toY, height / 55);
  const box = { left: Math.max(tickRoom(rough), logY ? 52 : 0), right: width - 14, top: 30, bottom: height - 46 };
  const y = scale(fromY, toY, box.bottom, box.top, logY, height / 55);
  const [fromX, toX] = zoomed ? zoomed.x : [logX ? lowX : Math.min(0, lowX), highX];
  const x = scale(fromX, toX, box.left, box.right - 4, logX, width / 90);
  axes(root, box, x, y, named(axis), named(quantity));
  const frame = `frame-${(frames += 1)}`;
  svg(svg(root, "clipPath", { id: frame }), "rect", { x: box.left - 8, y: box.top - 8, width: box.right - box.left + 16, height: box.bottom - box.top + 8 });
  const inner = svg(root, "g", { "clip-path": `url(#${frame})` });
  if (target) drawTarget(inner, box, y, target);
  for (const { line, points } of series) drawLine(inner, line, points, x, y);
  if (target) for (const { line } of series) drawHit(inner, box, line, axis.key, x, y, target.mean);
  const inX = (p) => p.x >= fromX - 1e-12 && p.x <= toX + 1e-12;
  const near = series.map(({ line, points }) => ({ line, points: points.filter(inX) })).filter(({ points }) => points.length);
  if (near.length) exploreCurves(root, box, near, x, y, axis, quantity);
  zoomable(root, box, x, y, figure);
  return height;
}

function drawTarget(root, box, y, target) {
  const inside = (v) => Math.max(box.top, Math.min(box.bottom, y(v)));
  if (target.high > target.low)
    svg(root, "rect", { x: box.left, width: box.right - box.left, y: inside(target.high), height: inside(target.low) - inside(target.high), class: "targetband" });
  svg(root, "path", { d: `M${box.left},${y(target.mean)}H${box.right}`, class: "target" });
  svg(root, "text", { x: box.right - 4, y: y(target.mean) - 6, class: "tick end halo" }, `target ${number(target.mean)}%`);
}

function drawLine(root, line, points, x, y) {
  const { colour, dash, marker } = look(line.style);
  const group = svg(root, "g", { "data-series": line.label });
  const put1 = (p, v) => `${x(p.x).toFixed(1)},${y(v).toFixed(1)}`;
  if (points.some((p) => p.low !== p.high)) {
    const band = [...points.map((p) => put1(p, p.high)), ...points.slice().reverse().map((p) => put1(p, p.low))];
    svg(group, "path", { d: `M${band.join("L")}Z`, class: "band", style: `fill:${colour}` });
  }
  svg(group, "path", { d: `M${points.map((p) => put1(p, p.y)).join("L")}`, class: "line", style: `stroke:${colour}`, "stroke-dasharray": dash });
  let last = -Infinity;
  points.forEach((p, at) => {
    const far = x(p.x) - last > 90 + 5 * (line.style % 8);
    if (!far && at !== points.length - 1) return;
    last = x(p.x);
    svg(group, "path", { d: markerPath(marker, x(p.x), y(p.y), 3.6), style: `fill:${colour}` });
  });
}

function drawHit(root, box, line, axis, x, y, target) {
  const at = line.hit && line.hit[axis];
  if (!at || x(at) < box.left - 1 || x(at) > box.right + 1) return;
  const { colour } = look(line.style);
  svg(root, "path", { d: `M${x(at)},${y(target)}V${box.bottom}`, class: "drop", style: `stroke:${colour}` });
  svg(root, "circle", { cx: x(at), cy: y(target), r: 6, class: "ring", style: `stroke:${colour}`, "data-hit": line.label });
}

function exploreCurves(root, box, series, x, y, axis, quantity) {
  const marks = svg(root, "g", { "data-hover": true });
  const all = [...new Set(series.flatMap(({ points }) => points.map((p) => p.x)))].sort((a, b) => a - b);
  const walk = walker(all);
  const nearest = (list, px, get = (v) => v) => list.reduce((best, v) => (Math.abs(x(get(v)) - px) < Math.abs(x(get(best)) - px) ? v : best));
  explore(root, {
    find: (px, py) => (px < box.left - 8 || py > box.bottom + 8 ? null : walk.set(nearest(all, px))),
    step: (by) => walk.step(by),
    clear: () => marks.replaceChildren(),
    mark: (at) => {
      marks.replaceChildren();
      svg(marks, "path", { d: `M${x(at)},${box.top}V${box.bottom}`, class: "cursor" });
      const near = series
        .map(({ line, points }) => ({ line, p: nearest(points, x(at), (p) => p.x) }))
        .filter(({ p }) => Math.abs(x(p.x) - x(at)) < 40)
        .sort((a, b) => b.p.y - a.p.y);
      for (const { line, p } of near) svg(marks, "circle", { cx: x(p.x), cy: y(p.y), r: 4, class: "ring", style: `stroke:${look(line.style).colour}` });
      const rows = near.slice(0, 14).map(({ line, p }) => [line.style, line.label, number(p.y, 4) + (p.low === p.high ? "" : ` (${number(p.low)} to ${number(p.high)})`)]);
      if (near.length > 14) rows.push([null, `and ${near.length - 14} more`]);
      return [x(at), near.length ? y(near[0].p.y) : box.top, `${axis.label}, near ${amount(at, axis.unit)}: ${quantity.label}`, rows];
    },
  });
}

function front(block) {
  if (!block.pareto.length) return null;
  const small = extent(block.pareto.map((p) => p.x));
  return {
    key: "pareto",
    title: "Groups like the whole, or quick means?",
    about: "Every run's grouping by Delta and the milliseconds of a group mean; the efficient ones are joined",
    options: [{ key: "logx", label: "Scale of x", choices: SCALES.map(([v, text]) => [v, `${text} x`]), value: small[0] > 0 && small[1] > 10 * small[0] ? "log" : "linear" }],
    legend: () => block.lines.filter((line) => block.pareto.some((p) => p.label === line.label)).map(({ label, style }) => ({ label, style, toggles: true })),
    draw: (root, width, chosen, figure) => drawFront(root, width, chosen, block.pareto.filter((p) => !figure.memory.hidden.has(p.label))),
    caption: () => "A point is one run's grouping; lower left is better. The line joins the efficient ones: no other is as good in both and better in one.",
    csv: () => [["line", "run", "seed", "Delta_first", "d_group_ms", "efficient"], ...block.pareto.map((p) => [p.label, p.name, p.seed, p.x, p.y, p.efficient ? 1 : 0])],
  };
}

function drawFront(root, width, chosen, points) {
  const height = Math.round(Math.max(260, Math.min(340, 0.5 * width)));
  const log = chosen.logx === "log";
  const shown = points.filter((p) => !log || p.x > 0);
  if (!shown.length) {
    svg(root, "text", { x: width / 2, y: height / 2, class: "name mid" }, "nothing to show with these choices");
    return height;
  }
  const [xs, ys] = [extent(shown.map((p) => p.x)), extent(shown.map((p) => p.y))];
  const gap = (ys[1] - ys[0]) * 0.12 || ys[1] * 0.2 || 1;
  const [fromY, toY] = [Math.max(0, ys[0] - gap), ys[1] + gap];
  const box = { left: tickRoom(niceTicks(fromY, toY, 6)), right: width - 14, top: 30, bottom: height - 46 };
  const y = scale(fromY, toY, box.bottom, box.top, false, 6);
  const side = (xs[1] - xs[0]) * 0.06;
  const x = log ? scale(xs[0] / 1.25, xs[1] * 1.25, box.left, box.right, true, width / 80) : scale(Math.max(0, xs[0] - side), xs[1] + side, box.left, box.right, false, width / 80);
  axes(root, box, x, y, "Delta when first measured", "ms of a group mean");
  const best = shown.filter((p) => p.efficient).sort((a, b) => a.x - b.x || b.y - a.y);
  const path = best.map((p, at) => (at ? `H${x(p.x)}V${y(p.y)}` : `M${x(p.x)},${y(p.y)}`)).join("");
  if (best.length > 1) svg(root, "path", { d: path, class: "front" });
  for (const p of shown) {
    const { colour, marker } = look(p.style);
    svg(root, "path", { d: markerPath(marker, x(p.x), y(p.y), p.efficient ? 6 : 4.5), class: "dot", style: `fill:${colour}`, "data-efficient": p.efficient ? 1 : 0 });
  }
  const marks = svg(root, "g", { "data-hover": true });
  const walk = walker(shown.slice().sort((a, b) => a.x - b.x));
  explore(root, {
    find: (px, py) => {
      const far = (p) => Math.hypot(x(p.x) - px, y(p.y) - py);
      const near = shown.reduce((a, b) => (far(b) < far(a) ? b : a));
      return far(near) < 40 ? walk.set(near) : null;
    },
    step: (by) => walk.step(by),
    clear: () => marks.replaceChildren(),
    mark: (p) => {
      marks.replaceChildren();
      svg(marks, "circle", { cx: x(p.x), cy: y(p.y), r: 9, class: "ring", style: `stroke:${look(p.style).colour}` });
      return [x(p.x), y(p.y), p.name, [[p.style, p.label, p.efficient ? "efficient" : ""], [null, "seed", String(p.seed)], [null, "Delta", number(p.x)], [null, "group mean", `${number(p.y)} ms`]]];
    },
  });
  return height;
}
