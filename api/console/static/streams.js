// Streams: rate, late and rejected rows with samples, watermarks on one clock; registering one.

import { get, getAll, post, remove } from "./api.js";
import { action, confirmed, refusal } from "./acts.js";
import { about, bytes, count, h, moment, plural, put, rate, s, setText } from "./dom.js";
import { live } from "./live.js";
import { propose } from "./sample.js";

const EVERY_MS = 5000;

export function streamsScreen() {
  const screen = new StreamsScreen();
  return { title: "Streams", element: screen.element, close: () => screen.close() };
}

class StreamsScreen {
  constructor() {
    this.errors = h("div", {});
    this.clock = h("div", {});
    this.list = h("div", { class: "stream-list" });
    this.cards = new Map();
    this.element = h("div", {}, h("div", { class: "head" }, h("h1", {}, "Streams")), this.errors,
      h("section", { class: "panel", "aria-label": "Watermarks" }, h("h2", {}, "Watermarks on one clock"), this.clock), this.list, this._register());
    this._look = () => this.update();
    live.addEventListener("look", this._look);
    this._timer = setInterval(() => document.hidden || this.load(), EVERY_MS);
    this.load();
  }

  close() {
    live.removeEventListener("look", this._look);
    clearInterval(this._timer);
  }

  async load() {
    let streams;
    try {
      streams = await getAll("streams");
    } catch (error) {
      this.errors.replaceChildren(refusal(error));
      return;
    }
    const names = streams.map((stream) => stream.name).join();
    if (names !== this.names) {
      this.names = names;
      this.cards.clear();
      this.list.replaceChildren(...streams.map((stream) => this._card(stream)));
      if (!streams.length) this.list.replaceChildren(h("p", { class: "note" }, "No stream yet: register one below."));
    }
    this.update();
  }

  _card(stream) {
    const values = {};
    const fact = (name) => {
      values[name] = h("dd", {});
      return h("div", {}, h("dt", {}, name), values[name]);
    };
    const aside = h("div", {});
    const samples = h("div", {});
    const card = { values, aside };
    this.cards.set(stream.name, card);
    const acts = [action("Remove", async () => {
      if (!await confirmed(`Remove the stream ${stream.name}? Only one that no query uses can be removed.`, "Remove")) return;
      await remove(`streams/${encodeURIComponent(stream.name)}`);
      await this.load();
    }, { where: this.errors, label: `Remove ${stream.name}`, kind: "danger" }),
    action("Reset watermark", async () => {
      if (!await confirmed(`Forget how far the event time of ${stream.name} had come? For after rows from the future made all others late.`, "Reset")) return;
      await post(`streams/${encodeURIComponent(stream.name)}:reset-watermark`);
    }, { where: this.errors, label: `Reset the watermark of ${stream.name}` })];
    if (stream.source.type === "http") {
      acts.unshift(action("Show events kept out", async () => {
        const { rows, events, kept_out_at: times } = await get(`streams/${encodeURIComponent(stream.name)}/quarantine`, { limit: 20 });
        put(samples, h("h3", {}, rows ? `${plural(rows, "event")} further ahead of the clock than ${stream.max_ahead}, the newest:` : "No event was kept out."),
          events.length > 0 && h("pre", {}, events.map((event, n) => `${times[n]} ${JSON.stringify(event)}`).join("\n")));
      }, { where: this.errors, label: `Show events kept out of ${stream.name}` }));
    }
    if (stream.source.type === "files") {
      acts.unshift(action("Retry files", async () => {
        const { files } = await post(`streams/${encodeURIComponent(stream.name)}/files:retry`);
        put(samples, h("p", { role: "status" }, files.length ? `${plural(files.length, "file")} will be read again.` : "No file is set aside."));
      }, { where: this.errors, label: `Retry the files of ${stream.name} that were set aside` }));
    }
    return h("section", { class: "panel", "aria-label": `Stream ${stream.name}` },
      h("div", { class: "head" }, h("h2", {}, stream.name), h("span", { class: "badge" }, stream.source.type), h("div", { class: "buttons" }, acts)),
      h("dl", { class: "facts" }, ["Rows read", "Now", "Late", "Rejected", "Skipped", "Watermark", "Newest event", "Bytes per row"].map(fact)),
      h("p", { class: "note" }, `Event time ${stream.event_time}, rows may be ${stream.lateness} late${stream.idle_timeout ? `, idle after ${stream.idle_timeout}` : ""}. Columns: ${Object.entries(stream.columns).map(([name, type]) => `${name} ${type}`).join(", ")}.`),
      aside, samples);
  }

