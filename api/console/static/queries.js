// All queries in a table.

import { getAll } from "./api.js";
import { action, confirmed, pauseQuery, refusal, removeQuery, resumeQuery } from "./acts.js";
import { count, h, later, plural, rate, setText, sparkline } from "./dom.js";
import { live } from "./live.js";

const EVERY_MS = 4000;
const PAGE = 100;

export const href = (name) => `#/queries/${encodeURIComponent(name)}`;
export const editHref = (name) => `#/whatif?edit=${encodeURIComponent(name)}`;

/** State of a query in a word: the observed state, and the desired one if it differs. */
export function stateOf(query) {
  if (query.observed === "pending") return `pending (${query.desired})`;
  return query.observed === query.desired ? query.observed : `${query.observed}, to be ${query.desired}`;
}

/** The streams of a query by distinct names: a stream that is joined with itself appears twice. */
export function streamsOf(query) {
  const twice = new Set(query.streams.map((each) => each.stream)).size < query.streams.length;
  return query.streams.map((each) => ({ ...each, name: twice ? `${each.stream} ${each.alias}` : each.stream }));
}

/** A sink in a few words. */
export function sinkText(query) {
  if (query.sink === null) return "–";
  const { sink_observed: progress } = query;
  const lag = progress?.lag_batches ? `, ${plural(progress.lag_batches, "batch")} behind` : "";
  return `${query.sink.type}: ${progress?.state ?? "pending"}${lag}`;
}

const COLUMNS = [
  ["Query", (query) => query.name],
  ["State", stateOf],
  ["Windows", (query) => query.streams[0].window],
  ["Filters", (query) => query.streams.map((each) => each.filter ?? "").join("")],
  ["Results", (query) => live.rate(`query:${query.id}`) ?? -1],
  ["Sink", sinkText],
];

export function queriesScreen() {
  const screen = new QueriesScreen();
  return { title: "Queries", element: screen.element, close: () => screen.close() };
}

