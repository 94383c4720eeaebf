// The shared plan as a living picture.

import { about, bytes, count, duration, h, moment, plural, rate, setText, short } from "./dom.js";
import { Chain, axes, clocksOf, legend, lengthText, scalesOf, windowText } from "./chain.js";
import { live } from "./live.js";

/** Number of queries of a family above which they are shown in groups. */
const MOST_ROWS = 40;
/** Number of distinct windows above which a group has windows of similar length. */
const MOST_GROUPS = 40;
/** Families and joins that are drawn before the viewer asks for more. */
const MOST_FAMILIES = 8;
const MOST_JOINS = 12;

const span = (us) => (us === null ? Infinity : us);

export function planScreen() {
  const screen = new PlanScreen();
  return { title: "Plan", element: screen.element, close: () => screen.close() };
}

class PlanScreen {
  constructor() {
    this.grouping = "auto";
    this.mode = "auto";
    this.version = null;
    this.families = [];
    this.pinned = false;
    this.facts = h("dl", { class: "facts" });
    this.note = h("p", { class: "note", role: "status" });
    this.picture = h("div", { class: "picture" });
    this.inspector = h("aside", { class: "inspector", "aria-label": "What is chosen", "aria-live": "polite" });
    this.element = h(
      "div",
      { class: "plan-screen" },
      h("div", { class: "head" }, h("h1", {}, "Plan"), this.facts, this._choices()),
      this.note,
      h("div", { class: "with-inspector" }, this.picture, this.inspector),
    );
    this.inspect(null);
    this._look = () => this.update();
    this._escape = (event) => event.key === "Escape" && this.unpin();
    this._resize = new ResizeObserver(() => this._resized());
    this._resize.observe(this.picture);
    live.addEventListener("look", this._look);
    document.addEventListener("keydown", this._escape);
    this.update();
  }

  close() {
    live.removeEventListener("look", this._look);
    document.removeEventListener("keydown", this._escape);
    this._resize.disconnect();
  }

  _choices() {
    const choose = (label, id, options, chosen) => {
      const select = h("select", { id, onchange: () => chosen(select.value) },
        options.map(([value, text]) => h("option", { value }, text)));
      return h("div", { class: "choice" }, h("label", { for: id }, label), select);
    };
    return h(
      "div",
      { class: "choices" },
      choose("Queries", "grouping", [["auto", "as they fit"], ["window", "by window"], ["filter", "by filter"], ["none", "one by one"]],
        (value) => { this.grouping = value; this.draw(); }),
      choose("Axis", "axis-mode", [["auto", "as it fits"], ["linear", "to scale"], ["log", "logarithmic"]],
        (value) => { this.mode = value; this.draw(); }),
    );
  }

  _resized() {
    const width = this.picture.clientWidth;
    if (this.width !== undefined && Math.abs(width - this.width) > 8) this.draw();
    this.width = width;
  }

  update() {
    const { plan, statistics } = live;
    if (plan === null || statistics === null) {
      setText(this.note, live.problem ? "" : "Waiting for the first answer …");
      return;
    }
    if (plan.version !== this.version) this.draw();
    const inForce = statistics.plan_version;
    setText(this.note, plan.families.length === 0
      ? "No query runs yet. The screen What if has an editor for the first one."
      : inForce === plan.version ? "" : `Version ${plan.version} takes effect with the next batch; counts are of version ${inForce}.`);
    this._updateFacts(plan, statistics);
    const held = new Map(statistics.slices.map((slice) => [`${slice.family}|${slice.join}|${slice.side}|${slice.slice}`, slice]));
    const streams = new Map(statistics.streams.map((stream) => [stream.stream, stream]));
    const selectivity = new Map(statistics.filters.map((f) => [`${f.stream}|${f.filter}`, f.selectivity]));
    const newest = Math.max(...statistics.streams.map((stream) => stream.max_event_time_us ?? -Infinity));
    const totals = new Map(statistics.families.map((each) => [each.family, each]));
    for (const family of this.families) family.update({ held: inForce === plan.version ? held : new Map(), streams, selectivity, newest, totals });
    if (this.chosen) this.inspect(this.chosen);
  }

