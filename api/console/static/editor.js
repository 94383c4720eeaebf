// An editor for CQL: marks the place that is wrong, completes streams, columns and words of the language.

import { h } from "./dom.js";

const WORDS = ["SELECT", "FROM", "WHERE", "AND", "OR", "NOT", "AS", "RANGE", "SECONDS", "MINUTES", "HOURS", "DAYS", "NOW", "UNBOUNDED", "BETWEEN", "IN", "IS NULL", "LIKE"];
const MOST = 8;
let editors = 0;

export class Editor {
  /** `streams` returns the registered streams, `onChange` is called after every change. */
  constructor({ label, streams, onChange }) {
    this.streams = streams;
    const id = `editor-${(editors += 1)}`;
    this.area = h("textarea", {
      id, rows: 7, spellcheck: "false", autocomplete: "off", autocapitalize: "off", "aria-autocomplete": "list",
      "aria-controls": `${id}-list`, "aria-describedby": `${id}-help`,
    });
    this.behind = h("pre", { class: "behind", "aria-hidden": "true" });
    this.list = h("ul", { class: "completions", id: `${id}-list`, role: "listbox", "aria-label": "Completions", hidden: true });
    this.element = h("div", { class: "editor" }, h("label", { for: id }, label),
      h("div", { class: "stack" }, this.behind, this.area, this.list),
      h("p", { class: "note", id: `${id}-help` }, "Completions appear while you type; arrow keys and Enter take one, Escape closes them, Ctrl+Space opens them."));
    this.fault = null;
    this.chosen = 0;
    this.area.addEventListener("input", () => {
      this.mark(null);
      this._complete(false);
      onChange();
    });
    this.area.addEventListener("scroll", () => { this.behind.scrollTop = this.area.scrollTop; });
    this.area.addEventListener("blur", () => setTimeout(() => this._close(), 150));
    this.area.addEventListener("keydown", (event) => this._key(event));
    this.onChange = onChange;
  }

  get text() {
    return this.area.value;
  }

  set text(value) {
    this.area.value = value;
    this.mark(null);
  }

  /** Mark a fault as the API names it: `line` and `column` from 1, and how many characters; null marks none. */
  mark(fault) {
    this.fault = fault;
    if (fault === null || !fault.line) {
      this.behind.textContent = `${this.text}\n`;
      this.area.removeAttribute("aria-invalid");
      return;
    }
    const [from, to] = this.place(fault);
    this.behind.replaceChildren(this.text.slice(0, from), h("mark", {}, this.text.slice(from, to) || " "), `${this.text.slice(to)}\n`);
    this.behind.scrollTop = this.area.scrollTop;
    this.area.setAttribute("aria-invalid", "true");
  }

  place({ line, column, underline }) {
    const lines = this.text.split("\n");
    const from = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + column - 1;
    const carets = /\^+/.exec(underline ?? "")?.[0].length ?? 1;
    return [Math.min(from, this.text.length), Math.min(from + carets, this.text.length)];
  }

  /** Put the caret on the fault. */
  goTo(fault) {
    const [from, to] = this.place(fault);
    this.area.focus();
    this.area.setSelectionRange(from, to);
  }

  /** Completions at the caret: [text, kind] each. */
  _candidates() {
    const before = this.text.slice(0, this.area.selectionStart);
    const typed = /[A-Za-z_][\w]*$/.exec(before)?.[0] ?? "";
    const streams = this.streams();
    const aliases = new Map();
    for (const stream of streams) {
      aliases.set(stream.name.toLowerCase(), stream);
      const found = new RegExp(`\\b${stream.name}\\b\\s*\\[[^\\]]*\\]\\s*(?:AS\\s+)?([A-Za-z_]\\w*)`, "i").exec(this.text);
      if (found) aliases.set(found[1].toLowerCase(), stream);
    }
    const dotted = /([A-Za-z_]\w*)\.\w*$/.exec(before);
    let all;
    if (dotted) {
      const stream = aliases.get(dotted[1].toLowerCase());
      all = stream ? Object.entries(stream.columns) : [];
    } else if (/\b(FROM|,)\s*\w*$/i.test(before) && /\bFROM\b/i.test(before) && !/\bWHERE\b/i.test(before)) {
      all = streams.map((stream) => [stream.name, "stream"]);
    } else {
      all = [...[...aliases.keys()].filter((alias) => !streams.some((stream) => stream.name.toLowerCase() === alias)).map((alias) => [alias, "alias"]),
        ...streams.map((stream) => [stream.name, "stream"]), ...WORDS.map((word) => [word, "word"])];
    }
    const low = typed.toLowerCase();
    const found = all.filter(([text]) => text.toLowerCase().startsWith(low) && text.toLowerCase() !== low);
    return { typed, dotted: dotted !== null, found: found.slice(0, MOST) };
  }

  _complete(asked) {
    const { typed, dotted, found } = this._candidates();
    if (!found.length || !(asked || dotted || typed.length > 0)) {
      this._close();
      return;
    }
    this.typed = typed;
    this.chosen = 0;
    this.list.replaceChildren(...found.map(([text, kind], index) => h("li", {
      role: "option", id: `${this.list.id}-${index}`, "aria-selected": String(index === 0),
      onpointerdown: (event) => { event.preventDefault(); this._take(text); },
    }, h("span", {}, text), " ", h("span", { class: "note" }, kind))));
    this.found = found;
    this.list.hidden = false;
    this.area.setAttribute("aria-activedescendant", `${this.list.id}-0`);
  }

  _close() {
    this.list.hidden = true;
    this.area.removeAttribute("aria-activedescendant");
  }

  _take(text) {
    const at = this.area.selectionStart;
    this.area.setRangeText(text, at - this.typed.length, at, "end");
    this._close();
    this.mark(null);
    this.onChange();
  }

  _key(event) {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this._complete(true);
    } else if (this.list.hidden) return;
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      this.chosen = (this.chosen + step + this.found.length) % this.found.length;
      [...this.list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === this.chosen)));
      this.area.setAttribute("aria-activedescendant", `${this.list.id}-${this.chosen}`);
    } else if (event.key === "Enter" || event.key === "Tab") {
      event.preventDefault();
      this._take(this.found[this.chosen][0]);
    } else if (event.key === "Escape") {
      event.stopPropagation();
      this._close();
    }
  }
}
