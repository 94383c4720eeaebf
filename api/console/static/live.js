// Data that is polled: statistics, engine, plan. Rates are computed from two values of the same counter.

import { get, getIfChanged } from "./api.js";

const EVERY_MS = 2000;
/** Polls that sparklines and curves cover: four minutes. */
const KEPT = 120;

class Live extends EventTarget {
  constructor() {
    super();
    this.engine = null;
    this.statistics = null;
    this.plan = null;
    this.problem = null;
    /** By "stream:NAME", "query:ID" or "rows": rates per second at the last polls, oldest first. */
    this.rates = new Map();
    /** Rows and bytes held at the last polls. */
    this.held = [];
    this._tag = null;
    this._last = null;
    this._looking = null;
    this._timer = 0;
  }

  start() {
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
    this.look();
  }

  /** Poll now; if a poll is under way, wait for it and poll once more. */
  async look() {
    if (this._looking !== null) await this._looking;
    clearTimeout(this._timer);
    this._looking = this._look();
    await this._looking;
    this._looking = null;
    // A hidden page requests nothing.
    if (!document.hidden) this._timer = setTimeout(() => this.look(), EVERY_MS);
  }

  async _look() {
    try {
      const [engine, statistics, [plan, tag]] = await Promise.all([
        get("engine"),
        get("statistics"),
        getIfChanged("plan", { detail: "structure" }, this._tag),
      ]);
      this.engine = engine;
      this._count(statistics);
      this.statistics = statistics;
      if (plan !== null) [this.plan, this._tag] = [plan, tag];
      this.problem = null;
    } catch (error) {
      this.problem = error;
    }
    this.dispatchEvent(new Event("look"));
  }

  _count(statistics) {
    const now = performance.now() / 1000;
    const totals = new Map([["rows", statistics.input_rows]]);
    for (const stream of statistics.streams) totals.set(`stream:${stream.stream}`, stream.rows);
    for (const query of statistics.queries) totals.set(`query:${query.query_id}`, query.results);
    if (this._last !== null && now > this._last.at) {
      for (const [name, total] of totals) {
        const before = this._last.totals.get(name);
        const found = before === undefined ? 0 : Math.max(total - before, 0) / (now - this._last.at);
        const series = this.rates.get(name) ?? [];
        series.push(found);
        if (series.length > KEPT) series.shift();
        this.rates.set(name, series);
      }
      for (const name of this.rates.keys()) if (!totals.has(name)) this.rates.delete(name);
    }
    this.held.push({ rows: statistics.state_rows, bytes: statistics.state_bytes });
    if (this.held.length > KEPT) this.held.shift();
    this._last = { at: now, totals };
  }

  /** Rate per second over at most the last five polls, so that batches of seconds do not make it jump; null before the second poll. */
  rate(name) {
    const series = this.rates.get(name);
    if (!series?.length) return null;
    const recent = series.slice(-5);
    return recent.reduce((sum, value) => sum + value, 0) / recent.length;
  }

  series(name) {
    return (this.rates.get(name) ?? []).slice(-30);
  }
}

export const live = new Live();
