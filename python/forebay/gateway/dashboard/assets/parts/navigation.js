/** The way between views: at the left, or at the bottom of a phone. */
import { html, useState } from "../core/elements.js";
import { logout, Problem } from "../core/api.js";
import { connection } from "../core/connection.js";
import { feed } from "../core/feed.js";
import { linkTo, route } from "../core/router.js";
import { useSignal } from "../core/signal.js";
import { isDark, toggleTheme } from "../core/theme.js";
import { figures } from "../data/figures.js";
import { Icon } from "./icons.js";

/** The views by the key that goes there behind `g`. */
export const VIEWS = [
  ["overview", "Overview", "o"],
  ["requests", "Requests", "r"],
  ["workers", "Workers", "w"],
  ["pools", "Pools", "p"],
  ["schedules", "Schedules", "s"],
];

/** @param {{showKeys: () => void}} props */
export function Navigation({ showKeys }) {
  const { view } = useSignal(route);
  const overview = useSignal(figures);
  return html`<header class="side">
    <p class="brand">
      <span class="brand-name">${overview?.info.app ?? "Forebay"}</span>
      <span class="quiet">${overview ? `Forebay ${overview.info.version ?? ""}` : ""}</span>
    </p>
    <nav aria-label="Views" data-testid="nav">
      ${VIEWS.map(
        ([name, title]) => html`<a href=${linkTo(name)} data-testid=${`nav-${name}`}
          aria-current=${view === name ? "page" : undefined}>
          <${Icon} name=${name} /><span>${title}</span>
        </a>`,
      )}
    </nav>
    <div class="side-foot">
      <${Live} />
      <${Theme} />
      <button type="button" class="icon-button" aria-label="Keys" title="Keys (?)"
        data-testid="keys-button" onClick=${showKeys}><${Icon} name="keys" /></button>
      <${LogOut} />
    </div>
  </header>`;
}

/** Whether what is shown is live. */
function Live() {
  const { phase } = useSignal(connection);
  const live = useSignal(feed.phase);
  const words = phase === "lost" ? "lost" : live === "live" ? "live" : "connecting";
  return html`<span class=${`live live-${words}`} role="status" data-testid="live">
    <i class="mark" aria-hidden="true"></i>${words}
  </span>`;
}

function Theme() {
  const dark = useSignal(isDark);
  const label = dark ? "Light theme" : "Dark theme";
  return html`<button type="button" class="icon-button" aria-label=${label} title=${`${label} (t)`}
    data-testid="theme-toggle" onClick=${toggleTheme}>
    <${Icon} name=${dark ? "sun" : "moon"} />
  </button>`;
}

function LogOut() {
  const [problem, setProblem] = useState(null);
  const label = problem ? `Not logged out: ${problem.message}` : "Log out";
  const press = async () => {
    try {
      await logout();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setProblem(error);
    }
  };
  return html`<button type="button" class="icon-button" aria-label=${label} title=${label}
    data-testid="log-out" onClick=${press}><${Icon} name="leave" /></button>`;
}
