// The engine: its state, its last batches by their parts, migrations and rollback.

import { get, getAll, post } from "./api.js";
import { action, confirmed, migrate, refusal } from "./acts.js";
import { bytes, clock, count, cpu, h, plural, put, s, seconds, setText, short } from "./dom.js";
import { live } from "./live.js";

const EVERY_MS = 3000;
const BATCHES = 40;
const VERSIONS = 30;

/** Remedies for states from which the service does not recover by itself. */
const ADVICE = {
  failed: "Look at the error. Restart once its cause is gone; a batch that fails the same way again and again can be skipped, which leaves its rows out.",
  paused: "Somebody paused it. Resume to go on with the batch after the last one.",
  stopped: "No process runs the engine. Start one: sluice serve, or sluice engine.",
  standby: "Another process is at work; this one takes over when that ends.",
};

export function engineScreen() {
  const screen = new EngineScreen();
  return { title: "Engine", element: screen.element, close: () => screen.close() };
}

class EngineScreen {
  constructor() {
    this.errors = h("div", {});
    this.state = h("div", { class: "panel" });
    this.chart = h("div", {});
    this.table = h("tbody", {});
    this.migrations = h("tbody", {});
    this.versions = h("tbody", {});
    this.buckets = h("p", {});
    const control = (text, path, kind) => action(text, () => post(path), { where: this.errors, kind });
    this.element = h("div", {},
      h("div", { class: "head" }, h("h1", {}, "Engine"), h("div", { class: "buttons" },
        control("Pause", "engine:pause"), control("Resume", "engine:resume"),
        action("Restart", async () => {
          if (await confirmed("Stop the job and start it again from its checkpoint? No result is lost; it takes some seconds.", "Restart")) await post("engine:restart");
        }, { where: this.errors }),
        action("Skip the failing batch", async () => {
          if (await confirmed("Leave out the rows of the batch that failed three times? They go to dead_letters/ in the data directory, and results that they would have had never come.", "Skip")) await post("engine:skip", {});
        }, { where: this.errors, kind: "danger" }))),
      this.errors, this.state,
      h("section", { class: "panel", "aria-label": "Batches" }, h("h2", {}, "Batches"), this.buckets, this.chart,
        scroll("The last batches", h("table", {}, head(["Batch", "Committed", "Took", "Read and pack, CPU", "Chain, CPU", "Hottest bucket", "Rows", "Late", "Rejected", "Rows held", "Bytes held", "Plan"]), this.table))),
      h("section", { class: "panel", "aria-label": "Plan versions" }, h("h2", {}, "Plan versions"),
        h("p", { class: "note" }, "Going back takes the strategies and chains of a version for the queries that run now."),
        scroll("Table of plan versions", h("table", {}, head(["Version", "Made", "By", "Why", "Steps", ""]), this.versions))),
      h("section", { class: "panel", "aria-label": "Migrations" }, h("h2", {}, "Migrations"),
        scroll("Table of migrations", h("table", {}, head(["Migration", "State", "Asked", "By", "What", "First batch", "Steps"]), this.migrations))));
    this._look = () => this.showState();
    live.addEventListener("look", this._look);
    this._timer = setInterval(() => document.hidden || this.load(), EVERY_MS);
    this.showState();
    this.load();
  }

  close() {
    live.removeEventListener("look", this._look);
    clearInterval(this._timer);
  }

