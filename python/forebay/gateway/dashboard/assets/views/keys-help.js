/** The keys of the page. */
import { html } from "../core/elements.js";
import { closeDialog, Modal } from "../parts/dialog.js";

const GROUPS = [
  ["Everywhere", [
    ["g then o, r, w, p, s", "overview, requests, workers, pools, schedules"],
    ["t", "light or dark"],
    ["?", "these keys"],
    ["Escape", "leave: a dialog, a field, a request"],
  ]],
  ["List of requests", [
    ["/", "to the filter"],
    ["j k, arrows", "next, previous; with Shift they select"],
    ["Home End", "first, last"],
    ["Enter", "open"],
    ["x, Space", "select"],
    ["a", "select all or none"],
    ["c r", "cancel, retry what is selected"],
  ]],
  ["Log of a request", [
    ["/", "search"],
    ["Enter, Shift Enter", "next match, previous match"],
  ]],
];

/** @param {{onClose: () => void}} props */
export function KeysHelp({ onClose }) {
  return html`<${Modal} title="Keys" testid="keys-help" onClose=${onClose}>
    ${GROUPS.map(
      ([title, keys]) => html`<h3>${title}</h3>
        <dl class="keys">
          ${keys.map(([key, words]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${words}</dd></div>`)}
        </dl>`,
    )}
    <div class="dialog-acts">
      <button type="button" class="button" autofocus onClick=${closeDialog}>Close</button>
    </div>
  <//>`;
}
