/** A part of a view with a title. */
import { html } from "../core/elements.js";

/** A section; `aside` stands at the right of its title. */
export function Panel({ title, aside, testid, kind = "", children }) {
  const id = `panel-${title.toLowerCase().replaceAll(/\W+/g, "-")}`;
  return html`<section class=${`panel ${kind}`} aria-labelledby=${id} data-testid=${testid}>
    <header class="panel-head">
      <h2 id=${id}>${title}</h2>
      ${aside && html`<div class="panel-aside">${aside}</div>`}
    </header>
    ${children}
  </section>`;
}

/** A table that scrolls sideways by itself where it is too wide. */
export function Table({ label, head, testid, children }) {
  return html`<div class="table-scroll" role="group" aria-label=${label} tabindex="0">
    <table data-testid=${testid} aria-label=${label}>
      <thead>
        <tr>
          ${head.map(([text, kind]) => html`<th scope="col" class=${kind ?? ""}>${text}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${children}
      </tbody>
    </table>
  </div>`;
}