  _updateFacts(plan, statistics) {
    // A query over three streams or more is in a family for each of its joins.
    const queries = new Set(plan.families.flatMap((family) => family.queries.map((query) => query.id))).size;
    const values = {
      Version: String(plan.version),
      Strategy: plan.strategy,
      Queries: count(queries),
      "Rows read": rate(live.rate("rows")),
      "Rows held": short(statistics.state_rows),
      "Bytes held": bytes(statistics.state_bytes),
    };
    if (!this._values) {
      this._values = {};
      this.facts.replaceChildren(...Object.keys(values).map((name) => {
        this._values[name] = h("dd", {});
        return h("div", {}, h("dt", {}, name), this._values[name]);
      }));
    }
    for (const [name, value] of Object.entries(values)) setText(this._values[name], value);
  }

  draw() {
    if (live.plan === null) return;
    this.version = live.plan.version;
    this.pinned = false;
    this.inspect(null);
    this.families = live.plan.families.map((family, index) => new FamilyView(this, family, index < MOST_FAMILIES));
    this.picture.replaceChildren(...(this.families.length ? [legend()] : []), ...this.families.map((family) => family.element));
    for (const family of this.families) family.drawIfOpen();
    if (live.statistics !== null && this.families.length) this.update();
  }

  /** Show the selected item, or instructions for `null`. */
  inspect(chosen) {
    this.chosen = chosen;
    this.inspector.classList.toggle("idle", chosen === null);
    if (chosen === null) {
      this.inspector.replaceChildren(h("p", { class: "note" },
        "Point at a query to light its slices, at a slice to light its queries. Click to keep it, Escape to let go; with the keyboard, Tab to a chain, then the arrow keys and Enter."));
    } else this.inspector.replaceChildren(...chosen());
  }

  unpin() {
    this.pinned = false;
    for (const family of this.families) family.unlight();
    this.inspect(null);
  }
}

class FamilyView {
  constructor(screen, family, open) {
    this.screen = screen;
    this.family = family;
    this.clocks = clocksOf(family);
    this.drawn = false;
    this.chains = [];
    this.rows = [];
    this.counts = new Map();
    this.body = h("div", { class: "family-body" });
    const queries = plural(family.queries.length, "query");
    const joins = family.joins.length === 1 ? "one join" : plural(family.joins.length, "join");
    this.element = h(
      "details",
      { class: "family", open, ontoggle: () => this.drawIfOpen() },
      h("summary", {}, h("h2", {}, family.title), h("span", { class: "badge" }, family.strategy), h("span", { class: "note" }, `${queries}, ${joins}`)),
      this.body,
    );
    /** Joins that answer each query. */
    this.joinsOf = new Map();
    for (const join of family.joins) {
      for (const name of join.queries) {
        if (!this.joinsOf.has(name)) this.joinsOf.set(name, new Set());
        this.joinsOf.get(name).add(join.id);
      }
    }
  }

  drawIfOpen() {
    if (this.drawn || !this.element.open) return;
    this.drawn = true;
    const { family } = this;
    const slices = (side) => family.joins.flatMap((join) => join.chains[side]);
    this.scales = scalesOf(this.clocks, { a: slices("a"), b: slices("b") }, this.screen.mode);
    const width = this.axisWidth();
    this.streams = { a: this._streamFacts("a"), b: this._streamFacts("b") };
    const joins = h("div", { class: "joins" });
    const draw = (some) => joins.append(...some.flatMap((join) => this._join(join, width)));
    draw(family.joins.slice(0, MOST_JOINS));
    const rest = family.joins.slice(MOST_JOINS);
    const more = rest.length > 0 && h("button", { type: "button", onclick: () => { more.remove(); draw(rest); this.screen.update(); } }, `Draw ${plural(rest.length, "more join")}`);
    this.list = h("ul", { class: "query-rows" });
    this.body.replaceChildren(
      h("div", { class: "streams" }, this.streams.a.element, this.streams.b.element),
      this._filters(),
      ...axes(this.scales, width).map(([name, axis]) => h("div", { class: "lane axis-lane" }, h("span", { class: "note lane-name" }, name), axis, h("span", {}))),
      joins,
      more || "",
      this._queryRows(),
    );
    if (this.screen.version === live.plan?.version && live.statistics) this.screen.update();
  }

