// The shell: screens by address, keyboard, theme, key, and faults of the service.

import { getKey, onKeyWanted, setKey } from "./api.js";
import { h, setText } from "./dom.js";
import { live } from "./live.js";
import { engineScreen } from "./engine.js";
import { planScreen } from "./plan.js";
import { queriesScreen } from "./queries.js";
import { queryScreen } from "./query.js";
import { savingsScreen } from "./savings.js";
import { streamsScreen } from "./streams.js";
import { whatIfScreen } from "./whatif.js";

const SCREENS = [
  ["plan", "Plan", planScreen],
  ["queries", "Queries", queriesScreen],
  ["whatif", "What if", whatIfScreen],
  ["streams", "Streams", streamsScreen],
  ["savings", "Savings", savingsScreen],
  ["engine", "Engine", engineScreen],
];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
let close = () => {};

function show() {
  const [, name = "plan", ...rest] = location.hash.split("?")[0].split("/");
  const parameters = new URLSearchParams(location.hash.split("?")[1] ?? "");
  const chosen = SCREENS.find(([key]) => key === name) ?? SCREENS[0];
  close();
  const screen = name === "queries" && rest[0] ? queryScreen(decodeURIComponent(rest[0])) : chosen[2](parameters);
  close = screen.close ?? (() => {});
  document.title = `${screen.title} – Sluice`;
  main.replaceChildren(screen.element);
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.screen === chosen[0]) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  window.scrollTo(0, 0);
}

nav.append(
  h("ul", {}, SCREENS.map(([key, title], index) =>
    h("li", {}, h("a", { href: `#/${key}`, dataset: { screen: key }, "aria-keyshortcuts": `${index + 1}`, title: `Key ${index + 1}` }, title)))),
);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, dialog")) return;
  const screen = SCREENS[Number(event.key) - 1];
  if (screen) location.hash = `#/${screen[0]}`;
  else if (event.key === "/") {
    const search = main.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
});

// Theme: the system's, until the viewer chooses.
const THEME = "sluice-theme";
const wanted = () => localStorage.getItem(THEME) ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const applyTheme = () => { document.documentElement.dataset.theme = wanted(); };
document.getElementById("theme-button").addEventListener("click", () => {
  localStorage.setItem(THEME, wanted() === "dark" ? "light" : "dark");
  applyTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
applyTheme();

// Key.
const dialog = document.getElementById("key-dialog");
const input = document.getElementById("key-input");
const openKeys = () => {
  if (dialog.open) return;
  input.value = getKey() ?? "";
  dialog.showModal();
};
document.getElementById("key-button").addEventListener("click", openKeys);
dialog.addEventListener("close", () => {
  if (!dialog.returnValue) return;
  setKey(dialog.returnValue === "save" ? input.value.trim() : null);
  dialog.returnValue = "";
  live.look();
  show();
});
onKeyWanted(openKeys);

// Faults, shown on every screen.
const banner = document.getElementById("banner");
const state = document.getElementById("engine-state");
function tell() {
  const { engine, problem } = live;
  let text = "";
  if (problem) text = `${problem.message[0].toUpperCase()}${problem.message.slice(1)}. ${problem.hint ?? ""}`;
  else if (engine?.state === "failed") text = "The engine has failed; the screen Engine says why and what to do.";
  else if (engine?.input_held) text = `Batches take no input: ${engine.input_held}`;
  banner.hidden = !text;
  setText(banner, text.trim());
  const shown = problem ? "no answer" : engine?.state ?? "";
  setText(state, shown && `engine ${shown}`);
  state.dataset.state = shown;
}
live.addEventListener("look", tell);

// The address names the screen, so the skip link may not change it.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => {
  show();
  main.focus({ preventScroll: true });
});
show();
live.start();
