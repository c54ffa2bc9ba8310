// Bars, stacked or apart, and heat maps of classes by group.

const KINDS = [7, 1, 3, 6, 2, 4, 5, 0]; // colours of the parts of a bar, far apart in lightness

function stacked(block, bars) {
  const total = (row) => row.reduce((a, b) => a + b, 0);
  if (bars.apart) return apart(block, bars);
  const used = bars.kinds.map((_, at) => bars.values.some((row) => row[at] > 0));
  if (!used.some(Boolean)) return null;
  const colour = (at) => `var(--s${KINDS[at % KINDS.length]})`;
  return {
    key: bars.key,
    title: bars.title,
    about: `${bars.title}: stacked bars for every line`,
    options: [{ key: "as", label: "Show as", choices: [["amount", "amount"], ["share", "share"]] }],
    legend: () => bars.kinds.map((label, at) => ({ label, colour: colour(at) })).filter((_, at) => used[at]),
    caption: () => (block.lines.some((line) => line.seeds.length > 1) ? "Means over seeds." : ""),
    csv: () => [["line", ...bars.kinds.map((kind) => `${kind} (${bars.unit})`)], ...bars.values.map((row, at) => [block.lines[at].label, ...row])],
    draw: (root, width, chosen, figure) => {
      const rows = block.lines.map((line, at) => ({ line, values: bars.values[at] })).filter(({ line }) => !figure.memory.hidden.has(line.label));
      const share = chosen.as === "share";
      const most = share ? 100 : Math.max(...rows.map(({ values }) => total(values)), 1e-12);
      const left = Math.min(0.42 * width, Math.max(...rows.map(({ line }) => measure(line.label, 12)), 20) + 10);
      const end = share ? 12 : Math.max(...rows.map(({ values }) => measure(amount(total(values), bars.unit), 12)), 20) + 12;
      const box = { left, right: width - end, top: 6, bottom: 8 + 28 * rows.length };
      const x = scale(0, most, box.left, box.right, false, (box.right - box.left) / 80);
      const grid = svg(root, "g", { class: "grid" });
      const [power, unit] = bars.unit === "B" && !share ? [1000 ** Math.floor(Math.log10(most) / 3), amount(most, "B").split(" ")[1]] : [1, bars.unit];
      for (const tick of niceTicks(0, most / power, (box.right - box.left) / 70)) {
        svg(grid, "path", { d: `M${x(tick * power)},${box.top}V${box.bottom}` });
        svg(root, "text", { x: x(tick * power), y: box.bottom + 16, class: "tick mid" }, number(tick));
      }
      svg(root, "text", { x: (box.left + box.right) / 2, y: box.bottom + 34, class: "name mid" }, share ? "% of the whole" : unit);
      const parts = [];
      rows.forEach(({ line, values }, nth) => {
        const top = box.top + 4 + 28 * nth;
        const sum = total(values);
        const text = svg(root, "text", { x: left - 8, y: top + 14, class: "tick end" }, shorten(line.label, left - 10));
        svg(text, "title", {}, line.label);
        let from = 0;
        values.forEach((value, at) => {
          const size = share ? (100 * value) / (sum || 1) : value;
          if (!(size > 0)) return;
          const wide = Math.max(x(from + size) - x(from), 0.5);
          svg(root, "rect", { x: x(from), y: top, width: wide, height: 20, class: "part", style: `fill:${colour(at)}` });
          parts.push({ x: x(from), y: top, width: wide, line, at, value, sum });
          from += size;
        });
        if (!share) svg(root, "text", { x: x(sum) + 6, y: top + 14, class: "tick" }, amount(sum, bars.unit));
      });
      exploreRects(root, parts, 20, ({ line, at, value, sum }) => [line.label, [
        [colour(at), bars.kinds[at], amount(value, bars.unit)], [null, "share", `${number((100 * value) / sum)}%`], [null, "all together", amount(sum, bars.unit)],
      ]]);
      return box.bottom + 42;
    },
  };
}

