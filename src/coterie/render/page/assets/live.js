// The page of runs under way: asks its server for fresh data, shows how far every run is, and
// redraws the report below. Used by `coterie watch` only.

const [EVERY_MS, HIDDEN_MS, PATIENCE_MS] = [2000, 20000, 10000];
const STILL_MS = 1200; // figures are not redrawn under a moving pointer
const MENU_MS = 8000; // nor while a menu may be open
const PROGRESS_HEAD = ["run", "status", "steps", "", "accuracy %", "simulated s", "wall time", "time left"];

function duration(seconds, digits = 0) {
  if (seconds === null || seconds === undefined) return "-";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s < 10 ? Math.max(0, seconds).toFixed(digits) : s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
  return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
}

// How far every run is: rows are kept and changed in place, so that nothing jumps.
class Progress {
  constructor() {
    this.element = html(null, "section", { id: "live", "aria-label": "Progress" });
    this.lost = html(this.element, "p", { id: "lost", class: "warning", role: "status" });
    this.news = html(this.element, "p", { id: "news", class: "quiet" }); // not spoken: it goes on every second
    this.bar = html(this.element, "div", { class: "bar all", role: "progressbar", "aria-label": "All runs", "aria-valuemin": 0, "aria-valuemax": 100 });
    html(this.bar, "i");
    this.frame = html(this.element, "div", { class: "wide runs progress", tabindex: 0, role: "region", "aria-label": "Progress of every run" });
    const grid = html(this.frame, "table");
    const top = html(html(grid, "thead"), "tr");
    for (const name of PROGRESS_HEAD) html(top, "th", { scope: "col" }, name);
    this.body = html(grid, "tbody");
    this.notes = html(this.element, "div", { id: "ways" });
    this.lines = new Map();
  }

  line(name) {
    if (!this.lines.has(name)) {
      const row = html(null, "tr", { "data-run": name });
      const cells = PROGRESS_HEAD.map((_, at) => html(row, at ? "td" : "th", at ? {} : { scope: "row" }));
      cells[0].textContent = plain(name);
      const fill = html(html(cells[3], "div", { class: "bar", "aria-hidden": "true" }), "i");
      this.lines.set(name, { row, cells, fill });
    }
    return this.lines.get(name);
  }

  // `now` is the time in seconds, by the clock of the machine that the runs are on.
  show(data, now) {
    const names = new Set(data.runs.map((run) => run.name));
    for (const [name, { row }] of this.lines)
      if (!names.has(name)) {
        row.remove();
        this.lines.delete(name);
      }
    data.runs.forEach((run, at) => {
      const line = this.line(run.name);
      if (this.body.children[at] !== line.row) this.body.insertBefore(line.row, this.body.children[at] || null);
      this.fill(line, run, now);
    });
    this.frame.hidden = this.bar.hidden = !data.runs.length;
    const parts = data.runs.map((run) => share(run));
    const done = (100 * parts.reduce((a, b) => a + b, 0)) / (parts.length || 1);
    this.bar.setAttribute("aria-valuenow", done.toFixed(0));
    this.bar.firstChild.style.width = `${done}%`;
    this.ways(data, now);
  }

  fill({ row, cells, fill }, run, now) {
    const quiet = silence(run, now);
    const left = run.left_s === null || quiet ? null : Math.max(0, run.left_s - (now - run.news_at));
    row.dataset.status = quiet ? "quiet" : run.status;
    fill.style.width = `${100 * share(run)}%`;
    const said = [
      quiet ? `running; no sign for ${duration(quiet)}` : run.status,
      run.steps === null ? (run.t ? number(run.t, 9) : "-") : `${run.t} of ${run.steps}`,
      null,
      run.accuracy === null ? "-" : (100 * run.accuracy).toFixed(1),
      number(run.seconds, 4),
      duration(run.wall_s, 1),
      left === null ? "-" : duration(left),
    ];
    said.forEach((text, at) => text !== null && write(cells[at + 1], text));
  }

