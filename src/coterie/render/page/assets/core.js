// What every figure is made with: elements, numbers, scales, tooltips, and files to save.

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 8;
const DASHES = ["", "7 4", "2 3", "9 3 2 3", "12 4", "4 2 4 6", "9 3 2 3 2 3", "12 3 4 3", "2 6"];
const MARKERS = ["circle", "square", "triangle", "diamond", "cross", "down", "plus", "left", "right"];
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";

// Names come from users: they are only ever set as text or attributes, never as markup.
const plain = (text) => String(text).replace(/[\u0000-\u001f\u007f-\u009f\ufffe\uffff]|\p{Cs}/gu, "\ufffd");

function put(parent, element, attributes, text) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : plain(value));
  }
  if (text !== undefined) element.textContent = plain(text);
  if (parent) parent.append(element);
  return element;
}
const html = (parent, name, attributes, text) => put(parent, document.createElement(name), attributes, text);
const svg = (parent, name, attributes, text) => put(parent, document.createElementNS(SVG, name), attributes, text);

function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 1).replace(/\.?0*e\+?/, "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}

function amount(value, unit) {
  if (unit !== "B") return unit ? `${number(value)} ${unit}` : number(value);
  const at = Math.max(0, Math.min(4, Math.floor(Math.log10(Math.max(value, 1)) / 3)));
  return `${number(value / 1000 ** at)} ${["B", "kB", "MB", "GB", "TB"][at]}`;
}

const measure = (() => {
  const context = document.createElement("canvas").getContext("2d");
  return (text, size = 12) => {
    context.font = `${size}px ${FONT}`;
    return context.measureText(text).width;
  };
})();

function niceTicks(low, high, wanted) {
  const span = high - low || Math.abs(high) || 1;
  const rough = span / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) ticks.push(k * step);
  return ticks.map((tick) => Number(tick.toPrecision(12)));
}

function logTicks(low, high, wanted) {
  const ticks = [];
  for (const steps of [[1], [1, 3], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    ticks.length = 0;
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e += 1)
      for (const m of steps) {
        const tick = Number((m * 10 ** e).toPrecision(3));
        if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
      }
    if (ticks.length >= Math.min(wanted, 4)) break;
  }
  if (ticks.length < 2) return niceTicks(low, high, wanted);
  const every = Math.ceil(ticks.length / Math.max(wanted, 2));
  return ticks.filter((_, at) => at % every === 0);
}

// A scale knows its domain, where a value is in pixels, and its ticks.
function scale(low, high, from, to, log, wanted) {
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  const f = log ? Math.log10 : (v) => v;
  const [a, b] = [f(low), f(high)];
  const at = (value) => from + ((f(value) - a) / (b - a)) * (to - from);
  const back = (pixel) => {
    const value = a + ((pixel - from) / (to - from)) * (b - a);
    return log ? 10 ** value : value;
  };
  return Object.assign(at, { back, low, high, log, ticks: log ? logTicks(low, high, wanted) : niceTicks(low, high, wanted) });
}

const extent = (values) => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
const look = (style) => ({
  colour: `var(--s${style % COLOURS})`,
  dash: DASHES[style % DASHES.length],
  marker: MARKERS[style % MARKERS.length],
});

function markerPath(kind, x, y, r) {
  const m = {
    circle: `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
    square: `M${x - 0.9 * r},${y - 0.9 * r}h${1.8 * r}v${1.8 * r}h${-1.8 * r}Z`,
    triangle: `M${x},${y - 1.2 * r}L${x + 1.1 * r},${y + 0.8 * r}H${x - 1.1 * r}Z`,
    down: `M${x},${y + 1.2 * r}L${x + 1.1 * r},${y - 0.8 * r}H${x - 1.1 * r}Z`,
    left: `M${x - 1.2 * r},${y}L${x + 0.8 * r},${y - 1.1 * r}V${y + 1.1 * r}Z`,
    right: `M${x + 1.2 * r},${y}L${x - 0.8 * r},${y - 1.1 * r}V${y + 1.1 * r}Z`,
    diamond: `M${x},${y - 1.3 * r}L${x + 1.1 * r},${y}L${x},${y + 1.3 * r}L${x - 1.1 * r},${y}Z`,
    cross: `M${x - r},${y - r}L${x},${y - 0.4 * r}L${x + r},${y - r}L${x + 0.4 * r},${y}L${x + r},${y + r}L${x},${y + 0.4 * r}L${x - r},${y + r}L${x - 0.4 * r},${y}Z`,
    plus: `M${x - 0.4 * r},${y - 1.2 * r}h${0.8 * r}v${0.8 * r}h${0.8 * r}v${0.8 * r}h${-0.8 * r}v${0.8 * r}h${-0.8 * r}v${-0.8 * r}h${-0.8 * r}v${-0.8 * r}h${0.8 * r}Z`,
  };
  if (kind !== "star") return m[kind];
  const points = [];
  for (let k = 0; k < 10; k += 1) {
    const far = k % 2 ? 0.45 * r : r;
    points.push(`${x + far * Math.sin((k * Math.PI) / 5)},${y - far * Math.cos((k * Math.PI) / 5)}`);
  }
  return `M${points.join("L")}Z`;
}

function swatch(parent, style, x, y) {
  const { colour, dash, marker } = look(style);
  svg(parent, "path", { d: `M${x},${y}h26`, class: "line", style: `stroke:${colour}`, "stroke-dasharray": dash });
  svg(parent, "path", { d: markerPath(marker, x + 13, y, 3.6), style: `fill:${colour}` });
}

// The frame of a chart with two axes; returns the scales.
function axes(root, box, x, y, xTitle, yTitle) {
  const grid = svg(root, "g", { class: "grid" });
  for (const tick of y.ticks) {
    svg(grid, "path", { d: `M${box.left},${y(tick)}H${box.right}` });
    svg(root, "text", { x: box.left - 7, y: y(tick) + 4, class: "tick end" }, number(tick, 4));
  }
  let last = -Infinity;
  for (const tick of x.ticks) {
    const [at, wide] = [x(tick), measure(number(tick, 4), 12)];
    svg(grid, "path", { d: `M${at},${box.top}V${box.bottom}` });
    if (at - wide / 2 < last + 6) continue;
    last = at + wide / 2;
    svg(root, "text", { x: at, y: box.bottom + 17, class: "tick mid" }, number(tick, 4));
  }
  svg(root, "path", { d: `M${box.left},${box.bottom}H${box.right}`, class: "axis" });
  svg(root, "text", { x: (box.left + box.right) / 2, y: box.bottom + 36, class: "name mid" }, xTitle);
  svg(root, "text", { x: 0, y: box.top - 12, class: "name" }, yTitle);
}

const tickRoom = (ticks) => Math.max(...ticks.map((tick) => measure(number(tick, 4), 12)), 12) + 12;
const named = (quantity) => quantity.label + (quantity.unit ? ` (${quantity.unit})` : "");

// One tooltip for the page. Rows are [style or colour or null, text, value].
const tip = {
  element: null,
  show(x, y, title, rows, spoken) {
    if (!this.element) this.element = html(document.body, "div", { id: "tip", role: "status" });
    const box = this.element;
    box.setAttribute("aria-live", spoken ? "polite" : "off");
    box.replaceChildren();
    html(box, "strong", {}, title);
    for (const [style, text, value] of rows) {
      const row = html(box, "div");
      if (typeof style === "number") swatch(svg(row, "svg", { width: 28, height: 10, "aria-hidden": "true" }), style, 1, 5);
      else if (style) html(row, "i", { style: `background:${style}` });
      html(row, "span", {}, text);
      if (value !== undefined) html(row, "b", {}, value);
    }
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const room = document.documentElement.clientWidth;
    box.style.left = `${Math.max(4, x + 16 + width > room ? Math.min(x - 16 - width, room - width - 4) : x + 16)}px`;
    box.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - height - 6))}px`;
  },
  hide() {
    if (this.element) this.element.hidden = true;
  },
};