// Bars below each other for every line, of what has no sum.
function apart(block, bars) {
  const used = bars.kinds.map((_, at) => at).filter((at) => bars.values.some((row) => row[at] > 0));
  if (!used.length) return null;
  const colour = (at) => `var(--s${KINDS[at % KINDS.length]})`;
  return {
    key: bars.key,
    title: bars.title,
    about: `${bars.title}: a bar of each for every line`,
    legend: () => used.map((at) => ({ label: bars.kinds[at], colour: colour(at) })),
    caption: () => (block.lines.some((line) => line.seeds.length > 1) ? "Means over seeds." : ""),
    csv: () => [["line", ...bars.kinds.map((kind) => `${kind} (${bars.unit})`)], ...bars.values.map((row, at) => [block.lines[at].label, ...row])],
    draw: (root, width, chosen, figure) => {
      const rows = block.lines.map((line, at) => ({ line, values: bars.values[at] })).filter(({ line }) => !figure.memory.hidden.has(line.label));
      const every = rows.flatMap(({ values }) => used.map((at) => values[at]));
      const most = Math.max(...every, 1e-12);
      const [thick, high] = [11, 12 * used.length + 8];
      const left = Math.min(0.42 * width, Math.max(...rows.map(({ line }) => measure(line.label, 12)), 20) + 10);
      const end = Math.max(...every.map((value) => measure(amount(value, bars.unit), 11)), 20) + 12;
      const box = { left, right: width - end, top: 6, bottom: 8 + high * rows.length };
      const x = scale(0, most, box.left, box.right, false, (box.right - box.left) / 80);
      const grid = svg(root, "g", { class: "grid" });
      for (const tick of niceTicks(0, most, (box.right - box.left) / 70)) {
        svg(grid, "path", { d: `M${x(tick)},${box.top}V${box.bottom}` });
        svg(root, "text", { x: x(tick), y: box.bottom + 16, class: "tick mid" }, number(tick));
      }
      svg(root, "text", { x: (box.left + box.right) / 2, y: box.bottom + 34, class: "name mid" }, bars.unit);
      const parts = [];
      rows.forEach(({ line, values }, nth) => {
        const top = box.top + 4 + high * nth;
        const text = svg(root, "text", { x: left - 8, y: top + (high - 8) / 2 + 4, class: "tick end" }, shorten(line.label, left - 10));
        svg(text, "title", {}, line.label);
        used.forEach((at, place) => {
          if (!(values[at] > 0)) return;
          const y = top + 12 * place;
          const wide = Math.max(x(values[at]) - x(0), 0.5);
          svg(root, "rect", { x: x(0), y, width: wide, height: thick, class: "part", style: `fill:${colour(at)}` });
          svg(root, "text", { x: x(values[at]) + 6, y: y + 9, class: "tick small" }, amount(values[at], bars.unit));
          parts.push({ x: x(0), y, width: wide, line, at, value: values[at] });
        });
      });
      exploreRects(root, parts, thick, ({ line, at, value }) => [line.label, [[colour(at), bars.kinds[at], amount(value, bars.unit)]]]);
      return box.bottom + 42;
    },
  };
}

function shorten(text, room, size = 12) {
  if (measure(text, size) <= room) return text;
  let kept = text;
  while (kept.length > 1 && measure(`${kept}…`, size) > room) kept = kept.slice(0, -1);
  return `${kept}…`;
}

function exploreRects(root, parts, height, tell) {
  const marks = svg(root, "g", { "data-hover": true });
  const walk = walker(parts);
  const of = (part) => part.height || height;
  explore(root, {
    find: (px, py) => {
      const found = parts.find((p) => px >= p.x && px <= p.x + Math.max(p.width, 2) && py >= p.y && py <= p.y + of(p));
      return found ? walk.set(found) : null;
    },
    step: (by) => walk.step(by),
    clear: () => marks.replaceChildren(),
    mark: (part) => {
      marks.replaceChildren();
      svg(marks, "rect", { x: part.x, y: part.y, width: part.width, height: of(part), class: "outline" });
      return [part.x + part.width / 2, part.y + of(part), ...tell(part)];
    },
  });
}

// Between three colours: 0 is the first, 1 the middle, 2 and more the last.
function mixed(ratio, [low, middle, high]) {
  const [a, b, part] = ratio < 1 ? [low, middle, ratio] : [middle, high, Math.min(ratio, 2) - 1];
  return `rgb(${a.map((v, at) => Math.round(v + (b[at] - v) * part)).join(",")})`;
}
const rgb = (name) => resolved(`var(${name})`).match(/\w\w/g).map((pair) => parseInt(pair, 16));

