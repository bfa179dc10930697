/** The pool of the server: services by state, and who holds which lease for how long. */
import { html } from "../core/elements.js";
import { count, seconds } from "../core/format.js";
import { linkTo } from "../core/router.js";
import { useSignal } from "../core/signal.js";
import { figures } from "../data/figures.js";
import { Loading, Nothing } from "../parts/notices.js";
import { Panel, Table } from "../parts/panel.js";

const STATES = ["idle", "leased", "starting", "settling"];
const POOLS = [["Service"], ...STATES.map((state) => [capital(state), "number"]), ["All", "number"], ["Parts"]];
const LEASES = [["Service"], ["Process", "number"], ["Holder"], ["Runs"], ["Held for", "number"]];

/** By class of service. */
export function PoolsView() {
  const overview = useSignal(figures);
  if (!overview) return html`<${Loading} what="pools" />`;
  const { services, workers } = overview;
  if (!services.length) return html`<${NoneYet} />`;
  return html`<${Pools} services=${services} />
    <${Leases} leases=${services.filter((one) => one.state === "leased")} workers=${workers} />`;
}

function NoneYet() {
  return html`<${Nothing} title="The pool has no services yet">
    A request that leases one, <code>with forebay.acquire(Service)</code>, starts it here, and the
    next one gets it warm. An application keeps some ready by
    ${" "}<code>app.service(Service, min_idle=2)</code>.
  <//>`;
}

function Pools({ services }) {
  const names = [...new Set(services.map((one) => one.name))].sort();
  return html`<${Panel} title="Services by state" testid="panel-pools">
    <${Table} label="Services by state" head=${POOLS} testid="pools">
      ${names.map((name) => html`<${Pool} key=${name} name=${name}
        services=${services.filter((one) => one.name === name)} />`)}
    <//>
  <//>`;
}

function Pool({ name, services }) {
  const counts = STATES.map((state) => services.filter((one) => one.state === state).length);
  const part = (number) => ({ width: `${(100 * number) / services.length}%` });
  return html`<tr>
    <th scope="row">${name}</th>
    ${counts.map((number) => html`<td class="number">${count(number)}</td>`)}
    <td class="number">${count(services.length)}</td>
    <td>
      <span class="parts" aria-hidden="true">
        ${STATES.map((state, at) => counts[at] > 0 &&
          html`<span class=${`part-${state}`} style=${part(counts[at])}></span>`)}
      </span>
    </td>
  </tr>`;
}

function Leases({ leases, workers }) {
  const oldest = [...leases].sort((one, other) => other.age_s - one.age_s);
  return html`<${Panel} title=${`Leases (${count(leases.length)})`} testid="panel-leases">
    ${leases.length
      ? html`<${Table} label="Leases, the oldest first" head=${LEASES} testid="leases">
          ${oldest.map((one) => html`<${Lease} key=${`${one.slot} ${one.pid}`} lease=${one}
            worker=${workers.find((worker) => worker.pid === one.holder)} />`)}
        <//>`
      : html`<p class="quiet">All services are free.</p>`}
  <//>`;
}

/** A lease, with what its holder runs where that is a worker. */
function Lease({ lease, worker }) {
  const holder = worker ? `worker ${worker.slot}, process ${lease.holder}` : `process ${lease.holder}`;
  return html`<tr>
    <th scope="row">${lease.name}</th>
    <td class="number">${lease.pid}</td>
    <td>${holder}</td>
    <td>
      ${(worker?.running ?? []).map(
        (id) => html`<a class="id-link" href=${linkTo("requests", id)}><code>${id}</code></a> `,
      )}
    </td>
    <td class="number">${seconds(lease.age_s)}</td>
  </tr>`;
}

function capital(word) {
  return word.charAt(0).toUpperCase() + word.slice(1);
}
