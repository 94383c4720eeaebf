// Chains of slices to scale along an axis: a scale, its axis, and a chain whose slices can be highlighted and filled.
//
// Windows are measured by a clock: time, or a count of rows or of steps of the order. Sides may have different ones.

import { count, duration, h, s, short } from "./dom.js";

const S = 1e6, MIN = 60 * S, HOUR = 60 * MIN, DAY = 24 * HOUR;
const STEPS = [
  1e3, 1e4, 1e5, S, 2 * S, 5 * S, 10 * S, 15 * S, 30 * S, MIN, 2 * MIN, 5 * MIN, 10 * MIN, 15 * MIN, 30 * MIN,
  HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 364 * DAY,
];
const ROUND_COUNTS = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
const UNITS = { rows: "rows", "key rows": "rows of a key", order: "steps" };
/** Share of the axis for slices without an end. */
const UNBOUNDED = 10;

/** The clocks that measure the windows of a family's sides. */
export const clocksOf = (family) => family.queries[0]?.clock ?? { a: "time", b: "time" };

/** A length of a window in words. */
export const lengthText = (length, clock) => (clock === "time" || length === null ? duration(length) : `${count(length)} ${UNITS[clock]}`);

/** A scale for each side of a family, both the same one if their clocks are; `pieces` are slices by side. */
export function scalesOf(clocks, pieces, mode) {
  const ends = (side) => pieces[side].map((piece) => piece.w_end_us);
  if (clocks.a !== clocks.b) return { a: new Scale(ends("a"), mode, clocks.a), b: new Scale(ends("b"), mode, clocks.b) };
  const both = new Scale([...ends("a"), ...ends("b")], mode, clocks.a);
  return { a: both, b: both };
}

/** Positions of windows on an axis of 100 %. */
export class Scale {
  /** `ends` are ends of slices in units of the clock (µs of time), null for unbounded; `mode` is "linear", "log", or "auto". */
  constructor(ends, mode = "auto", clock = "time") {
    this.clock = clock;
    this.steps = clock === "time" ? STEPS : ROUND_COUNTS;
    const finite = [...new Set(ends.filter((end) => end !== null && end > 0))].sort((x, y) => x - y);
    this.max = finite.at(-1) ?? S;
    this.min = finite[0] ?? this.max;
    this.unbounded = ends.includes(null);
    const narrow = finite.length < 200 && this.min / this.max < 0.004;
    this.mode = mode === "auto" ? (narrow ? "log" : "linear") : mode;
    this.room = this.unbounded ? 100 - UNBOUNDED : 100;
  }

  at(us) {
    if (us === null || us === Infinity) return 100;
    const share = this.mode === "log" ? Math.log1p(us / this.min) / Math.log1p(this.max / this.min) : us / this.max;
    return Math.min(share, 1) * this.room;
  }

  /** Lengths that the axis names, with room between them. */
  ticks(most) {
    if (this.mode === "linear") {
      const step = this.steps.find((size) => this.max / size <= most) ?? this.max;
      return Array.from({ length: Math.floor(this.max / step) + 1 }, (_, i) => i * step);
    }
    const found = [0];
    for (const size of this.steps) {
      if (size <= this.max && this.at(size) - this.at(found.at(-1)) >= 100 / most) found.push(size);
    }
    return found;
  }
}

/** Axes of the scales with their labels: how far behind the other stream's row. */
export function axes(scales, widthPx) {
  const name = ({ clock }) => (clock === "time" ? "how far behind" : `${UNITS[clock]} behind`);
  return [...new Set([scales.a, scales.b])].map((scale) => [name(scale), axis(scale, widthPx)]);
}

function axis(scale, widthPx) {
  const ticks = scale.ticks(Math.max(Math.floor(widthPx / 70), 2));
  return s(
    "svg",
    { class: "axis", width: "100%", height: 22, "aria-hidden": "true" },
    ticks.map((us) => {
      const at = scale.at(us);
      const anchor = at < 3 ? "start" : at > 95 ? "end" : "middle";
      return [
        s("line", { x1: `${at}%`, x2: `${at}%`, y1: 17, y2: 22 }),
        s("text", { x: `${at}%`, y: 13, "text-anchor": anchor }, us === 0 ? "0" : scale.clock === "time" ? duration(us) : short(us)),
      ];
    }),
    scale.unbounded && s("text", { x: "100%", y: 13, "text-anchor": "end" }, "no end"),
  );
}

/** The window of a slice in words. */
export const windowText = (piece, clock) =>
  piece.w_end_us === null ? `${lengthText(piece.w_start_us, clock)} and more`
    : `${clock === "time" ? duration(piece.w_start_us) : count(piece.w_start_us)} to ${lengthText(piece.w_end_us, clock)}`;

const HEIGHT = 44;
let chains = 0;

/**
 * A chain of slices.
 *
 * `onHover(index or null)` follows pointer and keyboard, `onPick(index)` clicks and Enter. The arrow keys move
 * along the chain, which is one stop of the Tab key however many slices it has.
 */
