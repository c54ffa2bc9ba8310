// A figure: title, controls, picture, legend, files. It draws itself when it comes into sight, and
// again when its data, its choices, the width or the colours change.

const seen = new IntersectionObserver(
  (entries) => entries.forEach((entry) => entry.isIntersecting && entry.target.figure.arrive()),
  { rootMargin: "300px" },
);
const resized = new ResizeObserver((entries) => entries.forEach((entry) => entry.target.figure.resize()));

// `spec` has: key, title, about (for those who do not see it), options [{key, label, choices
// [[value, text]]}], legend() [{label, style | colour, marker, toggles}], draw(root, width, chosen) which
// returns the height and may return hover targets, csv(chosen), and caption(chosen).
class Figure {
  constructor(parent, spec, memory) {
    this.spec = spec;
    this.memory = memory; // choices outlive the figure, so that fresh data keeps them
    this.chosen = memory[spec.key] || (memory[spec.key] = {});
    for (const { key, choices, value } of spec.options || [])
      if (!choices.some(([choice]) => choice === this.chosen[key])) this.chosen[key] = value ?? choices[0][0];
    this.element = html(parent, "figure", { class: `figure ${spec.wide ? "whole" : ""}`, "data-figure": spec.key });
    this.element.figure = this;
    html(this.element, "h4", {}, spec.title);
    this.controls = html(this.element, "div", { class: "controls" });
    this.whole = html(null, "button", { type: "button", class: "whole-view", hidden: true, onclick: () => this.zoom(null) }, "Show all again");
    this.plot = html(this.element, "div", { class: "plot" });
    this.plot.figure = this;
    this.legend = html(this.element, "div", { class: "legend" });
    this.caption = html(this.element, "figcaption");
    this.addControls();
    this.controls.append(this.whole);
    this.addFiles();
    seen.observe(this.element);
    resized.observe(this.plot);
    if (this.chosen.drawn) this.draw();
  }

  addControls() {
    for (const { key, label, choices } of this.spec.options || []) {
      if (choices.length < 2) continue;
      if (choices.length > 4) {
        const line = html(this.controls, "label", { class: "choose" });
        html(line, "span", {}, label);
        const select = html(line, "select", { "data-option": key, onchange: () => this.choose(key, select.value) });
        for (const [value, text] of choices)
          html(select, "option", { value, selected: value === this.chosen[key] }, text);
        continue;
      }
      const set = html(this.controls, "div", { class: "segments", role: "group", "aria-label": label });
      for (const [value, text] of choices)
        html(set, "button", {
          type: "button",
          "data-option": key,
          "data-value": value,
          "aria-pressed": String(value === this.chosen[key]),
          onclick: (event) => {
            for (const other of set.children) other.setAttribute("aria-pressed", String(other === event.currentTarget));
            this.choose(key, value);
          },
        }, text);
    }
  }

  addFiles() {
    const line = html(this.element, "div", { class: "files" });
    const file = (ending) => `coterie-${this.spec.file}.${ending}`;
    const picture = () => {
      this.arrive();
      const root = this.plot.querySelector("svg");
      return root && standalone(root, this.spec.saved || this.spec.title, this.items().filter((item) => !this.hides(item)));
    };
    const actions = {
      PNG: () => picture() && savePng(file("png"), picture()),
      SVG: () => picture() && save(file("svg"), picture().text, "image/svg+xml"),
      CSV: () => save(file("csv"), csv(this.spec.csv(this.chosen)), "text/csv"),
    };
    for (const [what, act] of Object.entries(actions))
      html(line, "button", { type: "button", "data-save": what, "aria-label": `Save ${this.spec.title} as ${what}`, onclick: act }, what);
  }

  items() {
    return this.spec.legend ? this.spec.legend(this.chosen) : [];
  }

  hides(item) {
    return item.toggles && this.memory.hidden.has(item.label);
  }

  choose(key, value) {
    this.chosen[key] = value;
    this.chosen.zoomed = null;
    this.draw();
  }

  zoom(part) {
    this.chosen.zoomed = part;
    this.draw();
  }

  arrive() {
    if (!this.drawn) this.draw();
  }

  resize() {
    if (this.drawn && Math.abs(this.plot.clientWidth - this.width) > 1) this.draw();
  }

  refresh() {
    if (this.drawn) this.draw();
  }

  draw() {
    this.width = this.plot.clientWidth;
    if (!this.width) return;
    this.drawn = this.chosen.drawn = true;
    tip.hide();
    const focused = document.activeElement && document.activeElement.closest && document.activeElement.closest("svg");
    const back = focused && this.plot.contains(focused);
    const wide = Math.max(this.width, this.spec.least || 0);
    const root = document.createElementNS(SVG, "svg");
    put(null, root, { role: "img", "aria-label": this.spec.about, width: wide, tabindex: this.spec.keys === false ? null : 0 });
    this.plot.replaceChildren(root);
    const height = this.spec.draw(root, wide, this.chosen, this);
    this.whole.hidden = !this.chosen.zoomed;
    put(null, root, { height, viewBox: `0 0 ${wide} ${height}` });
    this.plot.style.minHeight = `${height}px`;
    if (back) root.focus({ preventScroll: true });
    this.drawLegend();
    this.caption.textContent = this.spec.caption ? plain(this.spec.caption(this.chosen)) : "";
  }