  axisWidth() {
    const wide = this.screen.picture.clientWidth || 800;
    return wide < 620 ? wide - 20 : wide - 346;
  }

  _streamFacts(side) {
    const { name } = this.family.streams[side];
    const values = {};
    const fact = (label, title) => {
      values[label] = h("dd", {});
      return h("div", { title }, h("dt", {}, label), values[label]);
    };
    return {
      values,
      element: h("section", { class: `stream side-${side}`, "aria-label": `Stream ${name}` },
        h("h3", {}, h("span", { class: `swatch side-${side}`, "aria-hidden": "true" }), name),
        h("dl", {}, fact("Rows", "Rows read per second of wall clock"), fact("Watermark", "No row below it is taken any more"),
          fact("Lag", "Watermark behind the newest event of all streams"), fact("Held", "Rows and encoded bytes in the slices"))),
    };
  }

  _filters() {
    const { filters, streams } = this.family;
    const total = filters.a.length + filters.b.length;
    if (total === 0) return h("p", { class: "note" }, "No filters: every row takes part.");
    this.filterTexts = [];
    const chip = (side, filter) => {
      const share = h("span", { class: "share" });
      this.filterTexts.push([share, `${streams[side].name}|${filter.sql}`]);
      const using = () => this.family.queries.filter((query) => query.filter[side] === filter.text);
      return h("li", {}, h("button", {
        type: "button", class: `chip side-${side}`,
        onpointerenter: () => this.hoverQueries(using()), onpointerleave: () => this.leave(),
        onfocus: () => this.hoverQueries(using()), onblur: () => this.leave(),
        onclick: () => this.pinQueries(using(), filter.text),
      }, filter.text, " ", share));
    };
    const list = h("ul", { class: "chips" });
    const fill = () => list.childElementCount || list.append(
      ...filters.a.map((filter) => chip("a", filter)), ...filters.b.map((filter) => chip("b", filter)));
    const details = h("details", { class: "filters", open: total <= 8, ontoggle: () => { if (details.open) { fill(); this.screen.update(); } } },
      h("summary", {}, `${plural(total, "distinct filter")}, each evaluated once per row`), list);
    if (details.open) fill();
    return details;
  }

  _join(join, width) {
    const several = this.family.joins.length > 1;
    return ["a", "b"].map((side) => {
      const name = this.family.streams[side].name;
      const pieces = join.chains[side];
      const view = { join: join.id, side, pieces };
      view.chain = new Chain({
        pieces, scale: this.scales[side], side, widthPx: width,
        label: `Slices of ${name}${several ? `, join ${join.id}` : ""}`,
        onHover: (index) => (index === null ? this.leave() : this.hoverSlice(view, index)),
        onPick: (index) => this.pinSlice(view, index),
      });
      view.held = h("span", { class: "lane-number" });
      this.chains.push(view);
      return h("div", { class: "lane" },
        h("span", { class: "lane-name" }, h("span", { class: `swatch side-${side}`, "aria-hidden": "true" }), several ? `${name} · ${join.id}` : name),
        view.chain.element, view.held);
    });
  }

  _queryRows() {
    const groups = groupsOf(this.family, this.screen.grouping);
    this.list.replaceChildren(...groups.map((group) => this._row(group)));
    return h("section", { class: "queries-of-plan" },
      h("h3", {}, groups.length < this.family.queries.length ? `Queries in ${plural(groups.length, "group")}` : "Queries"), this.list);
  }

