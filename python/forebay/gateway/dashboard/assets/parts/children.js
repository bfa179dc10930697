/** The requests that one request has submitted. */
import { html } from "../core/elements.js";
import { seconds } from "../core/format.js";
import { linkTo } from "../core/router.js";
import { usePolled } from "../data/polled.js";
import { Ago } from "./moment.js";
import { Told } from "./notices.js";
import { Panel, Table } from "./panel.js";
import { Status } from "./status.js";

const SHOWN = 100;
const PERIOD_MS = 5000;
const HEAD = [["Request"], ["Status"], ["Ran", "number"], ["Accepted", "number"]];

/** @param {{id: string}} props of the parent */
export function Children({ id }) {
  const polled = usePolled("v1/requests", {
    query: { parent: id, limit: SHOWN },
    periodMs: PERIOD_MS,
    concerns: (event) => event.parent === id,
  });
  return html`<${Panel} title="Children" testid="panel-children">
    <${Told} polled=${polled} what="its children">
      ${({ requests, next }) =>
        requests.length
          ? html`<${Rows} requests=${requests} hasMore=${next !== null} />`
          : html`<p class="quiet">It has submitted none.</p>`}
    <//>
  <//>`;
}

function Rows({ requests, hasMore }) {
  return html`<${Table} label="Children" head=${HEAD} testid="children">
      ${requests.map(
        (one) => html`<tr key=${one.id}>
          <td><a href=${linkTo("requests", one.id)}>${one.name}</a> <code class="id">${one.id}</code></td>
          <td><${Status} word=${one.status} /></td>
          <td class="number">${seconds(one.run_s)}</td>
          <td class="number"><${Ago} at=${one.accepted_at} /></td>
        </tr>`,
      )}
    <//>
    ${hasMore && html`<p class="quiet">The newest ${SHOWN}; there are older ones.</p>`}`;
}
