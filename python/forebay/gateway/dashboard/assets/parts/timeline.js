/** The life of a request on one axis of time: waits, runs, pauses. */
import { html } from "../core/elements.js";
import { exact, seconds } from "../core/format.js";

const NARROWEST = 0.4;

/** @param {{segments: import("../data/segments.js").Segment[]}} props */
export function Timeline({ segments }) {
  const from = segments[0].from;
  const whole = Math.max(1, segments.at(-1).to - from);
  return html`<div class="timeline" data-testid="timeline">
    <ol class="timeline-rows">
      ${segments.map((one) => html`<${Row} segment=${one} from=${from} whole=${whole} />`)}
    </ol>
    <${Axis} whole=${whole} />
  </div>`;
}

function Row({ segment, from, whole }) {
  const { kind, title, outcome, isOpen, note } = segment;
  const width = Math.max(NARROWEST, (100 * (segment.to - segment.from)) / whole);
  const left = Math.min(100 - width, (100 * (segment.from - from)) / whole);
  const place = { left: `${left}%`, width: `${width}%` };
  const words = `${exact(segment.from)} to ${isOpen ? "now" : exact(segment.to)}`;
  return html`<li class="timeline-row" title=${words}>
    <span class="timeline-title">${title}</span>
    <span class="timeline-note clip" title=${note}>${note}</span>
    <span class="timeline-span number">${seconds((segment.to - segment.from) / 1000)}</span>
    <span class="timeline-track" aria-hidden="true">
      <span class=${`bar bar-${kind} ${outcome ? `bar-${outcome}` : ""} ${isOpen ? "open" : ""}`}
        style=${place}></span>
    </span>
  </li>`;
}

/** Quarters of the whole. */
function Axis({ whole }) {
  const parts = [0, 0.25, 0.5, 0.75, 1];
  return html`<div class="timeline-axis" aria-hidden="true">
    ${parts.map((part) => html`<span>${part ? seconds((part * whole) / 1000) : "0"}</span>`)}
  </div>`;
}
