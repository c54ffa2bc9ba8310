// The page of some runs: show(data) draws it, and draws it again from fresh data.

const ALWAYS_OPEN = 8; // more blocks than these begin folded
const COLUMN_HELP = [
  ["best ...", "the value of a setting with which this line does best on the validation part, mean over seeds"],
  ["accuracy", "on the test part, at the end unless the heading says otherwise; mean ± standard deviation over seeds"],
  ["sim s", "simulated seconds of the whole run, computation and transfers"],
  ["s to target", "simulated seconds until the target accuracy was first measured; (3/5) means that three of five seeds did, and the mean is over those"],
  ["speed up", "the baseline's time to target over this one's, FedAvg's unless said otherwise, on seeds where both reached it; ± of the seeds' own ratios"],
  ["d_local, d_group, d_global", "milliseconds of one local step, one group mean, one global mean"],
  ["Delta", "how far the groups' gradients are from the whole's at the end; 0 is a perfect miniature"],
  ["delta", "how far the nodes' gradients are from their group's"],
];

class Page {
  constructor(root) {
    this.root = root;
    this.memories = new Map(); // choices and hidden lines, by the heading of their block
    this.opened = new Map();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    addEventListener("hashchange", () => this.jump());
    addEventListener("beforeprint", () => this.printing(true));
    addEventListener("afterprint", () => this.printing(false));
    addEventListener("keydown", (event) => event.key === "Escape" && tip.hide());
  }

  show(data) {
    const [first, at] = [!this.figures, scrollY];
    seen.disconnect();
    resized.disconnect();
    this.figures = [];
    tip.hide();
    this.root.replaceChildren();
    this.header(data);
    if (this.above) this.root.append(this.above); // what a page of runs under way has on top
    this.leftOut(data);
    this.tables(data);
    if (data.blocks.length > 1) this.contents(data);
    data.blocks.forEach((block, at) => this.block(block, at, data));
    if (data.runs.length) this.settings(data);
    first ? this.jump() : scrollTo(0, at);
  }

  header(data) {
    const head = html(this.root, "header");
    html(head, "h1", {}, `Coterie: ${data.title}`);
    const tools = html(head, "div", { class: "tools" });
    if (data.blocks.length > 1) {
      const label = html(tools, "label", { class: "choose" });
      html(label, "span", {}, "Go to");
      const select = html(label, "select", { id: "goto", onchange: () => this.open(Number(select.value)) });
      data.blocks.forEach((block, at) => html(select, "option", { value: at }, block.heading));
    }
    html(tools, "button", { type: "button", id: "theme", onclick: () => this.theme() }, "Light / dark");
  }

  leftOut(data) {
    if (data.left_out.length) {
      const part = html(this.root, "section", { class: "warning", id: "left-out", "aria-label": "Left out" });
      html(part, "h2", {}, `Left out: ${data.left_out.length} run${data.left_out.length > 1 ? "s" : ""}`);
      const list = html(part, "ul");
      for (const line of data.left_out) {
        const [what, ...way] = line.split(/; (?=(?:to run|go on))/);
        const item = html(list, "li", {}, what);
        if (way.length) html(html(item, "div"), "code", {}, way.join("; "));
      }
    }
    for (const note of data.notes) html(this.root, "p", { class: "warning note" }, note);
  }

  // The first table is open, with its picture if it has one; the others are folded.
  tables(data) {
    for (const [at, each] of data.tables.entries()) {
      const [name, first] = [`table-${at + 1}`, at === 0];
      const part = html(this.root, first ? "section" : "details", { id: name, class: "told", open: this.opened.get(name) ?? false });
      if (!first) part.addEventListener("toggle", () => this.opened.set(name, part.open));
      html(first ? part : html(part, "summary"), "h2", {}, each.title);
      if (each.dots) {
        const memory = this.memories.get(name) || { hidden: new Set() };
        this.memories.set(name, memory);
        const spec = { ...dots(each.dots), file: `${name}-dots` };
        const figure = new Figure(html(part, "div", { class: "figures" }), spec, memory);
        memory.changed = () => figure.refresh();
        this.figures.push(figure);
      }
      judged(part, each);
      if (each.foot) html(part, "p", { class: "quiet" }, each.foot);
    }
  }

