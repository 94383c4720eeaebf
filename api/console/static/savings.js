// Savings of sharing: every strategy's expected memory and CPU from the same rates and the same watermarks.

import { get } from "./api.js";
import { refusal } from "./acts.js";
import { bytes, cpu, h, plural, put, s, short } from "./dom.js";
import { live } from "./live.js";
import { costs } from "./whatif.js";

const EVERY_MS = 10_000;
const KEPT = 120;
const LINES = ["unshared", "pullup", "pushdown"];
const MEASURES = [["memory_rows", "Rows held", short], ["memory_bytes", "Bytes held", bytes], ["cpu_s_per_s", "CPU per s of event time", cpu]];

/** Totals over time, kept while the console is open, on any screen. */
const history = [];

export function savingsScreen() {
  const screen = new SavingsScreen();
  return { title: "Savings", element: screen.element, close: () => screen.close() };
}

class SavingsScreen {
  constructor() {
    this.errors = h("div", {});
    this.sum = h("div", {});
    this.curves = h("div", { class: "curves" });
    this.families = h("div", {});
    this.element = h("div", {}, h("div", { class: "head" }, h("h1", {}, "Savings")),
      h("p", { class: "note" }, "All numbers of one look are expectations from the same measured rates, selectivities and row widths, with every window full: so they compare like with like. “Held now” is measured, and is less while windows fill."),
      this.errors, this.sum, this.curves, this.families);
    this._timer = setInterval(() => document.hidden || this.load(), EVERY_MS);
    this.load();
  }

  close() {
    clearInterval(this._timer);
  }

  async load() {
    let plan;
    try {
      plan = await get("plan");
    } catch (error) {
      this.errors.replaceChildren(refusal(error));
      return;
    }
    this.errors.replaceChildren();
    if (!plan.families.length) {
      put(this.sum, h("p", {}, "No query runs yet, so there is nothing to share."));
      return;
    }
    const total = (pick) => Object.fromEntries(MEASURES.map(([key]) => [key, plan.families.reduce((sum, family) => sum + pick(family)[key], 0)]));
    const look = { shared: total((family) => family.cost), ...Object.fromEntries(LINES.map((name) => [name, total((family) => family.costs[name])])) };
    history.push(look);
    if (history.length > KEPT) history.shift();
    this.show(look, plan);
  }

  show(look, plan) {
    const against = (name, key) => {
      const ratio = look[name][key] / look.shared[key];
      if (!Number.isFinite(ratio)) return "–";
      return ratio >= 1 ? `${short(ratio)} times as much` : `${short(ratio)} of it`;
    };
    put(this.sum, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Sums of all families" }, h("table", {},
      h("caption", {}, `All families: ${plural(plan.families.length, "family")}`),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Plan"), MEASURES.map(([, title]) => h("th", { scope: "col" }, title)))),
      h("tbody", {},
        h("tr", { class: "chosen" }, h("th", { scope: "row" }, `running plan (${plan.strategy})`), MEASURES.map(([key, , shown]) => h("td", {}, shown(look.shared[key])))),
        LINES.map((name) => h("tr", {}, h("th", { scope: "row" }, name), MEASURES.map(([key, , shown]) => h("td", {}, `${shown(look[name][key])}, ${against(name, key)}`)))),
        h("tr", {}, h("th", { scope: "row" }, "held now, measured"), h("td", {}, short(live.statistics?.state_rows)), h("td", {}, bytes(live.statistics?.state_bytes)), h("td", {}, "–"))))));
    put(this.curves, MEASURES.map(([key, title, shown]) => curve(key, title, shown)));
    put(this.families, plan.families.slice(0, 12).map((family) => h("section", { class: "panel", "aria-label": `Family ${family.title}` },
      h("h2", {}, family.title), decided(family), costs(family))));
  }
}

function decided({ decided_by: by, strategy }) {
  if (!by) return null;
  return h("p", { class: "note" }, `${strategy} was chosen over ${by.against} by ${by.term.replaceAll("_", " ")}: ${short(by.chosen)} ${by.unit} against ${short(by.other)}.`);
}

/** One measure over time, a line for each plan; lines differ in their dashes, too. */
function curve(key, title, shown) {
  const names = ["shared", ...LINES];
  const most = Math.max(...history.flatMap((look) => names.map((name) => look[name][key])), 1e-300);
  const step = 300 / Math.max(history.length - 1, 1);
  const points = (name) => {
    const looks = history.length === 1 ? [history[0], history[0]] : history;
    return looks.map((look, index) => `${(index * (history.length === 1 ? 300 : step)).toFixed(1)},${(96 - (look[name][key] / most) * 92).toFixed(1)}`).join(" ");
  };
  const last = history.at(-1);
  return h("figure", { class: "panel curve" }, h("figcaption", {}, h("strong", {}, title), ` since this console was opened; highest ${shown(most)}`),
    s("svg", { width: "100%", height: 100, viewBox: "0 0 300 100", preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${names.map((name) => `${name} ${shown(last[name][key])}`).join(", ")}` },
      names.map((name) => s("polyline", { class: `line ${name}`, points: points(name) }))),
    h("p", { class: "legend" }, names.map((name) => h("span", {}, s("svg", { width: 26, height: 8, "aria-hidden": "true" }, s("polyline", { class: `line ${name}`, points: "0,4 26,4" })), ` ${name === "shared" ? "running plan" : name}`))));
}
