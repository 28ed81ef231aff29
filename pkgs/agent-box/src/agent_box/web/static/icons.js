// Icons, drawn for this page on a 16 x 16 grid. Shapes tell states apart without colour.
const NS = "http://www.w3.org/2000/svg";

const PATHS = {
  add: "M8 3v10M3 8h10",
  bell: "M4 11V7a4 4 0 0 1 8 0v4l1 1H3zM7 14h2",
  belloff: "M4 11V7a4 4 0 0 1 8 0v4l1 1H3zM7 14h2M2 2l12 12",
  help: "M6 6a2 2 0 1 1 2.6 1.9c-.4.2-.6.5-.6 1V10M8 12.4v.2M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13",
  gear: "M8 5.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5M8 1.5v2M8 12.5v2M1.5 8h2M12.5 8h2M3.4 3.4l1.4 1.4M11.2 11.2l1.4 1.4M12.6 3.4l-1.4 1.4M4.8 11.2l-1.4 1.4",
  close: "M4 4l8 8M12 4l-8 8",
  restart: "M13 8a5 5 0 1 1-1.6-3.7L13 6M13 2.5V6H9.5",
  play: "M5 3.5v9l7-4.5z",
  halt: "M3.5 3.5h9v9h-9z",
  edit: "M3 13l.6-2.8L11 2.8l2.2 2.2-7.4 7.4z",
  log: "M3.5 2.5h9v11h-9zM5.5 5.5h5M5.5 8h5M5.5 10.5h3",
  upload: "M8 11V3M4.5 6.5 8 3l3.5 3.5M3 13.5h10",
  download: "M8 3v8M4.5 7.5 8 11l3.5-3.5M3 13.5h10",
  split: "M2 3h12v10H2zM8 3v10",
  folder: "M2 4h4l1.5 1.5H14V13H2z",
};

const SHAPES = {
  running: ["circle", { cx: 8, cy: 8, r: 5 }, true],
  idle: ["circle", { cx: 8, cy: 8, r: 5 }, false],
  done: ["path", { d: "M3 8.5 6.5 12 13 4.5" }, false],
  starting: ["circle", { cx: 8, cy: 8, r: 5, "stroke-dasharray": "4 3" }, false],
  waiting: ["path", { d: "M8 2 14.5 13.5h-13zM8 6.5v3M8 11.3v.2" }, false],
  crashed: ["path", { d: "M8 1.5 14.5 8 8 14.5 1.5 8z" }, false],
  failed: ["path", { d: "M3.5 3.5l9 9M12.5 3.5l-9 9" }, false],
  stopped: ["path", { d: "M4 4h8v8H4z" }, true],
  unmanaged: ["circle", { cx: 8, cy: 8, r: 3.5 }, false],
};

function svg(kind, attributes, className, filled) {
  const image = document.createElementNS(NS, "svg");
  image.setAttribute("viewBox", "0 0 16 16");
  image.setAttribute("class", className + (filled ? " filled" : ""));
  image.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS(NS, kind);
  for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
  image.append(shape);
  return image;
}

export const icon = (name) => svg("path", { d: PATHS[name] }, "icon");

export function stateIcon(state) {
  const [kind, attributes, filled] = SHAPES[state] ?? SHAPES.unmanaged;
  return svg(kind, attributes, `shape ${state}`, filled);
}