  _row(group) {
    const single = group.queries.length === 1;
    const number = h("span", { class: "lane-number" });
    const row = { queries: group.queries, number };
    const [query] = group.queries;
    const bar = (side) => {
      const longest = Math.max(...group.queries.map((each) => span(each.window_us[side])));
      const element = h("i", { class: `bar side-${side}` });
      element.style.width = `${this.scales[side].at(longest)}%`;
      return element;
    };
    let opened = null;
    const toggle = h("button", { type: "button", class: "group-name", "aria-expanded": "false", title: group.label }, group.label);
    toggle.addEventListener("click", () => {
      if (opened) {
        const gone = new Set(opened);
        this.rows = this.rows.filter((each) => !gone.has(each.element));
        opened.forEach((element) => element.remove());
        opened = null;
      } else {
        opened = group.queries.map((each) => this._row({ label: each.name, queries: [each] }));
        opened.forEach((element) => element.classList.add("inner"));
        row.element.after(...opened);
        this.updateRates();
      }
      toggle.setAttribute("aria-expanded", String(opened !== null));
    });
    const name = single
      ? h("a", { href: `#/queries/${encodeURIComponent(query.name)}`, title: query.name }, query.name)
      : toggle;
    row.element = h("li", {
      class: "lane query-row",
      onpointerenter: () => this.hoverQueries(group.queries), onpointerleave: () => this.leave(),
      onfocusin: () => this.hoverQueries(group.queries), onfocusout: () => this.leave(),
      onclick: (event) => { if (!event.target.closest("a, button")) this.pinQueries(group.queries, group.label); },
    }, h("span", { class: "lane-name" }, name), h("span", { class: "bars", "aria-hidden": "true" }, bar("a"), bar("b")), number);
    this.rows.push(row);
    return row.element;
  }

  update({ held, streams, selectivity, newest, totals }) {
    if (!this.drawn) return;
    this.counts = held;
    this.totals = totals.get(this.family.id) ?? null;
    const { family } = this;
    const of = (view, index) => held.get(`${family.id}|${view.join}|${view.side}|${view.pieces[index].slice}`) ?? null;
    let most = 0;
    const sums = { a: [0, 0], b: [0, 0] };
    for (const view of this.chains) {
      let rows = 0;
      view.pieces.forEach((_, index) => {
        const counters = of(view, index);
        if (counters === null) return;
        rows += counters.rows;
        sums[view.side][0] += counters.rows;
        sums[view.side][1] += counters.bytes;
        most = Math.max(most, counters.rows);
      });
      setText(view.held, held.size ? `${short(rows)} rows` : "");
    }
    for (const view of this.chains) view.chain.update((index) => of(view, index)?.rows ?? null, most);
    for (const side of ["a", "b"]) {
      const { name } = family.streams[side];
      const stream = streams.get(name);
      const { values } = this.streams[side];
      setText(values.Rows, rate(live.rate(`stream:${name}`)));
      setText(values.Watermark, moment(stream?.watermark_us));
      setText(values.Lag, stream?.watermark_us == null ? "–" : about(newest - stream.watermark_us));
      setText(values.Held, held.size ? `${short(sums[side][0])} rows, ${bytes(sums[side][1])}` : "–");
    }
    for (const [element, key] of this.filterTexts ?? []) {
      const share = selectivity.get(key);
      setText(element, share === undefined ? "" : `${short(share * 100)} %`);
    }
    this.updateRates();
  }

  updateRates() {
    for (const row of this.rows) {
      let sum = null;
      for (const query of row.queries) {
        const found = live.rate(`query:${query.id}`);
        if (found !== null) sum = (sum ?? 0) + found;
      }
      setText(row.number, sum === null ? "" : rate(sum));
    }
  }

  // Highlighting.

  reaches(query, join, side, piece) {
    return span(query.window_us[side]) > piece.w_start_us && this.joinsOf.get(query.name)?.has(join) === true;
  }