class QueriesScreen {
  constructor() {
    this.queries = null;
    this.rows = new Map();
    this.shown = PAGE;
    this.sorted = [0, 1];
    this.errors = h("div", {});
    this.note = h("p", { class: "note", role: "status" }, "Waiting for the first answer …");
    this.search = h("input", { type: "search", id: "query-search", "aria-keyshortcuts": "/", oninput: later(() => { this.shown = PAGE; this.fill(); }, 120) });
    this.head = h("tr", {}, COLUMNS.map(([title], index) => h("th", { scope: "col", "aria-sort": index === 0 ? "ascending" : "none" },
      h("button", { type: "button", class: "sort", onclick: () => this.sort(index) }, title))), h("th", { scope: "col" }, "Change"));
    this.body = h("tbody", {});
    this.more = h("button", { type: "button", hidden: true, onclick: () => { this.shown += PAGE; this.fill(); } });
    this.element = h("div", {},
      h("div", { class: "head" }, h("h1", {}, "Queries"),
        h("label", { class: "choice", for: "query-search" }, "Find"), this.search,
        h("a", { class: "button primary", href: "#/whatif" }, "Add a query")),
      this.errors, this.note,
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of queries" },
        h("table", { class: "queries" }, h("thead", {}, this.head), this.body)),
      this.more);
    this._look = () => this.updateRates();
    live.addEventListener("look", this._look);
    this._timer = setInterval(() => document.hidden || this.load(), EVERY_MS);
    this.load();
  }

  close() {
    live.removeEventListener("look", this._look);
    clearInterval(this._timer);
  }

  async load() {
    try {
      this.queries = await getAll("queries");
      this.errors.replaceChildren();
    } catch (error) {
      this.errors.replaceChildren(refusal(error));
      return;
    }
    this.fill();
  }

  sort(index) {
    this.sorted = [index, this.sorted[0] === index ? -this.sorted[1] : index === 4 ? -1 : 1];
    [...this.head.children].slice(0, COLUMNS.length).forEach((cell, at) => cell.setAttribute("aria-sort",
      at !== index ? "none" : this.sorted[1] > 0 ? "ascending" : "descending"));
    this.fill();
  }

  fill() {
    if (this.queries === null) return;
    const wanted = this.search.value.trim().toLowerCase();
    const found = wanted ? this.queries.filter((query) => `${query.name} ${query.cql}`.toLowerCase().includes(wanted)) : [...this.queries];
    const [column, direction] = this.sorted;
    const key = COLUMNS[column][1];
    found.sort((x, y) => {
      const [left, right] = [key(x), key(y)];
      const order = typeof left === "number" ? left - right : left.localeCompare(right, "en", { numeric: true });
      return direction * order || x.name.localeCompare(y.name);
    });
    const focused = document.activeElement?.closest("tr")?.dataset.name;
    const focusedAct = document.activeElement?.dataset.act;
    const page = found.slice(0, this.shown);
    const rows = page.map((query) => this._row(query));
    const present = [...this.body.children];
    if (rows.length !== present.length || rows.some((row, index) => row !== present[index])) this.body.replaceChildren(...rows);
    const names = new Set(this.queries.map((query) => query.name));
    for (const name of this.rows.keys()) if (!names.has(name)) this.rows.delete(name);
    if (focused && focusedAct) this.rows.get(focused)?.element.querySelector(`[data-act=${focusedAct}]`)?.focus();
    this.more.hidden = found.length <= this.shown;
    setText(this.more, `Show ${count(Math.min(PAGE, found.length - this.shown))} more`);
    setText(this.note, this.queries.length === 0 ? "No query yet: add one, its text is checked while you type."
      : wanted ? `${count(found.length)} of ${plural(this.queries.length, "query")}` : plural(this.queries.length, "query"));
    this.updateRates();
  }

  _row(query) {
    // The contents of a row except its rate; a row with the same contents is kept.
    const shown = JSON.stringify([stateOf(query), query.cql, query.paused_because, sinkText(query), query.sink_observed?.error]);
    const known = this.rows.get(query.name);
    if (known?.shown === shown) {
      known.query = query;
      return known.element;
    }
    const row = { query, shown, rate: h("span", { class: "number" }), spark: h("span", {}) };
    const act = (text, run, kind) => {
      const button = action(text, async () => { await run(); await this.load(); }, { where: this.errors, label: `${text} ${query.name}`, kind });
      button.dataset.act = text.toLowerCase();
      return button;
    };
    const paused = query.desired === "paused";
    row.element = h("tr", { dataset: { name: query.name } },
      h("th", { scope: "row" }, h("a", { href: href(query.name) }, query.name)),
      h("td", {}, h("span", { class: "state", dataset: { state: query.observed } }, stateOf(query)),
        query.paused_because && h("p", { class: "note" }, query.paused_because)),
      h("td", {}, ofStreams(query, "window")),
      h("td", { class: "filters-cell" }, ofStreams(query, "filter")),
      h("td", { class: "rate-cell" }, row.rate, row.spark),
      h("td", {}, sinkText(query), query.sink_observed?.error && h("p", { class: "note" }, query.sink_observed.error)),
      h("td", { class: "acts" },
        paused ? act("Resume", () => resumeQuery(query.name)) : act("Pause", () => pauseQuery(query.name)),
        h("a", { class: "button", href: editHref(query.name), "aria-label": `Edit ${query.name}` }, "Edit"),
        act("Remove", async () => {
          if (await confirmed(`Remove ${query.name}? Its results stay readable for as long as results are kept.`, "Remove")) await removeQuery(query.name);
        }, "danger")));
    this.rows.set(query.name, row);
    return row.element;
  }

  updateRates() {
    for (const row of this.rows.values()) {
      if (!row.element.isConnected) continue;
      const name = `query:${row.query.id}`;
      const found = live.rate(name);
      setText(row.rate, rate(found));
      row.rate.title = `${count(row.query.results)} results so far`;
      row.spark.replaceChildren(sparkline(live.series(name), `Results per second of ${row.query.name} over the last minute, now ${rate(found)}`));
    }
  }
}

/** A fact about each stream of a query: two streams have their colours, more are named. */
function ofStreams(query, what) {
  const streams = streamsOf(query);
  const named = streams.length > 2;
  const lines = streams.map((each, index) => each[what] && h("div", { class: "side" },
    !named && h("span", { class: `swatch side-${"ab"[index]}`, title: each.stream, "aria-hidden": "true" }),
    h("span", { class: named ? "note" : "visually-hidden" }, `${each.name}:\u00a0`), each[what])).filter(Boolean);
  return lines.length ? lines : "–";
}
