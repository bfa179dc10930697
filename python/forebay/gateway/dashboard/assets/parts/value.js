/** A value of JSON for people. */
import { html } from "../core/elements.js";

const SHORT = 80;

/** Text, numbers and small values in one line; others as JSON with its lines. */
export function Value({ value }) {
  if (typeof value === "string" && value.length <= SHORT && !value.includes("\n")) {
    return html`<code>${value}</code>`;
  }
  const text = typeof value === "string" ? value : JSON.stringify(value);
  if (text.length <= SHORT) return html`<code>${text}</code>`;
  const lines = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return html`<pre tabindex="0" role="group" aria-label="Value">${lines}</pre>`;
}