  contents(data) {
    const part = html(this.root, "nav", { "aria-label": "Contents" });
    html(part, "h2", {}, `${data.blocks.length} settings`);
    html(part, "p", { class: "quiet" }, "Runs that differ in more than seed and what names their line are never averaged; each setting is a block of its own.");
    const rows = data.blocks.map((block, at) => {
      const best = block.lines.reduce((a, b) => (b.accuracy > a.accuracy ? b : a));
      const most = best.accuracy === null ? "-" : `${best.label}, ${(100 * best.accuracy).toFixed(1)}%`;
      const quick = block.first === null ? null : block.lines[block.first];
      const share = quick && quick.reached < quick.seeds.length ? ` (${quick.reached}/${quick.seeds.length})` : "";
      return [
        { link: `#block-${at + 1}`, text: block.heading, act: () => this.open(at) },
        String(block.lines.length),
        most,
        quick ? `${quick.label}, ${number(quick.target_s)} s${share}` : block.target ? "not reached" : "no target",
      ];
    });
    table(part, ["setting", "lines", "most accurate", "first at the target"], rows, "Settings of this page");
  }

  block(block, at, data) {
    const folded = data.blocks.length > ALWAYS_OPEN && at > 0;
    const open = this.opened.get(block.heading) ?? !folded;
    const part = html(this.root, "details", { class: "block", id: `block-${at + 1}`, open });
    html(html(part, "summary"), "h2", {}, block.heading);
    let built = false;
    const build = () => {
      this.opened.set(block.heading, part.open);
      if (part.open && !built) {
        built = true;
        this.fill(part, block, at, data);
      }
    };
    part.addEventListener("toggle", build);
    build();
  }

  fill(part, block, at, data) {
    table(part, data.columns, block.lines.map((line) => line.cells), `Comparison: ${block.heading}`);
    html(part, "p", { class: "quiet" }, block.footing);
    for (const note of block.notes) html(part, "p", { class: "note" }, note);
    const memory = this.memories.get(block.heading) || { hidden: new Set() };
    this.memories.set(block.heading, memory);
    const own = [];
    memory.changed = () => own.forEach((figure) => figure.refresh());
    const add = (parent, spec) => {
      if (!spec) return;
      spec.file = `${spec.key}-${at + 1}`;
      spec.saved = data.blocks.length > 1 ? `${spec.title} (${block.heading})` : spec.title;
      own.push(new Figure(parent, spec, memory));
    };
    const section = (title) => {
      html(part, "h3", {}, title);
      return html(part, "div", { class: "figures" });
    };
    const learning = section("Accuracy and time");
    add(learning, curves(block, data, "curves", "Learning curves", "Curves of every line, mean and band over seeds, with the target"));
    const who = section("Groups");
    add(who, networks(block, data));
    add(who, heatmaps(block));
    const nodes = [nodeSpread(block), nodeMap(block, data), curves(block, data, "nodes", "Nodes on the way", "Mean, spread and worst tenth of the nodes' accuracies over time")];
    if (nodes.some(Boolean)) {
      const fare = section("Nodes");
      for (const spec of nodes) add(fare, spec);
    }
    const what = section("Costs");
    for (const bars of block.bars) add(what, stacked(block, bars));
    add(what, front(block));
    const apart = curves(block, data, "divergence", "How far groups are from the whole", "Delta and delta of every line over time");
    if (apart) add(section("Divergence"), apart);
    this.figures.push(...own);
  }

  settings(data) {
    const part = html(this.root, "section", { id: "settings" });
    html(part, "h2", {}, "Runs and settings");
    const head = ["run", "line", "accuracy %", ...data.differs, ...(data.origins.length > 1 ? ["made by"] : [])];
    const rows = data.runs.map((run) => [
      run.name, run.label, run.accuracy === null ? "-" : (100 * run.accuracy).toFixed(1), ...run.settings, ...(data.origins.length > 1 ? [`origin ${run.origin + 1}`] : []),
    ]);
    html(part, "p", { class: "quiet" }, "What differs between the runs:");
    table(part, head, rows, "Runs and the settings that differ", "runs");
    const same = html(part, "details", { id: "shared" });
    html(same, "summary", {}, `Settings that all runs share (${Object.keys(data.shared).length})`);
    table(same, ["setting", "value"], Object.entries(data.shared), "Shared settings", "pairs");
    const from = html(part, "details", { id: "origins", open: data.origins.length > 1 });
    html(from, "summary", {}, "Versions and commit");
    const keys = [...new Set(data.origins.flatMap((origin) => Object.keys(origin)))];
    table(from, ["", ...keys], data.origins.map((origin, at) => [`origin ${at + 1}`, ...keys.map((key) => origin[key] ?? "-")]), "Where the runs come from", "pairs");
    const help = html(part, "details", { id: "help" });
    html(help, "summary", {}, "What the columns mean");
    const list = html(help, "dl");
    for (const [word, meaning] of COLUMN_HELP) {
      html(list, "dt", {}, word);
      html(list, "dd", {}, meaning);
    }
    html(this.root, "footer", {}, `Made by ${data.made_by}.`);
  }

