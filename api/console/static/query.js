// One query: its text, its state, and its results as they arrive.

import { follow, get } from "./api.js";
import { action, confirmed, pauseQuery, refusal, removeQuery, resumeQuery } from "./acts.js";
import { clock, count, h, plural, rate, setText } from "./dom.js";
import { editHref, sinkText, stateOf, streamsOf } from "./queries.js";
import { live } from "./live.js";

/** Results that stay on the screen, the newest first. */
const KEPT = 200;
/** Interval at which new results are shown: nobody could read thousands a second one by one. */
const DRAW_MS = 250;
const EVERY_MS = 3000;
const AGAIN_MS = 2000;

export function queryScreen(name) {
  const screen = new QueryScreen(name);
  return { title: name, element: screen.element, close: () => screen.close() };
}

class QueryScreen {
  constructor(name) {
    this.name = name;
    this.path = `queries/${encodeURIComponent(name)}`;
    this.waiting = [];
    this.columns = null;
    this.total = 0;
    this.cursor = undefined;
    this.stopped = false;
    this.errors = h("div", {});
    this.facts = h("dl", { class: "pairs wide" });
    this.acts = h("div", { class: "buttons" });
    this.cql = h("pre", { class: "cql" });
    this.note = h("p", { class: "note", role: "status" });
    this.tableHead = h("tr", {});
    this.tableBody = h("tbody", {});
    this.following = h("button", { type: "button", onclick: () => this.toggle() }, "Hold");
    this.element = h("div", {},
      h("p", {}, h("a", { href: "#/queries" }, "All queries")),
      h("div", { class: "head" }, h("h1", {}, name), this.acts),
      this.errors, this.cql, this.facts,
      h("div", { class: "head" }, h("h2", {}, "Live results"), this.following, this.note),
      h("div", { class: "scroll results", tabindex: 0, role: "region", "aria-label": "Live results" },
        h("table", {}, h("thead", {}, this.tableHead), this.tableBody)));
    this._timers = [setInterval(() => this.draw(), DRAW_MS), setInterval(() => document.hidden || this.load(), EVERY_MS)];
    this.begin();
  }

  close() {
    this.stopped = true;
    this._timers.forEach(clearInterval);
    this.abort?.abort();
  }

  async begin() {
    await this.load();
    if (this.query) this.listen();
  }

  async load() {
    try {
      this.query = await get(this.path);
      this.errors.replaceChildren();
    } catch (error) {
      this.errors.replaceChildren(refusal(error));
      return;
    }
    this.show();
  }

  show() {
    const { query } = this;
    setText(this.cql, query.cql);
    const values = [
      ["State", stateOf(query)],
      ["Paused because", query.paused_because],
      ...streamsOf(query).map((each) => [`Window of ${each.name}`, each.window]),
      ...streamsOf(query).map((each) => [`Filter of ${each.name}`, each.filter ?? "every row"]),
      ["Condition on both", query.residual],
      ["Results so far", `${count(query.results)}, now ${rate(live.rate(`query:${query.id}`))}`],
      ["Complete from", query.complete_from && clock(query.complete_from)],
      ["Sink", sinkText(query)],
      ["Sink failed with", query.sink_observed?.error],
      ["In the plan since version", String(query.plan_version)],
    ];
    this.facts.replaceChildren(...values.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    if (this._desired === query.desired) return;
    this._desired = query.desired;
    const act = (text, run, kind) => action(text, async () => { await run(); await this.load(); }, { where: this.errors, kind });
    this.acts.replaceChildren(
      query.desired === "paused" ? act("Resume", () => resumeQuery(this.name)) : act("Pause", () => pauseQuery(this.name)),
      h("a", { class: "button", href: editHref(this.name) }, "Edit"),
      act("Remove", async () => {
        if (!await confirmed(`Remove ${this.name}? Its results stay readable for as long as results are kept.`, "Remove")) return;
        await removeQuery(this.name);
        location.hash = "#/queries";
      }, "danger"));
  }

  /** Follow results from the last ones on; a broken stream continues where it was. */
  async listen() {
    this.cursor ??= await this.newest();
    while (!this.stopped) {
      this.abort = new AbortController();
      try {
        await follow(`${this.path}/results/stream`, { after: this.cursor }, (event) => this.take(event), this.abort.signal);
      } catch (error) {
        if (error.name === "AbortError") return;
        // These results are no longer kept: continue with the first kept ones.
        if (error.document?.code === "results-expired" || error.document?.code === "invalid-cursor") this.cursor = undefined;
        setText(this.note, `Interrupted: ${error.message}. Trying again …`);
      }
      if (this.ended) return;
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  /** Cursor a little before the newest result, so that some results are shown immediately. */
  async newest() {
    const { batch } = await get("engine");
    return batch === null || batch < 20 ? undefined : `${batch - 20}.0`;
  }

  take({ event, id, data }) {
    if (event === "result") {
      this.cursor = id;
      this.total += 1;
      this.waiting.push(data);
      if (this.waiting.length > KEPT) this.waiting.shift();
    } else if (event === "end") {
      this.ended = true;
      setText(this.note, "The query was removed: these were its last results.");
    } else if (event === "gone") this.cursor = undefined;
  }

  draw() {
    if (this.held || this.ended && !this.waiting.length) return;
    if (this.waiting.length) {
      const names = Object.keys(this.waiting.at(-1));
      if (JSON.stringify(names) !== this.columns) {
        this.columns = JSON.stringify(names);
        this.tableHead.replaceChildren(...names.map((name) => h("th", { scope: "col" }, name === "_event_time" ? "event time" : name)));
        this.tableBody.replaceChildren();
      }
      const rows = this.waiting.splice(0).reverse();
      this.tableBody.prepend(...rows.map((row) => h("tr", {}, names.map((name) => h("td", {}, valueText(row[name]))))));
      while (this.tableBody.childElementCount > KEPT) this.tableBody.lastElementChild.remove();
    }
    if (!this.ended) setText(this.note, this.total ? `${plural(this.total, "result")} since this page was opened` : "Nothing in the last batches; results appear here as they come.");
  }

  toggle() {
    this.held = !this.held;
    setText(this.following, this.held ? "Go on" : "Hold");
    if (this.held) setText(this.note, "Held: what comes meanwhile is shown when you go on.");
  }
}

function valueText(value) {
  if (value === null) return "NULL";
  if (typeof value === "string" && /^\d{4}-\d\d-\d\dT/.test(value)) return value.replace("T", " ").replace(/\.000000Z$|Z$/, "");
  return String(value);
}