export class Chain {
  constructor({ pieces, scale, side, label, widthPx, onHover = () => {}, onPick = () => {}, marks = new Map() }) {
    this.pieces = pieces;
    this.active = -1;
    this.onHover = onHover;
    this.onPick = onPick;
    this.id = `chain-${(chains += 1)}`;
    this.slices = pieces.map((piece, index) => this._slice(piece, index, scale, widthPx, marks.get(index)));
    this.element = s(
      "svg",
      {
        class: `chain side-${side}`, width: "100%", height: HEIGHT, role: "listbox", tabindex: 0, "aria-label": label,
        "aria-orientation": "horizontal",
      },
      this.slices.map((slice) => slice.group),
    );
    this.element.addEventListener("keydown", (event) => this._key(event));
    this.element.addEventListener("focus", () => this.element.matches(":focus-visible") && this._move(Math.max(this.active, 0)));
    this.element.addEventListener("blur", () => this.onHover(null));
    this.element.addEventListener("pointerover", (event) => {
      const group = event.target.closest("g.slice");
      if (group) this.onHover(Number(group.dataset.index));
    });
    this.element.addEventListener("pointerleave", () => this.onHover(null));
    this.element.addEventListener("click", (event) => {
      const group = event.target.closest("g.slice");
      if (group) this.onPick(Number(group.dataset.index));
    });
  }

  _slice(piece, index, scale, widthPx, mark) {
    const from = scale.at(piece.w_start_us), to = scale.at(piece.w_end_us);
    const wide = ((to - from) / 100) * widthPx;
    const fillRect = s("rect", { class: "fill", x: `${from}%`, width: `${to - from}%`, y: HEIGHT, height: 0 });
    const text = wide > 34 ? s("text", { class: "rows", x: `${(from + to) / 2}%`, y: 27, "text-anchor": "middle" }) : null;
    const group = s(
      "g",
      {
        class: `slice${mark ? ` ${mark}` : ""}`, id: `${this.id}-${index}`, role: "option", "aria-selected": "false",
        dataset: { index }, "aria-label": `Slice ${piece.slice}, ${windowText(piece, scale.clock)}`,
      },
      s("rect", { class: "body", x: `${from}%`, width: `${to - from}%`, y: 0, height: HEIGHT }),
      fillRect,
      piece.lazy_end ? s("line", { class: "lazy", x1: `${to}%`, x2: `${to}%`, y1: 0, y2: HEIGHT }) : null,
      piece.keep_bits !== null && wide > 12
        ? s("svg", { x: `${from}%`, y: 0, overflow: "visible" }, s("path", { class: "funnel", d: "M3 3h8l-3 4v4h-2v-4z" }))
        : null,
      text,
      mark && wide > 14 ? s("text", { class: "mark", x: `${(from + to) / 2}%`, y: 40, "text-anchor": "middle" }, mark === "new" ? "+" : "−") : null,
    );
    return { group, fillRect, text, rows: null };
  }

  _key(event) {
    const moves = { ArrowRight: this.active + 1, ArrowLeft: this.active - 1, Home: 0, End: this.pieces.length - 1 };
    if (event.key in moves) this._move(Math.min(Math.max(moves[event.key], 0), this.pieces.length - 1));
    else if ((event.key === "Enter" || event.key === " ") && this.active >= 0) this.onPick(this.active);
    else return;
    event.preventDefault();
  }

  _move(index) {
    if (this.active >= 0) this.slices[this.active]?.group.classList.remove("active");
    this.active = index;
    const { group } = this.slices[index];
    group.classList.add("active");
    this.element.setAttribute("aria-activedescendant", group.id);
    this.onHover(index);
  }

  /** Fill slices by the rows they hold, a slice with `most` rows completely; null if unknown. */
  update(rowsOf, most) {
    this.slices.forEach((slice, index) => {
      const rows = rowsOf(index);
      const tall = rows === null ? 0 : Math.round((rows / Math.max(most, 1)) * HEIGHT * 10) / 10;
      if (slice.tall !== tall) {
        slice.tall = tall;
        slice.fillRect.setAttribute("height", tall);
        slice.fillRect.setAttribute("y", HEIGHT - tall);
      }
      if (slice.rows !== rows) {
        slice.rows = rows;
        if (slice.text) slice.text.textContent = rows === null ? "" : short(rows);
      }
    });
  }

  /** Highlight the slices for which `isLit(index)` and dim the others; null does neither. */
  light(isLit) {
    this.slices.forEach((slice, index) => slice.group.classList.toggle("lit", isLit !== null && isLit(index)));
  }

  pick(index) {
    this.slices.forEach((slice, at) => slice.group.setAttribute("aria-selected", String(at === index)));
  }
}

/** A legend of the marks of chains. */
export function legend() {
  return h(
    "ul",
    { class: "legend" },
    h("li", {}, s("svg", { width: 14, height: 14, "aria-hidden": "true" }, s("path", { class: "funnel", d: "M3 2h8l-3 4v5h-2v-5z" })), "rows are filtered as they enter"),
    h("li", {}, s("svg", { width: 14, height: 14, "aria-hidden": "true" }, s("line", { class: "lazy", x1: 7, x2: 7, y1: 0, y2: 14 })), "lazy boundary: rows may pass it late"),
    h("li", {}, h("span", { class: "swatch fill", "aria-hidden": "true" }), "height: rows held, beside the fullest slice"),
  );
}

