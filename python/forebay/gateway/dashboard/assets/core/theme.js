/** Light or dark: what the system says, or what the reader chose. */
import { Signal } from "./signal.js";

const KEY = "forebay-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export const isDark = new Signal(current());

system.addEventListener("change", () => {
  isDark.value = current();
});

/** Choose the other one; what the system says itself is not kept. */
export function toggleTheme() {
  const chosen = isDark.value ? "light" : "dark";
  const root = document.documentElement;
  if ((chosen === "dark") === system.matches) delete root.dataset.theme;
  else root.dataset.theme = chosen;
  keep(root.dataset.theme);
  isDark.value = current();
}

/** The colour of a custom property, as canvas takes it. */
export function colorOf(property) {
  const probe = document.createElement("i");
  probe.style.color = `var(${property})`;
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}

function current() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
}

function keep(chosen) {
  try {
    if (chosen) localStorage.setItem(KEY, chosen);
    else localStorage.removeItem(KEY);
  } catch {
    // No storage: it holds for this page.
  }
}
