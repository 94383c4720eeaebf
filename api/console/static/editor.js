// An editor for CQL: marks the place that is wrong, completes streams, columns and words of the language.

import { h, offsetOf } from "./dom.js";

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
      h("p", { class: "note", id: `${id}-help` }, "Completions appear while you type: Tab takes the first, arrow keys and Enter another one, Escape closes them, Ctrl+Space opens them."));
    this.fault = null;
    /** Index of the completion that Enter takes; -1 until the viewer has chosen one, since Enter also begins a line. */
    this.chosen = -1;
    this.area.addEventListener("input", () => {
      this.mark(null);
      this._complete(false);
      onChange();
    });
    this.area.addEventListener("scroll", () => { this.behind.scrollTop = this.area.scrollTop; });
    this.area.addEventListener("blur", () => setTimeout(() => this._close(), 150));
    this.area.addEventListener("click", () => this._close());
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

  /** Start and end of a fault in the text. */
  place({ line, column, underline }) {
    const before = this.text.split("\n").slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    const carets = /\^+$/.exec(underline ?? "")?.[0].length ?? 1;
    return [column - 1, column - 1 + carets].map((at) => Math.min(before + offsetOf(this.text.slice(before), at), this.text.length));
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
      if (found && !WORDS.includes(found[1].toUpperCase())) aliases.set(found[1].toLowerCase(), stream);
    }
    const dotted = /([A-Za-z_]\w*)\.\w*$/.exec(before);
    let all;
    if (/\bAS\s+\w*$/i.test(before)) all = [];
    else if (/\]\s*\w*$/.test(before)) {
      // After a window comes a new name, or the next word of the language.
      all = WORDS.map((word) => [word, "word"]);
    } else if (dotted) {
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
    this.list.replaceChildren(...found.map(([text, kind], index) => h("li", {
      role: "option", id: `${this.list.id}-${index}`, "aria-selected": "false",
      onpointerdown: (event) => { event.preventDefault(); this._take(text); },
    }, h("span", {}, text), " ", h("span", { class: "note" }, kind))));
    this.found = found;
    this.list.hidden = false;
    this._choose(asked ? 0 : -1);
  }

  _choose(index) {
    this.chosen = index;
    [...this.list.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === index)));
    if (index < 0) this.area.removeAttribute("aria-activedescendant");
    else this.area.setAttribute("aria-activedescendant", `${this.list.id}-${index}`);
  }

  _close() {
    this.list.hidden = true;
    this.area.removeAttribute("aria-activedescendant");
  }

  _take(text) {
    const at = this.area.selectionStart;
    this.area.setSelectionRange(at - this.typed.length, at);
    // As if it were typed, so that it can be undone; setRangeText would forget what came before.
    document.execCommand("insertText", false, text);
    this._close();
  }

  _key(event) {
    if (event.isComposing) return;
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this._complete(true);
    } else if (this.list.hidden) return;
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const { length } = this.found;
      this._choose(event.key === "ArrowDown" ? (this.chosen + 1) % length : (Math.max(this.chosen, 0) - 1 + length) % length);
    } else if (event.key === "Tab" && !event.shiftKey || event.key === "Enter" && this.chosen >= 0) {
      event.preventDefault();
      this._take(this.found[Math.max(this.chosen, 0)][0]);
    } else if (event.key === "Enter" || event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") {
      this._close();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      this._close();
    }
  }
}