  open(at) {
    const part = document.getElementById(`block-${at + 1}`);
    part.open = true;
    part.scrollIntoView();
    part.querySelector("summary").focus({ preventScroll: true });
  }

  jump() {
    const found = /^#block-(\d+)$/.exec(location.hash);
    if (found && document.getElementById(location.hash.slice(1))) this.open(Number(found[1]) - 1);
  }

  theme() {
    const now = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
    this.recolour();
  }

  recolour() {
    this.figures.forEach((figure) => figure.refresh());
  }

  // Paper is narrower than most windows, and white: figures are drawn for it, and afterwards as before.
  printing(begins) {
    const top = document.documentElement;
    if (begins === top.classList.contains("printing")) return;
    if (begins) this.themeBefore = top.dataset.theme;
    top.classList.toggle("printing", begins);
    if (begins) top.dataset.theme = "light";
    else if (this.themeBefore) top.dataset.theme = this.themeBefore;
    else delete top.dataset.theme;
    this.figures.forEach((figure) => figure.draw());
  }
}

function table(parent, head, rows, caption, kind = "") {
  const frame = html(parent, "div", { class: `wide ${kind}`, tabindex: 0, role: "region", "aria-label": caption });
  const element = html(frame, "table");
  const top = html(html(element, "thead"), "tr");
  for (const name of head) html(top, "th", { scope: "col" }, name);
  const body = html(element, "tbody");
  for (const row of rows) {
    const line = html(body, "tr");
    row.forEach((value, at) => {
      const box = html(line, at ? "td" : "th", at ? {} : { scope: "row" });
      if (typeof value === "object") html(box, "a", { href: value.link, onclick: value.act }, value.text);
      else box.textContent = plain(value);
    });
  }
  return element;
}

// A table of what was judged: words to the left, and of several verdicts each below its figure.
function judged(parent, { title, columns, rows }) {
  const verdicts = columns.flatMap((name, at) => (name === "verdict" ? [at] : []));
  const below = verdicts.length > 1 ? verdicts : [];
  const kept = columns.map((_, at) => at).filter((at) => !below.includes(at));
  const figures = /^([^a-z]|not run|never)/i;
  const words = (at) => rows.every((row) => !figures.test(row[at])) && rows.some((row) => row[at]);
  const element = table(parent, kept.map((at) => columns[at]), rows.map((row) => kept.map((at) => row[at])), title);
  [...element.rows].forEach((line, nth) => kept.forEach((at, place) => {
    const box = line.cells[place];
    if (at && (verdicts.includes(at) || words(at))) box.classList.add("words");
    if (!nth) return;
    const row = rows[nth - 1];
    if (verdicts.includes(at)) box.classList.add(...verdictClass(row[at]));
    if (below.includes(at + 1) && row[at + 1] && row[at + 1] !== row[at]) html(box, "div", { class: verdictClass(row[at + 1]).join(" ") }, row[at + 1]);
  }));
}

const verdictClass = (text) => ["verdict", /^(reproduced|at least)/.test(text) ? "good" : /^(differs|never|[\d.]+ of it)/.test(text) ? "off" : "open"];

const page = new Page(document.querySelector("main"));
const embedded = document.getElementById("data");
if (embedded) page.show(JSON.parse(embedded.textContent));
globalThis.coterie = {
  show: (data) => page.show(data),
  draw: () => page.figures.forEach((figure) => figure.arrive()), // also those out of sight
};