  light(queries, isLit) {
    const chosen = new Set(queries);
    this.element.classList.add("lighting");
    for (const view of this.chains) view.chain.light((index) => isLit(view, index));
    for (const row of this.rows) row.element.classList.toggle("lit", row.queries.some((query) => chosen.has(query)));
  }

  unlight() {
    this.element.classList.remove("lighting");
    for (const row of this.rows) row.element.classList.remove("lit");
    for (const view of this.chains) {
      view.chain.light(null);
      view.chain.pick(-1);
    }
  }

  lightQueries(queries) {
    // The longest window in each join decides, so that a group of hundreds needs one test per slice.
    const longest = new Map();
    for (const query of queries) {
      for (const join of this.joinsOf.get(query.name) ?? []) {
        for (const side of ["a", "b"]) {
          const key = `${join}|${side}`;
          longest.set(key, Math.max(longest.get(key) ?? 0, span(query.window_us[side])));
        }
      }
    }
    this.light(queries, (view, index) => (longest.get(`${view.join}|${view.side}`) ?? 0) > view.pieces[index].w_start_us);
  }

  lightSlice(view, index) {
    const queries = this.family.queries.filter((query) => this.reaches(query, view.join, view.side, view.pieces[index]));
    this.light(queries, (other, at) => other === view && at === index);
  }

  hoverQueries(queries) {
    if (this.screen.pinned) return;
    this.lightQueries(queries);
    this.screen.inspect(() => this._aboutQueries(queries));
  }

  hoverSlice(view, index) {
    if (this.screen.pinned) return;
    this.lightSlice(view, index);
    this.screen.inspect(() => this._aboutSlice(view, index));
  }

  leave() {
    if (this.screen.pinned) return;
    this.unlight();
    this.screen.inspect(null);
  }

  pinQueries(queries, label) {
    this.screen.unpin();
    this.lightQueries(queries);
    this.screen.inspect(() => this._aboutQueries(queries, label));
    this.screen.pinned = true;
  }

  pinSlice(view, index) {
    this.screen.unpin();
    this.lightSlice(view, index);
    view.chain.pick(index);
    this.screen.inspect(() => this._aboutSlice(view, index));
    this.screen.pinned = true;
  }

  _aboutQueries(queries, label) {
    const { streams } = this.family;
    if (queries.length !== 1) {
      return [h("h3", {}, label ?? plural(queries.length, "query")),
        h("p", {}, `${count(queries.length)} queries.`),
        h("ul", { class: "names" }, queries.slice(0, 12).map((query) => h("li", {}, h("a", { href: `#/queries/${query.name}` }, query.name)))),
        queries.length > 12 ? h("p", { class: "note" }, `and ${count(queries.length - 12)} more`) : ""];
    }
    const [query] = queries;
    return [h("h3", {}, query.name),
      facts([
        [`Window of ${streams.a.name}`, lengthText(query.window_us.a, this.clocks.a)],
        [`Window of ${streams.b.name}`, lengthText(query.window_us.b, this.clocks.b)],
        [`Filter of ${streams.a.name}`, query.filter.a ?? "every row"],
        [`Filter of ${streams.b.name}`, query.filter.b ?? "every row"],
        ["Condition on both", query.residual],
        ["Results", rate(live.rate(`query:${query.id}`))],
      ])];
  }