  // What to do about runs that have stopped.
  ways(data, now) {
    const lines = [];
    const add = (found, text) => {
      for (const way of new Set(found.map((run) => run.way).filter(Boolean))) lines.push([text, way]);
    };
    add(data.runs.filter((run) => silence(run, now)), "A run without a sign is in a long step, or its process is gone; then go on with");
    add(data.runs.filter((run) => ["failed", "interrupted"].includes(run.status)), "Runs that stopped can go on with");
    const said = JSON.stringify(lines);
    if (said === this.said) return;
    this.said = said;
    this.notes.replaceChildren();
    for (const [text, way] of lines) {
      const line = html(this.notes, "p", { class: "quiet" }, `${text}: `);
      html(line, "code", {}, way);
    }
  }
}

const write = (element, text) => {
  if (element.textContent !== text) element.textContent = plain(text);
};
const share = (run) => (run.status === "complete" ? 1 : run.steps ? Math.min(1, run.t / run.steps) : 0);
const silence = (run, now) => (run.status === "running" && run.news_at !== null && now - run.news_at > run.quiet_s ? now - run.news_at : 0);

const kindOf = (label) => label.replace(/ \((running|failed|diverged|interrupted)\)$/, "");

function counts({ runs }) {
  const count = (status) => runs.filter((run) => run.status === status).length;
  if (count("complete") === runs.length) return runs.length > 1 ? `All ${runs.length} runs are complete.` : "The run is complete.";
  const said = ["running", "waiting", "failed", "diverged", "interrupted", "damaged"].filter(count);
  return `${count("complete")} of ${runs.length} run${runs.length > 1 ? "s" : ""} complete, ${said.map((status) => `${count(status)} ${status}`).join(", ")}.`;
}