  showState() {
    const { engine } = live;
    if (engine === null) return;
    const pairs = [
      ["State", `${engine.state} since ${clock(engine.state_at)}`],
      ["What to do", ADVICE[engine.state]],
      ["Last batch", engine.batch === null ? "none yet" : count(engine.batch)],
      ["Plan in force", `version ${engine.plan_version}`],
      ["Failures in a row", engine.failures ? count(engine.failures) : null],
      ["Next try", engine.next_try_at && clock(engine.next_try_at)],
      ["Input held", engine.input_held],
      ["Run", engine.run_id],
    ];
    const text = JSON.stringify([pairs, engine.error]);
    if (this._shown === text) return;
    this._shown = text;
    put(this.state, h("dl", { class: "pairs wide" }, pairs.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
      engine.error && h("div", { class: "refusal", role: "alert" }, h("pre", {}, engine.error)),
      engine.spark_ui && h("p", {}, h("a", { href: engine.spark_ui, rel: "noreferrer" }, "Spark’s own page")));
  }

  async load() {
    try {
      const [batches, migrations, versions] = await Promise.all([
        get("engine/batches", { limit: BATCHES }),
        getAll("migrations"),
        get("plan/versions", { after: Math.max((live.plan?.version ?? 0) - VERSIONS, 0), limit: VERSIONS }),
      ]);
      this.showBatches(batches.items);
      this.showMigrations(migrations.slice(-VERSIONS).reverse());
      this.showVersions([...versions.items].reverse());
    } catch (error) {
      this.errors.replaceChildren(refusal(error));
    }
  }

  showBatches(items) {
    if (items.length === 0) {
      setText(this.buckets, "No batch yet.");
      return;
    }
    const last = items.at(-1);
    setText(this.buckets, last.buckets ? `${plural(last.buckets, "bucket")} share the work; the hottest one of the last batch did ${last.hottest_bucket_work === null ? "nothing" : `${short(last.hottest_bucket_work)} times the mean`}.` : "");
    this.chart.replaceChildren(bars(items));
    this.table.replaceChildren(...[...items].reverse().slice(0, 12).map((batch) => h("tr", {},
      h("th", { scope: "row" }, count(batch.batch)), h("td", {}, clock(batch.committed_at)), number(seconds(batch.seconds)), number(cpu(batch.pack_cpu_s)), number(cpu(batch.chain_cpu_s)),
      number(batch.hottest_bucket_work === null ? "–" : `${short(batch.hottest_bucket_work)} × mean, ${cpu(batch.hottest_bucket_cpu_s)}`),
      number(count(batch.rows)), number(count(batch.late_rows)), number(count(batch.rejected_rows)), number(short(batch.state_rows)), number(bytes(batch.state_bytes)), number(String(batch.plan_version)))));
  }

  showVersions(items) {
    const newest = items[0]?.version;
    this._rows(this.versions, items, (version) => h("tr", {},
      h("th", { scope: "row" }, String(version.version)), h("td", {}, clock(version.created_at)), h("td", {}, version.actor ?? "–"), h("td", {}, version.cause ?? "–"),
      h("td", {}, steps(version.changes, version.changes_left_out)),
      h("td", {}, version.version === newest ? "newest" : action("Go back", async () => {
        await migrate({ rollback_to: version.version });
        await this.load();
      }, { where: this.errors, label: `Go back to version ${version.version}` }))));
  }

  showMigrations(items) {
    this._rows(this.migrations, items, (migration) => h("tr", {},
      h("th", { scope: "row" }, String(migration.id)), h("td", {}, h("span", { class: "state", dataset: { state: migration.status === "active" ? "running" : migration.status } }, migration.status), migration.error && h("p", { class: "note" }, migration.error.detail)),
      h("td", {}, clock(migration.created_at)), h("td", {}, migration.actor), h("td", {}, migration.cause),
      h("td", {}, migration.took === null ? "–" : `batch ${count(migration.took.batch)}: ${seconds(migration.took.batch_seconds)}${migration.took.ratio ? `, ${short(migration.took.ratio)} times the median before` : ""}`),
      h("td", {}, steps(migration.primitives, migration.primitives_left_out))));
    if (items.length === 0) this.migrations.replaceChildren(h("tr", {}, h("td", { colspan: 7 }, "None yet. The screen What if has strategies to migrate to.")));
  }

  /** Replace rows only if they have changed, so that a table under the pointer does not move. */
  _rows(body, items, row) {
    const text = JSON.stringify(items);
    if (body._shown === text) return;
    body._shown = text;
    body.replaceChildren(...items.map(row));
  }
}

const head = (titles) => h("thead", {}, h("tr", {}, titles.map((title) => (title ? h("th", { scope: "col" }, title) : h("td", {})))));
const number = (text) => h("td", { class: "number" }, text);
const scroll = (label, table) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table);

function steps(primitives, leftOut) {
  if (!primitives.length) return "–";
  return h("details", {}, h("summary", {}, plural(primitives.length + leftOut, "step")),
    h("ul", {}, primitives.map((step) => h("li", {}, step.text))), leftOut > 0 && h("p", { class: "note" }, `and ${count(leftOut)} more`));
}

/** Batches as bars: how long each took, and below it the CPU time of its parts. */
function bars(items) {
  const most = Math.max(...items.map((batch) => Math.max(batch.seconds, batch.pack_cpu_s + batch.chain_cpu_s)));
  const wide = 100 / items.length, tall = 110;
  const height = (value) => (value / most) * tall;
  const bar = (index, part, from, value) => s("rect", {
    class: part, x: `${index * wide + (part === "took" ? 0.08 : 0.5) * wide}%`, width: `${wide * 0.4}%`, y: tall - height(from) - height(value), height: height(value),
  });
  return h("figure", { class: "batches" },
    s("svg", { width: "100%", height: tall, role: "img", "aria-label": `Duration of the last ${items.length} batches; the longest took ${seconds(most)}` },
      items.map((batch, index) => s("g", {}, s("title", {}, `Batch ${batch.batch}: ${seconds(batch.seconds)}`),
        bar(index, "took", 0, batch.seconds), bar(index, "pack", 0, batch.pack_cpu_s), bar(index, "chain-part", batch.pack_cpu_s, batch.chain_cpu_s)))),
    h("figcaption", { class: "legend" }, h("span", {}, h("span", { class: "swatch took" }), "from start to commit"), h("span", {}, h("span", { class: "swatch pack" }), "read and pack, CPU"),
      h("span", {}, h("span", { class: "swatch chain-part" }), "chain: join, store, write results, CPU"), h("span", {}, `highest: ${seconds(most)}`)));
}
