// Buttons that make changes, and the display of refusals.

import { Problem, patch, post, remove } from "./api.js";
import { h, underlined } from "./dom.js";
import { live } from "./live.js";

/** Seconds to wait for a change to be in force; after that it is answered as accepted. */
const WAIT_S = 20;

export const pauseQuery = (name) => post(`queries/${encodeURIComponent(name)}:pause`, undefined, { wait: WAIT_S });
export const resumeQuery = (name) => post(`queries/${encodeURIComponent(name)}:resume`, undefined, { wait: WAIT_S });
export const removeQuery = (name) => remove(`queries/${encodeURIComponent(name)}`, { wait: WAIT_S });
export const addQuery = (body) => post("queries", body, { wait: WAIT_S });
export const editQuery = (name, body) => patch(`queries/${encodeURIComponent(name)}`, body, { wait: WAIT_S });
export const migrate = (body) => post("migrations", body, { wait: WAIT_S });

/** Text of a refusal: the fault, facts, a remedy, and the line with the place underlined. */
export function refusal(error) {
  if (!(error instanceof Problem)) throw error;
  const { detail, explanation, hint, errors = [] } = error.document;
  const faults = errors.filter((fault) => fault.detail !== detail || fault.underline);
  return h("div", { class: "refusal", role: "alert" },
    h("p", {}, h("strong", {}, detail ?? error.message)),
    explanation && h("p", {}, explanation),
    hint && h("p", {}, hint),
    faults.map((fault) => [
      fault.detail !== detail && h("p", {}, fault.detail),
      fault.underline && underlined(fault.underline),
      fault.hint && fault.hint !== hint && h("p", {}, fault.hint),
    ]));
}

/** A button that does one thing at a time, shows that it is busy, and shows a refusal in `where`. */
export function action(text, run, { where, label, kind = "" } = {}) {
  const button = h("button", { type: "button", class: kind, "aria-label": label ?? null }, text);
  button.addEventListener("click", async () => {
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    where?.replaceChildren();
    try {
      await run();
      live.look();
    } catch (error) {
      where?.replaceChildren(refusal(error));
    } finally {
      button.disabled = false;
      button.removeAttribute("aria-busy");
    }
  });
  return button;
}

/** Ask for confirmation before an action that cannot be undone. */
export function confirmed(question, verb) {
  const dialog = h("dialog", { class: "confirm", "aria-label": question },
    h("form", { method: "dialog" }, h("p", {}, question),
      h("div", { class: "buttons" }, h("button", { value: "yes", class: "danger" }, verb), h("button", { value: "", autofocus: true }, "Cancel"))));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    dialog.remove();
    resolve(dialog.returnValue === "yes");
  }));
}