  update() {
    const { statistics } = live;
    if (statistics === null) return;
    const shown = statistics.streams.filter((stream) => this.cards.has(stream.stream));
    for (const stream of shown) {
      const { values, aside } = this.cards.get(stream.stream);
      setText(values["Rows read"], count(stream.rows));
      setText(values.Now, rate(live.rate(`stream:${stream.stream}`)));
      setText(values.Late, count(stream.late_rows));
      setText(values.Rejected, count(stream.rejected_rows));
      setText(values.Skipped, count(stream.skipped_rows));
      setText(values.Watermark, moment(stream.watermark_us));
      setText(values["Newest event"], moment(stream.max_event_time_us));
      setText(values["Bytes per row"], bytes(stream.row_bytes));
      const text = JSON.stringify(stream.set_aside);
      if (aside._shown !== text) {
        aside._shown = text;
        put(aside, stream.files_set_aside > 0 && [h("h3", {}, `${plural(stream.files_set_aside, "file")} set aside, the newest:`),
          h("ul", {}, stream.set_aside.map(([path, reason]) => h("li", {}, h("code", {}, path), ` ${reason}`)))]);
      }
    }
    this._drawClock(shown.filter((stream) => stream.max_event_time_us !== null));
  }

  /** Each stream's watermark and newest event on the same axis. */
  _drawClock(streams) {
    if (!streams.length) {
      this.clock.replaceChildren(h("p", { class: "note" }, "No row was read yet: a stream is read once a query uses it."));
      return;
    }
    const newest = Math.max(...streams.map((stream) => stream.max_event_time_us));
    const oldest = Math.min(...streams.map((stream) => stream.watermark_us ?? stream.max_event_time_us));
    const at = (us) => (newest === oldest ? 98 : 2 + ((us - oldest) / (newest - oldest)) * 96);
    this.clock.replaceChildren(
      h("p", { class: "note" }, `From ${moment(oldest)} to ${moment(newest)}: ${about(newest - oldest)}. The bar of a stream goes from its watermark to its newest event; state waits for the watermark that is furthest behind.`),
      ...streams.map((stream) => {
        const from = at(stream.watermark_us ?? stream.max_event_time_us), to = at(stream.max_event_time_us);
        const behind = newest - (stream.watermark_us ?? stream.max_event_time_us);
        return h("div", { class: "lane" }, h("span", { class: "lane-name" }, stream.stream),
          s("svg", { width: "100%", height: 20, role: "img", "aria-label": `${stream.stream}: watermark ${about(behind)} behind the newest event of all streams` },
            s("line", { class: "track", x1: "0%", x2: "100%", y1: 10, y2: 10 }),
            s("rect", { class: "span", x: `${from}%`, width: `${Math.max(to - from, 0.4)}%`, y: 5, height: 10 }),
            s("line", { class: "wm", x1: `${from}%`, x2: `${from}%`, y1: 1, y2: 19 })),
          h("span", { class: "lane-number" }, `${about(behind)} behind`));
      }));
  }

  // Registering a stream from a sample that never leaves the browser.

