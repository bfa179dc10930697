/** How far a request is, as it reports itself. */
import { html } from "../core/elements.js";
import { count, percent } from "../core/format.js";

/** A bar with its figures; without a total the count alone. */
export function Progress({ progress, isSmall = false }) {
  const { done, total, message, unit } = progress;
  const figures = total ? `${count(done)} of ${count(total)}` : count(done);
  const text = [figures, unit, message].filter(Boolean).join(" ");
  return html`<span class=${`progress ${isSmall ? "small" : ""}`} data-testid="progress">
    ${total > 0 &&
    html`<progress max=${total} value=${Math.min(done, total)} aria-label=${text}></progress>
      <span class="number">${percent(done, total)}</span>`}
    <span class="progress-text">${text}</span>
  </span>`;
}
