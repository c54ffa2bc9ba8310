// The network of a line with its groups in colours; a large one as edges by groups.

const groupLook = (k) => ({ colour: `var(--s${k % COLOURS})`, marker: MARKERS[k % MARKERS.length] });

function networks(block, data) {
  const lines = block.lines.filter((line) => line.network !== null);
  if (!lines.length) return null;
  const of = (chosen) => lines.find(({ label }) => label === chosen.line);
  const net = (chosen) => data.networks[of(chosen).network];
  const groups = (line) => new Set(line.z).size;
  const best = lines.filter((line) => line.groups).reduce((a, b) => (a && a.accuracy >= b.accuracy ? a : b), null) || lines[0];
  return {
    key: "network",
    title: "The network and its groups",
    about: "Nodes and links of the network; nodes of a group have one colour and shape, servers are stars",
    wide: true,
    least: 620,
    options: [{ key: "line", label: "Groups of", choices: lines.map(({ label }) => [label, label]), value: best.label }],
    legend: (chosen) => {
      if (net(chosen).problem || net(chosen).large || groups(of(chosen)) > 24) return [];
      return [...new Set(of(chosen).z)].sort((a, b) => a - b).map((k) => ({ label: `group ${k}`, ...groupLook(k) }));
    },
    draw: (root, width, chosen) => {
      const [line, found] = [of(chosen), net(chosen)];
      if (found.problem) return drawSaid(root, width, found.problem);
      return found.large ? drawEdges(root, width, line) : drawNetwork(root, width, line, found);
    },
    caption: (chosen) => networkCaption(of(chosen), net(chosen)),
    csv: (chosen) => networkRows(of(chosen), net(chosen)),
  };
}

function drawSaid(root, width, text) {
  const words = text.split(" ");
  const lines = [""];
  for (const word of words) {
    if (measure(`${lines.at(-1)} ${word}`, 13) > width - 40) lines.push("");
    lines[lines.length - 1] += ` ${word}`;
  }
  lines.forEach((line, at) => svg(root, "text", { x: 10, y: 30 + 20 * at, class: "name" }, line.trim()));
  return 40 + 20 * lines.length;
}

function networkCaption(line, net) {
  if (net.problem) return "Groups and classes below are from the run itself.";
  const said = [`${net.kind}, seed ${net.seed}: ${number(net.nodes)} nodes, ${number(net.switches)} switches, ${number(net.n_links)} links, rebuilt from the run's settings.`];
  if (net.file) said.push(`The file ${net.file} is read as it is now.`);
  if (net.large) said.push("Too many nodes to draw one by one: each cell counts the nodes of a network edge that are in a group.");
  else said.push("Stars are the groups' servers; one of several groups is not filled. Point at a node, or walk with the arrow keys, to see its group.");
  if (net.links_left_out) said.push(`${number(net.links_left_out)} links between switches are not drawn.`);
  return said.join(" ");
}

function networkRows(line, net) {
  if (!net.at) {
    const edges = line.groups && line.groups.edges;
    if (!edges) return [["what"], [net.problem || "no groups"]];
    return [["edge", ...line.groups.rows.map((k) => `group ${k}`)], ...edges.names.map((name, at) => [name, ...edges.nodes[at]])];
  }
  return [["node", "group", "server", "examples", "classes"], ...line.z.map((k, i) => [net.names[i], k, line.servers.includes(i) ? 1 : 0, net.examples[i], held(net.held[i])])];
}

const held = (pairs) => pairs.map((pair) => (pair.length === 2 ? `${pair[0]} (${number(pair[1])})` : `and ${pair[0]} more`)).join(", ");

