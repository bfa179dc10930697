/** How a request failed: what it raised, or how its process died. */
import { html } from "../core/elements.js";
import { deathFacts, failureShort } from "../data/failures.js";
import { Copy } from "./copy.js";
import { Panel } from "./panel.js";

/** @param {{failure: object}} props as `show` tells it */
export function Failure({ failure }) {
  return html`<${Panel} title=${failureTitle(failure)} kind="failure" testid="panel-failure">
    ${failure.kind === "died"
      ? html`<${Death} failure=${failure} />`
      : html`<p class="failure-text">${failure.message || failureShort(failure)}</p>`}
    ${failure.trace && html`<${Text} title="Traceback" text=${failure.trace} />`}
    ${failure.last_output && html`<${Text} title="Its last output" text=${failure.last_output} />`}
  <//>`;
}

function failureTitle(failure) {
  if (failure.kind === "raised") return failure.name;
  return { died: "Its process died", timed_out: "Out of time" }[failure.kind] ?? "Why it ended";
}

function Death({ failure }) {
  return html`<dl class="facts across" data-testid="death">
    ${deathFacts(failure).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

function Text({ title, text }) {
  return html`<div class="text-block">
    <div class="text-head">
      <h3>${title}</h3>
      <${Copy} text=${text} label=${`Copy: ${title}`} />
    </div>
    <pre tabindex="0" role="group" aria-label=${title} data-testid="traceback">${text}</pre>
  </div>`;
}
