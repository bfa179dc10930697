/** Times that grow while they are shown. */
import { useServerNow } from "../core/clock.js";
import { html } from "../core/elements.js";
import { exact, growing, relative } from "../core/format.js";

/** A moment, as how long ago it was; its title is the exact one. */
export function Ago({ at }) {
  const now = useServerNow();
  if (!at) return html`<span class="quiet">–</span>`;
  const ms = Date.parse(at);
  return html`<time datetime=${at} title=${exact(ms)}>${relative(ms, now)}</time>`;
}

/** How long it has been since a moment; it grows. */
export function Since({ at }) {
  const now = useServerNow();
  return html`<span>${growing((now - Date.parse(at)) / 1000)}</span>`;
}