function drawEdges(root, width, line) {
  const edges = line.groups && line.groups.edges;
  if (!edges) return drawSaid(root, width, "All nodes are in one group.");
  const left = Math.min(160, Math.max(...edges.names.map((name) => measure(name, 11))) + 10);
  const [w, h] = [Math.min(60, (width - left - 10) / line.groups.rows.length), 16];
  const most = Math.max(...edges.nodes.flat(), 1);
  const parts = [];
  edges.names.forEach((name, r) => {
    svg(root, "text", { x: left - 6, y: 24 + r * h + 12, class: "tick small end" }, shorten(name, left - 8, 11));
    line.groups.rows.forEach((group, c) => {
      const part = { x: left + c * w, y: 24 + r * h, width: w, height: h, name, group, nodes: edges.nodes[r][c] };
      svg(root, "rect", { x: part.x, y: part.y, width: w, height: h, class: "cell", style: `fill:var(--s7);fill-opacity:${(0.04 + (0.96 * part.nodes) / most).toFixed(3)}` });
      parts.push(part);
    });
  });
  const every = Math.ceil(24 / w);
  line.groups.rows.forEach((group, c) => c % every || svg(root, "text", { x: left + (c + 0.5) * w, y: 16, class: "tick small mid" }, group));
  exploreRects(root, parts, h, (p) => [`${p.name}, group ${p.group}`, [[null, "nodes", number(p.nodes)]]]);
  return 34 + h * edges.names.length;
}

// With `paint`, nodes have its fill(i) instead of their group's look, and its rows(i) besides.
function drawNetwork(root, width, line, net, paint = null) {
  const pad = 18;
  const height = net.square ? Math.min(width, 620) : net.nodes > 200 ? 400 : 300;
  const side = net.square ? height : width;
  const shift = (width - side) / 2;
  const place = net.at.map(([x, y]) => [shift + pad + x * (side - 2 * pad), pad + y * (height - 2 * pad)]);
  const n = net.nodes;
  for (const [tier, links] of Object.entries(net.links)) {
    const d = links.map(([a, b]) => `M${place[a].map((v) => v.toFixed(1))}L${place[b].map((v) => v.toFixed(1))}`).join("");
    if (d) svg(root, "path", { d, class: `link ${tier === "access" || links.length < 100 ? "clear" : ""}` });
  }
  const r = Math.max(2.6, Math.min(6, 240 / n + 1.6));
  for (let v = n; v < place.length; v += 1)
    svg(root, "rect", { x: place[v][0] - 2.5, y: place[v][1] - 2.5, width: 5, height: 5, class: "switch" });
  const nodes = line.z.map((k, i) => {
    const { colour, marker } = paint ? { colour: paint.fill(i), marker: "circle" } : groupLook(k);
    return svg(root, "path", { d: markerPath(marker, ...place[i], paint ? 1.3 * r : r), class: "node", style: `fill:${colour}` });
  });
  const serves = new Map();
  if (!paint) line.servers.forEach((v, k) => serves.set(v, [...(serves.get(v) || []), k]));
  for (const [v, own] of serves)
    svg(root, "path", { d: markerPath("star", ...place[v], serves.size > 12 ? 7.5 : Math.max(9, 2 * r)), class: "server", style: `fill:${own.length > 1 ? "var(--card)" : groupLook(own[0]).colour}` });
  const marks = svg(root, "g", { "data-hover": true });
  const walk = walker(place.map((_, v) => v).filter((v) => v < n || serves.has(v)));
  const clear = () => {
    marks.replaceChildren();
    nodes.forEach((node) => node.classList.remove("dim"));
  };
  explore(root, {
    find: (px, py) => {
      let [best, near] = [null, 14];
      place.forEach(([x, y], v) => {
        const far = Math.hypot(x - px, y - py) - (serves.has(v) ? 2 : 0);
        if (far < near) [best, near] = [v, far];
      });
      return best === null ? null : { v: walk.set(best) };
    },
    step: (by) => {
      const v = walk.step(by);
      return v === null ? null : { v };
    },
    clear,
    mark: ({ v }) => {
      clear();
      svg(marks, "circle", { cx: place[v][0], cy: place[v][1], r: Math.max(8, 2 * r), class: "ring", style: "stroke:var(--ink)" });
      const own = serves.get(v);
      const k = v < n ? line.z[v] : own ? own[0] : null;
      if (k !== null) nodes.forEach((node, i) => node.classList.toggle("dim", line.z[i] !== k));
      const rows = v < n ? [
        ...(paint ? paint.rows(v) : []),
        [groupLook(k).colour, "group", String(k)],
        [null, "examples", number(net.examples[v])],
        [null, "classes", held(net.held[v]) || "none"],
      ] : [[null, "switch", ""]];
      if (!paint) rows.push([null, "server", own ? `of group ${own.join(", ")}` : "no"]);
      return [...place[v], net.names[v], rows];
    },
  });
  return height;
}
