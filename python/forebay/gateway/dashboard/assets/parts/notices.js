/** What the page says in place of figures, or beside them. */
import { html } from "../core/elements.js";
import { Command } from "./copy.js";
import { Icon } from "./icons.js";

/** Nothing has come yet, and is on its way. */
export function Loading({ what }) {
  return html`<div class="notice loading" role="status" data-testid="loading">
    <span class="spinner" aria-hidden="true"></span>Loading ${what} …
  </div>`;
}

/** There is nothing, and this would fill it. */
export function Nothing({ title, children }) {
  return html`<div class="notice nothing" data-testid="nothing">
    <strong>${title}</strong>
    <div>${children}</div>
  </div>`;
}

/** The server refused something: what, and what to do. */
export function Refusal({ problem, what, onClose }) {
  return html`<div class="notice refusal" role="alert" data-testid="refusal">
    <div>
      <strong>${what ? `${what}: ` : ""}</strong>${problem.message}
      ${problem.next && html`<div class="next"><${NextStep} text=${problem.next} /></div>`}
    </div>
    ${onClose &&
    html`<button type="button" class="icon-button" aria-label="Close" onClick=${onClose}>
      <${Icon} name="close" />
    </button>`}
  </div>`;
}

/** The next step; a command at its end can be copied. */
export function NextStep({ text }) {
  const found = text.match(/^(.*?):? ?(forebay [a-z][^,;]*)$/s);
  if (!found) return html`<span>Next: ${text}</span>`;
  return html`<span>Next: ${found[1]} <${Command} text=${found[2]} /></span>`;
}

/** A value in place of another while there is none: what state an answer is in. */
export function Told({ polled, what, children }) {
  if (polled.value) return children(polled.value);
  if (polled.problem) return html`<${Refusal} problem=${polled.problem} />`;
  return html`<${Loading} what=${what} />`;
}
