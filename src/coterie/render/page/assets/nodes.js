// How nodes fare: the spread of their accuracies by line, and where they are in the network.

const percent = (value) => `${number(100 * value)}%`;
const scored = (block) => block.lines.filter((line) => line.nodes && !line.nodes.problem);

function nodeSpread(block) {
  const lines = scored(block);
  if (!lines.length) return null;
  return {
    key: "node-spread",
    title: "Accuracy over nodes",
    about: "How many nodes of every line have which test accuracy by their own model; a ring is the mean, a triangle the worst tenth",
    wide: true,
    draw: (root, width, chosen, figure) => drawSpread(root, width, lines.filter(({ label }) => !figure.memory.hidden.has(label))),
    caption: () => {
      const several = lines.some(({ nodes }) => nodes.seeds > 1) ? " of all seeds" : "";
      return `Nodes${several} by the test accuracy of their own model when last scored: bars are shares of the nodes, rings means, triangles the mean of the worst tenth.`;
    },
    csv: () => [["line", "from", "to", "nodes", "share"], ...lines.flatMap(({ label, nodes }) =>
      nodes.counts.map((count, at) => [label, at / nodes.counts.length, (at + 1) / nodes.counts.length, count, count / nodes.of]))],
  };
}

function drawSpread(root, width, lines) {
  const high = 52;
  const left = Math.min(0.42 * width, Math.max(...lines.map(({ label }) => measure(label, 12)), 20) + 10);
  const box = { left, right: width - 14, top: 6, bottom: 8 + high * lines.length };
  const x = scale(0, 100, box.left, box.right, false, (box.right - box.left) / 80);
  const grid = svg(root, "g", { class: "grid" });
  for (const tick of niceTicks(0, 100, (box.right - box.left) / 70)) {
    svg(grid, "path", { d: `M${x(tick)},${box.top}V${box.bottom}` });
    svg(root, "text", { x: x(tick), y: box.bottom + 16, class: "tick mid" }, number(tick));
  }
  svg(root, "text", { x: (box.left + box.right) / 2, y: box.bottom + 34, class: "name mid" }, "test accuracy of a node's own model (%)");
  const parts = [];
  lines.forEach((line, nth) => {
    const { nodes } = line;
    const [{ colour }, base] = [look(line.style), box.top + high * (nth + 1) - 8];
    const most = Math.max(...nodes.counts);
    const text = svg(root, "text", { x: left - 8, y: base - 12, class: "tick end" }, shorten(line.label, left - 10));
    svg(text, "title", {}, line.label);
    nodes.counts.forEach((count, at) => {
      const [from, to] = [at, at + 1].map((v) => (100 * v) / nodes.counts.length);
      const tall = ((high - 16) * count) / most;
      const part = { x: x(from) + 0.5, y: base - tall, width: x(to) - x(from) - 1, height: tall, line, from, to, count };
      if (!count) return;
      svg(root, "rect", { x: part.x, y: part.y, width: part.width, height: tall, class: "part", "data-series": line.label, style: `fill:${colour}` });
      parts.push(part);
    });
    svg(root, "path", { d: `M${box.left},${base}H${box.right}`, class: "axis" });
    svg(root, "circle", { cx: x(100 * nodes.mean), cy: base, r: 4.5, class: "ring", style: "stroke:var(--ink)" });
    svg(root, "path", { d: markerPath("triangle", x(100 * nodes.worst), base, 4.2), style: "fill:var(--ink)" });
  });
  exploreRects(root, parts, 0, ({ line, from, to, count }) => [`${line.label}: ${number(from)} to ${number(to)}%`, [
    [line.style, "nodes", `${number(count)} of ${number(line.nodes.of)}`],
    [null, "mean ± SD over nodes", `${percent(line.nodes.mean)} ± ${number(100 * line.nodes.sd)}`],
    [null, "worst tenth", percent(line.nodes.worst)],
  ]]);
  return box.bottom + 42;
}

