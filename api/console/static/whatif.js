// Preview of a change: a query, or another strategy.

import { Problem, get, getAll, post } from "./api.js";
import { action, addQuery, editQuery, migrate, refusal } from "./acts.js";
import { Chain, axes, clocksOf, scalesOf } from "./chain.js";
import { bytes, count, cpu, h, later, plural, put, short, underlined } from "./dom.js";
import { Editor } from "./editor.js";
import { live } from "./live.js";

/** Pause after the last key before the text is checked. */
const CHECK_MS = 250;
const MOST_STEPS = 60;
/** Interval of checks until a change is in force. */
const PROGRESS_MS = 1000;
const STRATEGIES = ["unshared", "pullup", "pushdown", "mem-opt", "cpu-opt"];

export function whatIfScreen(parameters) {
  const screen = new WhatIfScreen(parameters.get("edit"));
  return { title: "What if", element: screen.element, close: () => screen.close() };
}

class WhatIfScreen {
  constructor(edited) {
    this.edited = edited;
    this.streams = [];
    this.check = 0;
    this.editor = new Editor({ label: "Query in CQL", streams: () => this.streams, onChange: () => this.changed() });
    this.name = h("input", { id: "query-name", value: edited ?? "", disabled: edited !== null, autocomplete: "off", spellcheck: "false", oninput: () => this.changed() });
    this.backfill = h("select", { id: "query-backfill", onchange: () => this.changed() },
      h("option", { value: "state" }, "with rows that are held"), h("option", { value: "none" }, "with new rows alone"));
    this.strategy = h("select", { id: "strategy", onchange: () => this.changed() }, h("option", { value: "" }, "as it is"),
      STRATEGIES.map((name) => h("option", { value: name }, name)));
    this.verdict = h("div", { class: "verdict", role: "status" });
    this.outcome = h("div", { class: "outcome" });
    this.done = h("div", { role: "status" });
    this.refused = h("div", {});
    this.apply = action(edited === null ? "Add the query" : "Change the query", () => this.make(), { where: this.refused, kind: "primary" });
    this.apply.disabled = true;
    this.migrating = action("Migrate to this strategy", () => this.makeStrategy(), { where: this.refused, kind: "primary" });
    this.migrating.hidden = true;
    const field = (label, input) => h("div", { class: "field" }, h("label", { for: input.id }, label), input);
    this.streamsNote = h("details", { class: "streams-note" }, h("summary", {}, "Streams and their columns"));
    this.element = h("div", {},
      h("div", { class: "head" }, h("h1", {}, edited === null ? "What if" : `What if ${edited} changes`)),
      h("div", { class: "what-if" },
        h("section", { class: "panel", "aria-label": "Change" },
          h("div", { class: "fields" }, field("Name", this.name), field("Results begin", this.backfill), field("Strategy of all families", this.strategy)),
          this.editor.element, this.verdict, this.streamsNote,
          h("div", { class: "buttons" }, this.apply, this.migrating), this.refused, this.done),
        h("section", { class: "panel", "aria-label": "Effect" }, this.outcome)));
    this._check = later(() => this.ask(), CHECK_MS);
    this.tell();
    this.begin();
  }

  close() {
    this.closed = true;
    this.abort?.abort();
  }

  async begin() {
    try {
      this.streams = await getAll("streams");
      if (this.edited !== null) {
        const query = await get(`queries/${encodeURIComponent(this.edited)}`);
        this.editor.text = query.cql;
      }
    } catch (error) {
      this.refused.replaceChildren(refusal(error));
      return;
    }
    this.streamsNote.append(this.streams.length === 0 ? h("p", {}, "No stream is registered yet.") : h("dl", { class: "pairs" },
      this.streams.map((stream) => h("div", {}, h("dt", {}, stream.name),
        h("dd", { class: "cql-columns" }, Object.entries(stream.columns).map(([column, type]) => `${column} ${type}`).join(", "))))));
    this.changed();
  }

  tell() {
    put(this.outcome, h("h2", {}, "Effect"), h("p", { class: "note" },
      "Write a query or choose a strategy: this side shows how the chains would change, what every strategy would cost, and which steps would be taken. Nothing is changed until you say so."));
  }

  changed() {
    this.apply.disabled = true;
    this.migrating.hidden = true;
    this.done.replaceChildren();
    this.refused.replaceChildren();
    this._check();
  }