function heatmaps(block) {
  const lines = block.lines.filter((line) => line.groups);
  if (!lines.length) return null;
  const cells = lines.reduce((sum, { groups }) => sum + groups.rows.length * groups.columns.length, 0);
  const all = lines.length > 1 && lines.length <= 8 && cells <= 8000;
  const choices = [...(all ? [["all", "all lines"]] : []), ...lines.map(({ label }) => [label, label])];
  return {
    key: "classes",
    title: "Who is in the groups",
    about: "Share of each class in every group over its share in the whole, and the sizes of the groups",
    wide: true,
    options: [{ key: "line", label: "Groups of", choices }],
    draw: (root, width, chosen) => drawHeatmaps(root, width, lines.filter(({ label }) => chosen.line === "all" || chosen.line === label)),
    caption: (chosen) => heatCaption(lines.filter(({ label }) => chosen.line === "all" || chosen.line === label)),
    csv: (chosen) => [["line", "seed", "group", "nodes", "class", "examples", "share_over_share_in_whole"],
      ...lines.filter(({ label }) => chosen.line === "all" || chosen.line === label).flatMap(({ label, groups }) => groups.rows.flatMap((group, r) =>
        groups.columns.map((kind, c) => [label, groups.seed, group, sizeOf(groups, r), kind, groups.counts[r][c], groups.ratio[r][c]])))],
  };
}

const sizeOf = (groups, r) => (groups.sizes.length === groups.rows.length ? groups.sizes[r] : groups.sizes[groups.rows[r]]);

function heatCaption(lines) {
  const said = [`Rows are groups, columns classes, of seed ${lines[0].groups.seed}; bars are the numbers of nodes. 1 is like the whole.`];
  for (const { label, groups } of lines) {
    if (groups.of_rows > groups.rows.length) said.push(`${label}: the ${groups.rows.length} largest of ${groups.of_rows} groups.`);
    if (groups.of_columns > groups.columns.length) said.push(`${label}: the ${groups.columns.length} most frequent of ${groups.of_columns} classes.`);
  }
  return said.join(" ");
}

function drawHeatmaps(root, width, lines) {
  const colours = ["--heat-low", "--heat-middle", "--heat-high"].map(rgb);
  const columns = lines.length === 1 ? 1 : Math.max(1, Math.min(lines.length, Math.floor((width + 28) / 250)));
  const wide = Math.min((width - 28 * (columns - 1)) / columns, lines.length === 1 ? 640 : 420);
  const parts = [];
  let top = 0;
  for (let first = 0; first < lines.length; first += columns) {
    let deepest = 0;
    lines.slice(first, first + columns).forEach(({ label, groups }, nth) => {
      const left = nth * (wide + 28);
      const names = groups.rows.map((k) => String(k));
      const [before, after] = [Math.max(...names.map((name) => measure(name, 11))) + 10, 58];
      const [w, h] = [(wide - before - after) / groups.columns.length, groups.rows.length > 20 ? 11 : 16];
      const most = Math.max(...groups.rows.map((_, r) => sizeOf(groups, r)));
      svg(root, "text", { x: left + before, y: top + 14, class: "name strong" }, shorten(label, wide - before));
      groups.rows.forEach((group, r) => {
        const y = top + 24 + r * h;
        svg(root, "text", { x: left + before - 6, y: y + h / 2 + 4, class: "tick small end" }, names[r]);
        groups.columns.forEach((kind, c) => {
          const part = { x: left + before + c * w, y, width: w, height: h, label, group, kind, ratio: groups.ratio[r][c], count: groups.counts[r][c], size: sizeOf(groups, r) };
          svg(root, "rect", { x: part.x, y, width: w, height: h, class: "cell", style: `fill:${mixed(part.ratio, colours)}` });
          parts.push(part);
        });
        const bar = (30 * sizeOf(groups, r)) / most;
        svg(root, "rect", { x: left + wide - after + 4, y: y + 2, width: bar, height: h - 4, class: "size" });
        svg(root, "text", { x: left + wide - after + 8 + bar, y: y + h / 2 + 4, class: "tick small" }, number(sizeOf(groups, r)));
      });
      const bottom = top + 24 + groups.rows.length * h;
      const every = Math.ceil((groups.columns.length * 22) / (wide - before - after));
      groups.columns.forEach((kind, c) => c % every || svg(root, "text", { x: left + before + (c + 0.5) * w, y: bottom + 13, class: "tick small mid" }, kind));
      deepest = Math.max(deepest, bottom + 30 - top);
    });
    top += deepest;
  }
  exploreRects(root, parts, 0, (p) => [`${p.label}: group ${p.group}, class ${p.kind}`, [
    [null, "share over share in the whole", number(p.ratio)], [null, "examples", number(p.count)], [null, "nodes in the group", number(p.size)],
  ]]);
  for (let k = 0; k <= 20; k += 1) svg(root, "rect", { x: k * 7, y: top + 2, width: 7.2, height: 10, style: `fill:${mixed(k / 10, colours)}` });
  [["0: none", 0, "tick small"], ["1", 73.5, "tick small mid"], ["2 or more", 147, "tick small end"]].forEach(([text, x, kind]) => svg(root, "text", { x, y: top + 25, class: kind }, text));
  return top + 32;
}