function save(name, content, type) {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const link = html(document.body, "a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const cell = (value) => {
  if (value === null || value === undefined) return "";
  let text = String(value);
  if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`; // no formula
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const csv = (rows) => rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";

// A picture that stands alone: styles written out, a background, a title, the legend below.
function standalone(drawn, title, legend) {
  const copy = drawn.cloneNode(true);
  const [width, height] = [Number(drawn.getAttribute("width")), Number(drawn.getAttribute("height"))];
  const from = [drawn, ...drawn.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, at) => {
    const style = getComputedStyle(from[at]);
    const kept = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "paint-order", "font-size", "font-weight", "text-anchor"];
    element.setAttribute("style", kept.map((key) => `${key}:${style.getPropertyValue(key)}`).join(";"));
    for (const name of ["class", "tabindex", "data-at"]) element.removeAttribute(name);
  });
  copy.querySelectorAll("[data-hover]").forEach((element) => element.remove());
  const page = getComputedStyle(document.documentElement);
  const ink = page.getPropertyValue("--ink").trim();
  const rows = [[]];
  let used = 0;
  for (const item of legend) {
    const wide = measure(item.label, 12) + 54;
    if (used + wide > width - 16 && used) [used] = [0, rows.push([])];
    rows.at(-1).push({ ...item, x: used });
    used += wide;
  }
  const below = legend.length ? 20 * rows.length + 8 : 0;
  const root = document.createElementNS(SVG, "svg");
  const size = { width: width + 24, height: height + 40 + below };
  put(null, root, { xmlns: SVG, ...size, viewBox: `0 0 ${size.width} ${size.height}`, "font-family": FONT });
  svg(root, "rect", { ...size, fill: page.getPropertyValue("--card").trim() });
  svg(root, "text", { x: 12, y: 22, "font-size": 14, "font-weight": 600, fill: ink }, title);
  const body = svg(root, "g", { transform: "translate(12,32)" });
  body.append(...copy.childNodes);
  const keys = svg(root, "g", { transform: `translate(12,${height + 44})` });
  rows.forEach((row, nth) => row.forEach(({ label, style, colour, marker: shape, x }) => {
    if (shape) svg(keys, "path", { d: markerPath(shape, x + 7, 20 * nth, 5), fill: resolved(colour) });
    else if (style === undefined) svg(keys, "rect", { x, y: 20 * nth - 6, width: 12, height: 12, fill: resolved(colour) });
    else {
      const { colour: own, dash, marker } = look(style);
      svg(keys, "path", { d: `M${x},${20 * nth}h26`, fill: "none", stroke: resolved(own), "stroke-width": 2, "stroke-dasharray": dash || "none" });
      svg(keys, "path", { d: markerPath(marker, x + 13, 20 * nth, 3.6), fill: resolved(own) });
    }
    svg(keys, "text", { x: x + (style === undefined ? 18 : 32), y: 20 * nth + 4, "font-size": 12, fill: ink }, label);
  }));
  return { text: new XMLSerializer().serializeToString(root), ...size };
}

function resolved(colour) {
  const found = /^var\((--[\w-]+)\)$/.exec(colour || "");
  return found ? getComputedStyle(document.documentElement).getPropertyValue(found[1]).trim() : colour;
}

function savePng(name, picture) {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [2 * picture.width, 2 * picture.height];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(name, blob), "image/png");
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture.text)}`;
}