  drawLegend() {
    this.legend.replaceChildren();
    const items = this.items();
    for (const item of items) {
      const tag = item.toggles ? "button" : "span";
      const entry = html(this.legend, tag, item.toggles && {
        type: "button",
        "data-line": item.label,
        "aria-pressed": String(!this.hides(item)),
        title: this.hides(item) ? "show" : "hide",
        onclick: () => this.toggle([item.label], item.label),
      });
      if (item.marker) svg(svg(entry, "svg", { width: 14, height: 14, "aria-hidden": "true" }), "path", { d: markerPath(item.marker, 7, 7, 5), style: `fill:${item.colour}` });
      else if (item.style === undefined) html(entry, "i", { style: `background:${item.colour}` });
      else swatch(svg(entry, "svg", { width: 28, height: 12, "aria-hidden": "true" }), item.style, 1, 6);
      html(entry, "span", {}, item.label);
    }
    const lines = items.filter((item) => item.toggles).map((item) => item.label);
    if (lines.length > 5) html(this.legend, "button", { type: "button", class: "all", onclick: () => this.toggle(lines) }, "all / none");
  }

  toggle(labels, focus) {
    const { hidden } = this.memory;
    const hide = labels.some((label) => !hidden.has(label));
    for (const label of labels) hide ? hidden.add(label) : hidden.delete(label);
    this.memory.changed();
    const again = [...this.legend.querySelectorAll("button")].find((b) => (focus ? b.dataset.line === focus : b.className === "all"));
    if (again) again.focus({ preventScroll: true });
  }
}

// Pointer and arrow keys both walk through what a picture shows: find(x, y) and step(by) return
// something to mark, mark(it) draws the mark and returns [x, y, title, rows].
function explore(root, { find, step, mark, clear }) {
  const at = (x, y) => {
    const box = root.getBoundingClientRect();
    return [box.left + x, box.top + y];
  };
  const tell = (found, spoken, event) => {
    if (found === null || found === undefined) return leave();
    const [x, y, title, rows] = mark(found);
    const [left, top] = event ? [event.clientX, event.clientY] : at(x, y);
    tip.show(left, top, title, rows, spoken);
  };
  const leave = () => {
    clear();
    tip.hide();
  };
  const move = (event) => {
    const box = root.getBoundingClientRect();
    tell(find(event.clientX - box.left, event.clientY - box.top), false, event);
  };
  root.addEventListener("pointermove", move);
  root.addEventListener("pointerdown", move);
  root.addEventListener("pointerleave", leave);
  root.addEventListener("blur", leave);
  root.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") leave();
    if (by === undefined) return;
    event.preventDefault();
    tell(step(by), true);
  });
}

// A box drawn with the mouse in a frame is what the figure then shows.
function zoomable(root, box, x, y, figure) {
  let from = null;
  const band = svg(root, "rect", { class: "zoom", "data-hover": true });
  const inside = (event) => {
    const place = root.getBoundingClientRect();
    const within = (v, low, high) => Math.max(low, Math.min(high, v));
    return [within(event.clientX - place.left, box.left, box.right), within(event.clientY - place.top, box.top, box.bottom)];
  };
  const span = (a, b) => [Math.min(a, b), Math.abs(a - b)];
  root.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch" || event.button) return;
    from = inside(event);
    root.setPointerCapture(event.pointerId);
  });
  root.addEventListener("pointermove", (event) => {
    if (!from) return;
    const [[left, width], [top, height]] = inside(event).map((v, at) => span(v, from[at]));
    put(null, band, { x: left, y: top, width, height });
  });
  root.addEventListener("pointerup", (event) => {
    if (!from) return;
    const [[left, width], [top, height]] = inside(event).map((v, at) => span(v, from[at]));
    from = null;
    put(null, band, { width: 0, height: 0 });
    if (width < 8 || height < 8) return;
    figure.zoom({ x: [x.back(left), x.back(left + width)], y: [y.back(top + height), y.back(top)] });
  });
  root.addEventListener("dblclick", () => figure.chosen.zoomed && figure.zoom(null));
}

// Walks an index through a list.
function walker(list) {
  let at = -1;
  return {
    step: (by) => {
      if (!list.length) return null;
      at = Math.max(0, Math.min(list.length - 1, by === -Infinity ? 0 : by === Infinity ? list.length - 1 : at + by));
      return list[at];
    },
    set: (found) => {
      at = list.indexOf(found);
      return found;
    },
  };
}