  _aboutSlice(view, index) {
    const piece = view.pieces[index];
    const counters = this.counts.get(`${this.family.id}|${view.join}|${view.side}|${piece.slice}`);
    const queries = this.family.queries.filter((query) => this.reaches(query, view.join, view.side, piece));
    const texts = new Map(this.family.filters[view.side].map((filter) => [filter.bit, filter.text]));
    const keep = piece.keep_bits === null ? "every row" : piece.keep_bits.map((bit) => texts.get(bit)).join(" or ");
    return [h("h3", {}, `${this.family.streams[view.side].name}, slice ${piece.slice}`),
      facts([
        ["Rows behind", windowText(piece, this.clocks[view.side])],
        ["Kept on entry", keep.length > 300 ? `${keep.slice(0, 300)} …` : keep],
        ["Its end", piece.lazy_end ? "lazy: rows may stay longer, since cutting them apart would save nothing" : "exact"],
        ["Rows held", counters && count(counters.rows)],
        ["Bytes held", counters && bytes(counters.bytes)],
        ["Last batch: probed by", counters && plural(counters.males, "row")],
        ["moved in", counters && count(counters.inserted + counters.moved_in)],
        ["filtered out", counters && count(counters.filtered)],
        ["let go", counters && count(counters.purged)],
        ["left early, needed by no query", counters?.left ? count(counters.left) : null],
        ["not stored, key closed", counters && (counters.discarded ? count(counters.discarded) : null)],
        ["removed, key closed", counters && (counters.closed ? count(counters.closed) : null)],
        ["still held, key closed", counters && (counters.dead ? count(counters.dead) : null)],
        ["pairs", counters && count(counters.results)],
        ["Feeds", `${count(queries.length)} of ${plural(this.family.queries.length, "query")}`],
        ...this._aboutPartners(view.side),
      ]),
      h("ul", { class: "names" }, queries.slice(0, 8).map((query) => h("li", {}, query.name))),
      queries.length > 8 ? h("p", { class: "note" }, `and ${count(queries.length - 8)} more`) : ""];
  }

  /** Rows of a side that outer, semi and anti joins judge; empty without such joins. */
  _aboutPartners(side) {
    const of = (name) => this.totals?.[`${name}_${side}`] ?? null;
    if (of("marks") === null) return [];
    return [
      ["Whole stream: undecided rows", count(of("undecided"))],
      ["marks held", count(of("marks"))],
      ["Last batches: absent", count(of("absent"))],
      ["first matches", count(of("matched"))],
      ["left early", count(of("left"))],
    ];
  }
}

function facts(pairs) {
  return h("dl", { class: "pairs" }, pairs.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** Rows of the list of queries: groups, or queries one by one. */
export function groupsOf(family, grouping) {
  const { queries, streams } = family;
  const clocks = clocksOf(family);
  const by = grouping === "auto" ? (queries.length > MOST_ROWS ? "window" : "none") : grouping;
  const ordered = [...queries].sort((x, y) =>
    span(x.window_us.a) + span(x.window_us.b) - span(y.window_us.a) - span(y.window_us.b) || x.name.localeCompare(y.name));
  if (by === "none") return ordered.map((query) => ({ label: query.name, queries: [query] }));
  let label = (query) => `${streams.a.name} ${lengthText(query.window_us.a, clocks.a)}, ${streams.b.name} ${lengthText(query.window_us.b, clocks.b)}`;
  if (by === "filter") {
    label = (query) => [query.filter.a, query.filter.b].filter(Boolean).join(" and ") || "no filter";
  } else if (clocks.a === "time" && clocks.b === "time" && new Set(ordered.map(label)).size > MOST_GROUPS) label = bandLabel;
  const groups = new Map();
  for (const query of ordered) {
    const key = label(query);
    if (!groups.has(key)) groups.set(key, { key, queries: [] });
    groups.get(key).queries.push(query);
  }
  return [...groups.values()].map((group) => ({
    label: group.queries.length === 1 ? group.queries[0].name : `${group.key} (${count(group.queries.length)})`,
    queries: group.queries,
  }));
}

const BANDS = [0, 1e6, 2e6, 5e6, 1e7, 3e7, 6e7, 12e7, 3e8, 6e8, 18e8, 36e8, 72e8, 216e8, 432e8, 864e8, 6048e8];

/** The range of window lengths that includes the longer window of a query. */
function bandLabel(query) {
  const longest = Math.max(span(query.window_us.a), span(query.window_us.b));
  if (longest === Infinity) return "windows without end";
  const at = BANDS.findLastIndex((from) => from < longest);
  return BANDS[at + 1] === undefined ? `windows beyond ${duration(BANDS[at])}` : `windows up to ${duration(BANDS[at + 1])}`;
}
