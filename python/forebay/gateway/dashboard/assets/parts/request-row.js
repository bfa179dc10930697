/** One row of the list of requests. */
import { Component, html } from "../core/elements.js";
import { bytes, seconds } from "../core/format.js";
import { linkTo } from "../core/router.js";
import { failureShort } from "../data/failures.js";
import { Ago, Since } from "./moment.js";
import { Progress } from "./progress.js";
import { Status } from "./status.js";

/** The names of the columns, and how they are aligned. */
export const COLUMNS = [
  ["Status", ""],
  ["Request", ""],
  ["What happens", ""],
  ["Waited", "number"],
  ["Ran", "number"],
  ["Peak", "number"],
  ["Submitter", ""],
  ["Accepted", "number"],
];

/** Drawn again only where its own data changed: a busy list has a thousand events a second. */
export class RequestRow extends Component {
  shouldComponentUpdate(next) {
    const { props } = this;
    return ["row", "index", "isActive", "isSelected"].some((name) => next[name] !== props[name]);
  }

  render({ row, index, isActive, isSelected, onSelect, onPress }) {
    const kind = `grid-row ${isActive ? "active" : ""} ${isSelected ? "selected" : ""}`;
    return html`<div role="row" id=${`row-${row.id}`} class=${kind} aria-rowindex=${index + 2}
      aria-selected=${isSelected ? "true" : "false"} data-testid="request-row" data-id=${row.id}
      onClick=${(event) => onPress(event, index)}>
      <span role="gridcell" class="cell-check">
        <input type="checkbox" tabindex="-1" checked=${isSelected}
          aria-label=${`Select ${row.name} ${row.id}`} onClick=${(event) => onSelect(event, index)} />
      </span>
      <span role="gridcell" class="cell-status"><${Status} word=${row.status} /></span>
      <span role="gridcell" class="cell-name">
        <a href=${linkTo("requests", row.id)} tabindex="-1">${row.name}</a>
        <code class="id">${row.id}</code>
      </span>
      <span role="gridcell" class="cell-what"><${What} row=${row} /></span>
      <span role="gridcell" class="cell-waited number"><${Waited} row=${row} /></span>
      <span role="gridcell" class="cell-ran number"><${Ran} row=${row} /></span>
      <span role="gridcell" class="cell-peak number">${bytes(row.peak_bytes)}</span>
      <span role="gridcell" class="cell-submitter">${row.submitter || "–"}</span>
      <span role="gridcell" class="cell-accepted number"><${Ago} at=${row.accepted_at} /></span>
    </div>`;
  }
}

/** Why it waits, how far it is, or how it failed. */
function What({ row }) {
  if (row.progress) return html`<${Progress} progress=${row.progress} isSmall=${true} />`;
  const failure = failureShort(row.failure);
  if (failure) return html`<span class="clip" title=${failure}>${failure}</span>`;
  const reason = row.reason && row.status === "queued" ? row.reason : "";
  return html`<span class="clip quiet" title=${reason}>${reason}</span>`;
}

function Waited({ row }) {
  const isWaiting = row.status === "queued" && !row.started_at;
  if (isWaiting && row.accepted_at) return html`<${Since} at=${row.accepted_at} />`;
  return seconds(row.queue_s);
}

function Ran({ row }) {
  if (row.status === "running" && row.started_at) return html`<${Since} at=${row.started_at} />`;
  return seconds(row.status === "queued" ? null : row.run_s);
}
