// Figures side by side: a row for each thing that was measured, a mark for each of some series.

function dots({ title, axis, rows, series }) {
  const names = Object.keys(series).filter((name) => series[name].some((value) => value > 0));
  const style = (name) => Object.keys(series).indexOf(name);
  return {
    key: "dots",
    title,
    about: `${title}: ${axis} of every row, a mark for each of ${names.join(", ")}`,
    legend: () => names.map((label) => ({ label, colour: look(style(label)).colour, marker: look(style(label)).marker, toggles: true })),
    caption: () => "Logarithmic; the line is 1. A mark that is missing was not reached or not run.",
    csv: () => [["row", ...names], ...rows.map((row, at) => [row, ...names.map((name) => series[name][at])])],
    draw: (root, width, chosen, figure) => {
      const shown = names.filter((name) => !figure.memory.hidden.has(name));
      const marks = rows.flatMap((row, r) => shown.map((name) => ({ row, r, name, value: series[name][r] })).filter(({ value }) => value > 0));
      const tall = 40;
      const left = Math.min(0.42 * width, Math.max(...rows.map((row) => measure(row, 12)), 20) + 14);
      const box = { left, right: width - 16, top: 8, bottom: 8 + tall * rows.length };
      const [low, high] = extent([1, ...marks.map(({ value }) => value)]);
      const x = scale(low / 1.15, high * 1.15, box.left, box.right, true, (box.right - box.left) / 60);
      const grid = svg(root, "g", { class: "grid" });
      for (const tick of x.ticks) {
        svg(grid, "path", { d: `M${x(tick)},${box.top}V${box.bottom}` });
        svg(root, "text", { x: x(tick), y: box.bottom + 16, class: "tick mid" }, `${number(tick)}x`);
      }
      svg(root, "text", { x: (box.left + box.right) / 2, y: box.bottom + 34, class: "name mid" }, axis);
      svg(root, "path", { d: `M${x(1)},${box.top}V${box.bottom}`, class: "cursor" });
      rows.forEach((row, r) => {
        const middle = box.top + tall * (r + 0.5);
        svg(svg(root, "text", { x: left - 10, y: middle + 4, class: "tick end" }, shorten(row, left - 12)), "title", {}, row);
        if (r) svg(grid, "path", { d: `M${box.left},${box.top + tall * r}H${box.right}` });
      });
      const parts = marks.map((mark) => {
        const lane = shown.length > 1 ? shown.indexOf(mark.name) / (shown.length - 1) - 0.5 : 0;
        const [px, py] = [x(mark.value), box.top + tall * (mark.r + 0.5) + lane * (tall - 16)];
        const { colour, marker } = look(style(mark.name));
        svg(root, "path", { d: markerPath(marker, px, py, 5.5), class: "dot", style: `fill:${colour}` });
        return { ...mark, x: px - 8, y: py - 8, width: 16 };
      });
      exploreRects(root, parts, 16, (part) => [part.row, shown.filter((name) => series[name][part.r] > 0).map((name) => [look(style(name)).colour, name, `${number(series[name][part.r])}x`])]);
      return box.bottom + 42;
    },
  };
}
