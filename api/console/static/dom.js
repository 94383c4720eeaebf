// Elements, and numbers formatted for people.

const SVG = "http://www.w3.org/2000/svg";

/** Make an HTML element: attributes, `on...` listeners, children (text is never read as markup). */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an SVG element. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

const present = (children) => children.flat(3).filter((child) => child !== null && child !== undefined && child !== false);

/** Replace the children of an element. */
export function put(element, ...children) {
  element.replaceChildren(...present(children));
}

/** The offset in a text of JavaScript, of UTF-16, after some characters as the API counts them. */
export const offsetOf = (text, characters) => [...text].slice(0, characters).join("").length;

/** The line of a fault with its place marked, as the API underlines it with carets; lines may wrap. */
export function underlined(underline) {
  const [line, carets = ""] = underline.split("\n");
  const found = /^( *)(\^+)/.exec(carets);
  if (found === null) return h("pre", {}, underline);
  const [from, to] = [found[1].length, found[0].length].map((at) => offsetOf(line, at));
  return h("pre", {}, line.slice(0, from), h("mark", {}, line.slice(from, to) || "\u00a0"), line.slice(to));
}

/** Set a text only if it differs, to avoid a new layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Make a function that runs once, some time after its last call. */
export function later(run, delayMs) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...args), delayMs);
  };
}

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const FINE = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const count = (value) => COUNT.format(value);

/** A number in few characters: 1.2K, 0.034. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 1000 ? SHORT.format(value) : FINE.format(value);
}

export const rate = (perSecond) => (perSecond === null || perSecond === undefined ? "–" : `${short(perSecond)}/s`);

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${FINE.format(value)} ${units[unit]}`;
}

const UNITS = [[86400e6, "d"], [3600e6, "h"], [60e6, "min"], [1e6, "s"], [1e3, "ms"]];

/** A length of time in µs: 90 min stays exact, 5403 s becomes 1 h 30 min. */
export function duration(us) {
  if (us === null || us === undefined) return "unbounded";
  if (us === 0) return "0 s";
  for (const [size, unit] of UNITS) if (us % size === 0) return `${us / size} ${unit}`;
  return about(us);
}

/** About how long: two units at most. */
export function about(us) {
  const sign = us < 0 ? "-" : "";
  us = Math.abs(us);
  if (us < 1e6) return `${sign}${Math.round(us / 1e3)} ms`;
  const at = UNITS.findIndex(([size]) => us >= size);
  const [size, unit] = UNITS[at];
  const whole = Math.floor(us / size);
  if (unit === "s") return `${sign}${FINE.format(us / size)} s`;
  const [smaller, smallUnit] = UNITS[at + 1];
  const rest = Math.floor((us % size) / smaller);
  return `${sign}${whole} ${unit}${rest ? ` ${rest} ${smallUnit}` : ""}`;
}

/** CPU time in seconds, however small. */
export function cpu(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) if (value >= size) return `${FINE.format(value / size)} ${unit}`;
  return `${FINE.format(value * 1e9)} ns`;
}

export const seconds = (value) => (value === null || value === undefined ? "–" : about(value * 1e6));

/** A moment in µs UTC, to the second. */
export function moment(us) {
  return us === null || us === undefined ? "–" : new Date(us / 1e3).toISOString().slice(0, 19).replace("T", " ");
}

/** An ISO timestamp of the API, to the second. */
export const clock = (text) => (text ? text.slice(0, 19).replace("T", " ") : "–");

export function plural(number, noun) {
  const many = noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : noun.endsWith("ch") ? `${noun}es` : `${noun}s`;
  return `${count(number)} ${number === 1 ? noun : many}`;
}

/** A line of numbers as a small picture; `label` says in words what it shows. */
export function sparkline(values, label, width = 90, height = 22) {
  const most = Math.max(...values, 1e-9);
  const step = width / Math.max(values.length - 1, 1);
  const points = values.map((v, i) => `${(i * step).toFixed(1)},${(height - 2 - (v / most) * (height - 4)).toFixed(1)}`);
  return s(
    "svg",
    { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    s("polyline", { points: points.join(" ") }),
  );
}