  _register() {
    this.sampleNote = h("div", { role: "status" });
    this.form = h("div", {});
    const file = h("input", { type: "file", id: "sample-file", accept: ".csv,.tsv,.txt,.json,.ndjson,.jsonl", onchange: () => file.files[0] && this.read(file.files[0]) });
    const drop = h("div", { class: "drop",
      ondragover: (event) => { event.preventDefault(); drop.classList.add("over"); },
      ondragleave: () => drop.classList.remove("over"),
      ondrop: (event) => { event.preventDefault(); drop.classList.remove("over"); if (event.dataTransfer.files[0]) this.read(event.dataTransfer.files[0]); } },
    h("label", { for: "sample-file" }, "Drop a file here, or choose one: CSV, or JSON with an object per line"), file);
    return h("section", { class: "panel", "aria-label": "Register a stream" }, h("h2", {}, "Register a stream"),
      h("p", { class: "note" }, "Names, types and event time are proposed from the first rows. The stream takes posts; the file is read by this page alone, and its rows are posted only if you ask for that."),
      drop, this.sampleNote, this.form);
  }

  async read(file) {
    let sample;
    try {
      sample = propose(file.name, await file.slice(0, 4_000_000).text(), file.size > 4_000_000);
    } catch (error) {
      this.form.replaceChildren();
      put(this.sampleNote, h("p", { class: "bad" }, `✗ ${file.name}: ${error.message}`));
      return;
    }
    put(this.sampleNote, h("p", {}, `${file.name}: ${plural(sample.rows.length, "row")} looked at, ${plural(sample.columns.length, "column")}.`),
      sample.eventTime === null && h("p", { class: "bad" }, "No column holds moments, and a stream needs one: ISO 8601 such as 2026-01-01T12:00:00Z. A stream with a source of files reads other forms, too (timestamp_format)."));
    this._form(sample);
  }

  _form(sample) {
    const types = ["boolean", "int", "bigint", "double", "string", "date", "timestamp"];
    const name = h("input", { id: "stream-name", value: sample.name, spellcheck: "false" });
    const choices = sample.columns.map((column, index) => h("select", { id: `column-${index}`, "aria-label": `Type of ${column.name}` },
      types.map((type) => h("option", { value: type, selected: type === column.type }, type))));
    const eventTime = h("select", { id: "event-time" }, sample.columns.filter((column) => column.type === "timestamp").map((column) => h("option", { selected: column.name === sample.eventTime }, column.name)));
    const lateness = h("input", { id: "lateness", value: "5s", size: 6 });
    const where = h("div", {});
    const done = h("div", { role: "status" });
    const send = h("input", { type: "checkbox", id: "send-rows" });
    const register = action("Register the stream", async () => {
      const columns = Object.fromEntries(sample.columns.map((column, index) => [column.name, choices[index].value]));
      const made = await post("streams", { name: name.value.trim(), columns, event_time: eventTime.value, lateness: lateness.value, source: { type: "http" } });
      let text = `✓ ${made.name} is registered.`;
      if (send.checked) {
        const { accepted, quarantined } = await post(`streams/${encodeURIComponent(made.name)}/events`, sample.rows.map((row) => sample.event(row, columns)));
        text += ` ${plural(accepted, "row")} posted${quarantined ? `, ${count(quarantined)} kept out` : ""}.`;
      }
      put(done, h("p", { class: "good" }, text, " ", h("a", { href: "#/whatif" }, "Write a query")));
      await this.load();
    }, { where, kind: "primary" });
    register.disabled = sample.eventTime === null;
    const field = (label, input) => h("div", { class: "field" }, h("label", { for: input.id }, label), input);
    put(this.form, h("div", { class: "fields" }, field("Name of the stream", name), field("Event time", eventTime), field("Rows may be late by", lateness)),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Sample" }, h("table", {},
        h("thead", {}, h("tr", {}, sample.columns.map((column, index) => h("th", { scope: "col" }, column.name, " ", choices[index])))),
        h("tbody", {}, sample.rows.slice(0, 5).map((row) => h("tr", {}, row.map((value) => h("td", {}, value === null ? "NULL" : String(value)))))))),
      h("p", { class: "check" }, send, " ", h("label", { for: "send-rows" }, `Post the ${plural(sample.rows.length, "row")} of the file, too`)),
      h("div", { class: "buttons" }, register), where, done);
  }
}