  /** Let the service validate the text and preview the change. */
  async ask() {
    if (this.closed) return;
    this.abort?.abort();
    const { signal } = (this.abort = new AbortController());
    const cql = this.editor.text.trim() ? this.editor.text : null;
    const strategy = this.strategy.value;
    if (cql === null && !strategy) {
      put(this.verdict);
      this.tell();
      return;
    }
    try {
      if (cql !== null) {
        const bound = await post("queries:validate", { cql, backfill: this.backfill.value }, {}, signal);
        this.editor.mark(null);
        put(this.verdict, h("p", { class: "good" }, "✓ The query can run. "),
          h("p", { class: "note" }, `Results: ${bound.columns.map((column) => `${column.name} ${column.type}`).join(", ")}`));
      } else put(this.verdict);
      const name = this.edited ?? (this.name.value.trim() || "new_query");
      const preview = await post("plan:preview", {
        add: cql === null ? [] : [{ name, cql, backfill: this.backfill.value }],
        remove: cql !== null && this.edited !== null ? [this.edited] : [],
        ...(strategy ? { strategy } : {}),
      }, {}, signal);
      this.show(preview);
      this.apply.disabled = cql === null || Boolean(strategy);
      this.migrating.hidden = !strategy || cql !== null;
      if (strategy && cql !== null) this.verdict.append(h("p", { class: "note" }, "A query and a strategy are applied one after the other: set the strategy back to apply the query."));
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof Problem)) throw error;
      this.wrong(error);
    }
  }

  wrong(error) {
    const fault = error.document.errors?.find((each) => each.line) ?? null;
    this.editor.mark(fault);
    put(this.verdict, h("p", { class: "bad" }, h("strong", {}, `✗ ${error.message}`)),
      error.document.explanation && h("p", {}, error.document.explanation),
      error.hint && h("p", {}, error.hint),
      fault?.underline && underlined(fault.underline),
      fault && h("button", { type: "button", onclick: () => this.editor.goTo(fault) }, `Go to line ${fault.line}, column ${fault.column}`));
    put(this.outcome, h("h2", {}, "Effect"), h("p", { class: "note" }, "What the change would do is shown once the query is right."));
  }

  show(preview) {
    const changed = new Set(preview.primitives.map((step) => step.family_id));
    const families = preview.plan.families.filter((family) => changed.has(family.id));
    const shown = families.length ? families : preview.plan.families;
    const before = new Map((live.plan?.families ?? []).map((family) => [family.id, family]));
    const moved = preview.rows_moved === null ? "" : ` ${plural(preview.rows_moved, "held row")} would move to another slice at most.`;
    put(this.outcome,
      h("h2", {}, "Effect"),
      h("p", {}, preview.primitives.length === 0 ? "The chains stay as they are." : `${plural(preview.primitives.length, "step")} from plan version ${preview.previous_version} to ${preview.plan.version}.${moved}`));
    for (const family of shown.slice(0, 4)) {
      this.outcome.append(h("section", { class: "preview-family" }, h("h3", {}, family.title),
        ...this._chains(before.get(family.id), family), costs(family)));
    }
    if (shown.length > 4) this.outcome.append(h("p", { class: "note" }, `and ${plural(shown.length - 4, "more family")}`));
    if (preview.primitives.length) {
      this.outcome.append(h("h3", {}, "Steps"), h("ol", { class: "steps" },
        preview.primitives.slice(0, MOST_STEPS).map((step) => h("li", {}, h("span", { class: "badge" }, step.type), " ", step.text))));
      if (preview.primitives.length > MOST_STEPS) this.outcome.append(h("p", { class: "note" }, `and ${count(preview.primitives.length - MOST_STEPS)} more`));
    }
  }

  /** Chains before and after the change, one below the other. */
  _chains(now, then) {
    const joins = then.joins.slice(0, 6);
    const slices = (side) => [...(now?.joins ?? []), ...then.joins].flatMap((join) => join.chains[side]);
    const scales = scalesOf(clocksOf(then), { a: slices("a"), b: slices("b") });
    const width = Math.max(this.outcome.clientWidth - 130, 160);
    const lane = (name, element) => h("div", { class: "lane narrow" }, h("span", { class: "lane-name" }, name), element);
    const chain = (title, side, pieces_, marks) => lane(title, new Chain({ pieces: pieces_, scale: scales[side], side, widthPx: width, label: title, marks }).element);
    const rows = axes(scales, width).map(([name, axis]) => lane(name, axis));
    for (const join of joins) {
      const former = now?.joins.find((each) => each.id === join.id);
      for (const side of ["a", "b"]) {
        const stream = then.streams[side].name + (then.joins.length > 1 ? ` · ${join.id}` : "");
        if (former) rows.push(chain(`${stream} now`, side, former.chains[side], marksOf(former.chains[side], join.chains[side], "gone")));
        rows.push(chain(`${stream} then`, side, join.chains[side], former ? marksOf(join.chains[side], former.chains[side], "new") : new Map()));
      }
    }
    if (then.joins.length > joins.length) rows.push(h("p", { class: "note" }, `and ${plural(then.joins.length - joins.length, "more join")}`));
    return [h("p", { class: "note" }, "+ and a thick line: a slice that comes; − and a dashed line: one that goes."), h("div", { class: "preview-chains" }, rows)];
  }

  async make() {
    const name = this.edited ?? this.name.value.trim();
    const body = { cql: this.editor.text, backfill: this.backfill.value };
    const query = this.edited === null ? await addQuery({ name, ...body }) : await editQuery(name, body);
    this.tell();
    await this.progress(query, async () => get(`queries/${encodeURIComponent(name)}`), (now) => now.observed !== "pending",
      (now, over) => [over ? `✓ ${name} ${now.observed === "running" ? "runs" : `is ${now.observed}`}. ` : `${name} was accepted, and takes effect with plan version ${now.plan_version} … `,
        h("a", { href: `#/queries/${encodeURIComponent(name)}` }, "See its results")]);
  }

  async makeStrategy() {
    const migration = await migrate({ strategy: this.strategy.value });
    this.tell();
    await this.progress(migration, async () => get(`migrations/${migration.id}`), (now) => now.status !== "pending",
      (now) => [`Migration ${now.id} is ${now.status}${now.error ? `: ${now.error.detail}` : ""}. `, h("a", { href: "#/engine" }, "See migrations")]);
    this.migrating.hidden = true;
    this.strategy.value = "";
  }

  /** Show the progress of a change until it is finished or the screen is closed; the change itself continues. */
  async progress(made, look, isOver, words) {
    for (let now = made; ; now = await look()) {
      const over = isOver(now);
      put(this.done, h("p", { class: over ? "good" : "note" }, words(now, over)));
      if (over || this.closed) break;
      await new Promise((resolve) => setTimeout(resolve, PROGRESS_MS));
    }
    await live.look();
  }
}