function nodeMap(block, data) {
  const lines = scored(block).filter((line) => line.network !== null || line.nodes.edges.names.length);
  if (!lines.length) return null;
  const of = (chosen) => lines.find(({ label }) => label === chosen.line);
  const net = (line) => (line.network === null ? null : data.networks[line.network]);
  const drawn = (line) => line.nodes.own && net(line) && net(line).at;
  return {
    key: "node-map",
    title: "Where nodes fare how",
    about: "Nodes of the network, coloured by the test accuracy of their own model",
    wide: true,
    least: 620,
    options: [{ key: "line", label: "Nodes of", choices: lines.map(({ label }) => [label, label]) }],
    draw: (root, width, chosen) => {
      const line = of(chosen);
      const values = drawn(line) ? line.nodes.own.filter((v) => v !== null) : line.nodes.edges.mean;
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const colours = ["--heat-low", "--heat-middle", "--heat-high"].map(rgb);
      const paint = (value) => (value === null ? "var(--card)" : mixed(high > low ? (2 * (value - low)) / (high - low) : 1, colours));
      const top = drawn(line) ? drawNodeMap(root, width, line, net(line), paint) : drawEdgeMap(root, width, line.nodes.edges, paint);
      for (let k = 0; k <= 20; k += 1) svg(root, "rect", { x: k * 7, y: top + 6, width: 7.2, height: 10, style: `fill:${mixed(k / 10, colours)}` });
      [[percent(low), 0, "tick small"], [percent(high), 147, "tick small end"]].forEach(([text, x, kind]) => svg(root, "text", { x, y: top + 29, class: kind }, text));
      return top + 36;
    },
    caption: (chosen) => {
      const { seed, t, edges } = of(chosen).nodes;
      const few = edges.of > edges.names.length && !drawn(of(chosen)) ? ` The ${edges.names.length} largest of ${number(edges.of)} edges.` : "";
      return `Seed ${seed}, after step ${number(t)}.${drawn(of(chosen)) ? " Nodes without test examples are not filled." : " Means over the nodes of each network edge."}${few}`;
    },
    csv: (chosen) => nodeRows(of(chosen), net(of(chosen))),
  };
}

function nodeRows(line, net) {
  const { own, edges } = line.nodes;
  if (own) return [["node", "accuracy"], ...own.map((value, i) => [net && net.names ? net.names[i] : i, value])];
  return [["edge", "nodes", "mean", "least"], ...edges.names.map((name, at) => [name, edges.nodes[at], edges.mean[at], edges.least[at]])];
}

function drawNodeMap(root, width, line, net, paint) {
  const { own } = line.nodes;
  return drawNetwork(root, width, line, net, {
    fill: (i) => paint(own[i]),
    rows: (i) => [[null, "accuracy", own[i] === null ? "no test examples" : percent(own[i])]],
  });
}

function drawEdgeMap(root, width, edges, paint) {
  const left = Math.min(160, Math.max(...edges.names.map((name) => measure(name, 11))) + 10);
  const [w, h] = [Math.min(220, width - left - 60), 16];
  const parts = edges.names.map((name, r) => {
    const part = { x: left, y: 6 + r * h, width: w, height: h, at: r };
    svg(root, "text", { x: left - 6, y: part.y + 12, class: "tick small end" }, shorten(name, left - 8, 11));
    svg(root, "rect", { x: part.x, y: part.y, width: w, height: h, class: "cell", style: `fill:${paint(edges.mean[r])}` });
    svg(root, "text", { x: left + w + 6, y: part.y + 12, class: "tick small" }, percent(edges.mean[r]));
    return part;
  });
  exploreRects(root, parts, h, ({ at }) => [edges.names[at], [
    [null, "nodes", number(edges.nodes[at])], [null, "mean accuracy", percent(edges.mean[at])], [null, "least", percent(edges.least[at])],
  ]]);
  return 10 + h * edges.names.length;
}
