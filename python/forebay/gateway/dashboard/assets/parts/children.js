/** The requests that one request has submitted, as a tree: those of a child are asked for when it is opened. */
import { html, useState } from "../core/elements.js";
import { seconds } from "../core/format.js";
import { linkTo } from "../core/router.js";
import { usePolled } from "../data/polled.js";
import { Icon } from "./icons.js";
import { Ago } from "./moment.js";
import { Told } from "./notices.js";
import { Panel, Table } from "./panel.js";
import { Status } from "./status.js";

const SHOWN = 100;
const PERIOD_MS = 5000;
const HEAD = [["Request"], ["Status"], ["Ran", "number"], ["Accepted", "number"]];

/** @param {{id: string}} props of the parent */
export function Children({ id }) {
  return html`<${Panel} title="Children" testid="panel-children">
    <${Told} polled=${useChildren(id)} what="its children">
      ${({ requests, next }) =>
        requests.length
          ? html`<${Table} label="Children" head=${HEAD} testid="children">
              <${Rows} requests=${requests} hasMore=${next !== null} depth=${0} />
            <//>`
          : html`<p class="quiet">It has submitted none.</p>`}
    <//>
  <//>`;
}

function useChildren(id) {
  return usePolled("v1/requests", {
    query: { parent: id, limit: SHOWN },
    periodMs: PERIOD_MS,
    concerns: (event) => event.parent === id,
  });
}

function Rows({ requests, hasMore, depth }) {
  return html`${requests.map((one) => html`<${Branch} one=${one} depth=${depth} key=${one.id} />`)}
    ${hasMore && html`<${Note} depth=${depth}>The newest ${SHOWN}; there are older ones.<//>`}`;
}

/** One child, and below it its own children while it is open. */
function Branch({ one, depth }) {
  const [isOpen, setOpen] = useState(false);
  return html`<tr>
      <td style=${indent(depth)}>
        <button type="button" class="icon-button" aria-expanded=${isOpen} data-testid="open-child"
          aria-label=${`Children of ${one.name} ${one.id}`} onClick=${() => setOpen(!isOpen)}>
          <${Icon} name=${isOpen ? "down" : "right"} />
        </button>
        <a href=${linkTo("requests", one.id)}>${one.name}</a> <code class="id">${one.id}</code>
      </td>
      <td><${Status} word=${one.status} /></td>
      <td class="number">${seconds(one.run_s)}</td>
      <td class="number"><${Ago} at=${one.accepted_at} /></td>
    </tr>
    ${isOpen && html`<${Below} id=${one.id} depth=${depth + 1} />`}`;
}

function Below({ id, depth }) {
  const { value, problem } = useChildren(id);
  if (problem) return html`<${Note} depth=${depth}>${problem.title ?? "It cannot be asked for."}<//>`;
  if (!value) return html`<${Note} depth=${depth}>Loading<//>`;
  if (!value.requests.length) return html`<${Note} depth=${depth}>It has submitted none.<//>`;
  return html`<${Rows} requests=${value.requests} hasMore=${value.next !== null} depth=${depth} />`;
}

function Note({ depth, children }) {
  return html`<tr><td colspan=${HEAD.length} class="quiet" style=${indent(depth)}>${children}</td></tr>`;
}

/** The deepest ones stay on a phone's screen. */
function indent(depth) {
  return depth ? { paddingInlineStart: `${0.75 + 1.25 * Math.min(depth, 8)}rem` } : {};
}