/** Slices of one chain that the other chain does not have, by index. */
function marksOf(pieces, others, mark) {
  const there = new Set(others.map((piece) => `${piece.w_start_us}|${piece.w_end_us}`));
  return new Map(pieces.map((piece, index) => [index, there.has(`${piece.w_start_us}|${piece.w_end_us}`) ? null : mark]).filter(([, each]) => each));
}

/** Cost of each strategy, with bars relative to the most expensive. */
export function costs(family) {
  const names = Object.keys(family.costs ?? {});
  if (!names.length) return "";
  const most = (key) => Math.max(...names.map((name) => family.costs[name][key]), 1e-300);
  const columns = [["memory_rows", "Rows held", short], ["memory_bytes", "Bytes held", bytes], ["cpu_s_per_s", "CPU per s of event time", cpu], ["cpu_comparisons_per_s", "Comparisons/s", short]];
  const cell = (name, [key, , shown]) => {
    const bar = h("i", { class: "meter" });
    bar.style.width = `${(family.costs[name][key] / most(key)) * 100}%`;
    return h("td", { class: "number" }, shown(family.costs[name][key]), h("span", { class: "meter-room", "aria-hidden": "true" }, bar));
  };
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Costs of strategies for ${family.title}` }, h("table", { class: "costs" },
    h("caption", {}, "Expected cost of every strategy, from the same rates and selectivities"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Strategy"), columns.map(([, title]) => h("th", { scope: "col", class: "number" }, title)))),
    h("tbody", {}, names.map((name) => h("tr", { class: name === family.strategy ? "chosen" : "" },
      h("th", { scope: "row" }, name, name === family.strategy ? " (chosen)" : ""), columns.map((column) => cell(name, column)))))));
}
