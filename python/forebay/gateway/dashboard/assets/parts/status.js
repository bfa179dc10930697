/** The status of a request: a word with its colour and a shape, so that colour is not all. */
import { html } from "../core/elements.js";

/** A word with a mark before it. */
export function Status({ word }) {
  return html`<span class=${`status status-${word}`} data-testid="status">
    <i class="mark" aria-hidden="true"></i>${word}
  </span>`;
}