class Watch {
  constructor(report) {
    this.report = report;
    this.progress = new Progress();
    report.above = this.progress.element;
    [this.data, this.drawn, this.tag, this.lost, this.skew] = [null, null, null, false, 0];
    [this.still, this.pressed, this.pointer, this.asked] = [0, false, null, 0];
    const wait = (ms) => (this.still = Math.max(this.still, performance.now() + ms));
    addEventListener("pointermove", (event) => {
      this.pointer = [event.clientX, event.clientY];
      if (event.target.closest && event.target.closest(".plot")) wait(STILL_MS);
    });
    addEventListener("pointerdown", (event) => {
      this.pressed = true;
      if (event.target.closest && event.target.closest("select")) wait(MENU_MS);
    });
    for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => (this.pressed = false));
    addEventListener("keydown", (event) => wait(event.target.tagName === "SELECT" ? MENU_MS : STILL_MS));
    addEventListener("change", () => (this.still = 0));
    document.addEventListener("visibilitychange", () => document.hidden || this.ask());
    setInterval(() => this.tick(), 1000);
    this.ask();
  }

  now() {
    return (Date.now() + this.skew) / 1000;
  }

  async ask() {
    const turn = (this.asked += 1); // of several, the last one goes on
    clearTimeout(this.timer);
    try {
      const headers = this.tag ? { "If-None-Match": this.tag } : {};
      const answer = await fetch("/data.json", { cache: "no-store", headers, signal: AbortSignal.timeout(PATIENCE_MS) });
      if (!answer.ok && answer.status !== 304) throw new Error(`answered ${answer.status}`);
      const skew = Date.parse(answer.headers.get("Date")) - Date.now();
      this.skew = Math.abs(skew) > 3000 ? skew : 0; // a clock elsewhere; the date has whole seconds
      if (answer.status !== 304) {
        this.data = await answer.json();
        this.tag = answer.headers.get("ETag");
      }
      this.lost = false;
    } catch {
      this.lost = true;
    }
    this.tick();
    if (turn === this.asked) this.timer = setTimeout(() => this.ask(), document.hidden ? HIDDEN_MS : EVERY_MS);
  }

  // Runs every second, as times go on whether or not there is news.
  tick() {
    if (this.data && this.data !== this.drawn && (!this.drawn || (!this.pressed && performance.now() >= this.still))) this.draw();
    if (this.data) this.progress.show(this.data, this.now());
    this.tell();
  }

  tell() {
    const { element, lost, news, frame, bar } = this.progress;
    write(lost, this.lost ? "Connection lost; retrying. Is 'coterie watch' still running? What is below is as it was." : "");
    if (!this.data) {
      if (!element.isConnected) this.report.root.replaceChildren(element);
      frame.hidden = bar.hidden = true;
      return;
    }
    const times = this.data.runs.map((run) => run.news_at).filter((at) => at !== null);
    const said = [];
    if (this.data.runs.length) said.push(counts(this.data));
    if (!times.length) said.push(`No run has begun in ${this.data.folder} yet; this page waits.`);
    else {
      said.push(`Last news ${duration(this.now() - Math.max(...times))} ago.`);
      const sure = this.data.left_s !== null && !this.lost && !this.data.runs.some((run) => silence(run, this.now()));
      const left = sure ? this.data.left_s - (this.now() - Math.max(...times)) : 0;
      if (left > 0) said.push(`About ${duration(left)} left.`);
    }
    write(news, said.join(" "));
  }

  draw() {
    const { data, report } = this;
    const moved = this.progress.frame.scrollTop;
    const unfolded = [...report.root.querySelectorAll("#settings details")].filter((part) => part.open).map((part) => part.id);
    const back = focused();
    const told = tip.element && !tip.element.hidden;
    this.carry(data);
    data.page.title = data.folder;
    report.show(data.page);
    this.drawn = data;
    for (const { heading, lines } of data.page.blocks)
      if (report.memories.has(heading)) report.memories.get(heading).labels = lines.map((line) => line.label);
    this.progress.frame.scrollTop = moved;
    for (const id of unfolded) if (document.getElementById(id)) document.getElementById(id).open = true;
    if (back()) back().focus({ preventScroll: true });
    if (told && this.pointer) {
      const [clientX, clientY] = this.pointer;
      const under = document.elementFromPoint(clientX, clientY);
      const picture = under && under.closest("svg[role=img]");
      if (picture) picture.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY }));
    }
    const complete = data.runs.filter((run) => run.status === "complete").length;
    document.title = data.runs.length ? `${complete}/${data.runs.length} ${data.folder}` : `waiting: ${data.folder}`;
  }

  // What was chosen stays when settings that begin to differ change a block's name, and when a
  // line's runs are complete, or others of its kind begin.
  carry({ page: fresh }) {
    const { memories, opened } = this.report;
    const [before, now] = [this.places(this.drawn), this.places({ page: fresh })];
    for (const [run, heading] of now)
      for (const kept of [memories, opened])
        if (before.has(run) && !kept.has(heading) && kept.has(before.get(run))) kept.set(heading, kept.get(before.get(run)));
    for (const { heading, lines } of fresh.blocks) {
      const memory = memories.get(heading);
      if (!memory) continue;
      const labels = lines.map((line) => line.label);
      for (const label of labels.filter((each) => memory.labels && !memory.labels.includes(each)))
        if (memory.labels.some((each) => kindOf(each) === kindOf(label) && memory.hidden.has(each))) memory.hidden.add(label);
      for (const chosen of Object.values(memory))
        if (chosen && chosen.line && !labels.includes(chosen.line)) chosen.line = labels.find((each) => kindOf(each) === kindOf(chosen.line)) || chosen.line;
    }
  }

  // The heading of the block that each run is in.
  places(data) {
    return new Map(data ? data.page.runs.filter((run) => run.block !== null).map((run) => [run.name, data.page.blocks[run.block].heading]) : []);
  }
}

// Returns what finds the element that has the focus again, after the page is made anew.
function focused() {
  const element = document.activeElement;
  if (!element || element === document.body || !element.closest("main")) return () => null;
  const within = element.closest("[data-figure], [id]");
  const block = element.closest("details.block");
  const own = element.id ? `#${CSS.escape(element.id)}` : element.tagName.toLowerCase() +
    Object.entries(element.dataset).map(([key, value]) => `[data-${key}="${CSS.escape(value)}"]`).join("");
  const around = within && within !== element ? (within.dataset.figure ? `[data-figure="${CSS.escape(within.dataset.figure)}"] ` : `#${CSS.escape(within.id)} `) : "";
  const inside = block && block !== within ? `#${CSS.escape(block.id)} ` : "";
  return () => document.querySelector(`main ${inside}${around}${own}`);
}

globalThis.coterie.watch = new Watch(page);
