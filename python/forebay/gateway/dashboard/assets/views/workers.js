/** Workers and services, and their memory over time. */
import { html } from "../core/elements.js";
import { bytes, count, percent, seconds } from "../core/format.js";
import { linkTo } from "../core/router.js";
import { useSignal } from "../core/signal.js";
import { figures } from "../data/figures.js";
import { timesOf, workerHistory } from "../data/history.js";
import { Chart } from "../parts/chart.js";
import { Loading, Nothing } from "../parts/notices.js";
import { Panel, Table } from "../parts/panel.js";
import { Sparkline } from "../parts/sparkline.js";

const RUNNING_SHOWN = 3;
const WORKERS = [["Worker"], ["Lane"], ["State"], ["Runs"], ["Requests", "number"],
  ["Age", "number"], ["Memory of its own", "number"], ["Last hour"]];
const SERVICES = [["Service"], ["Process", "number"], ["State"], ["Holder", "number"],
  ["Since", "number"]];

/** All of them. */
export function WorkersView() {
  const overview = useSignal(figures);
  if (!overview) return html`<${Loading} what="workers" />`;
  return html`<${Memory} overview=${overview} />
    <${Workers} overview=${overview} />
    <${Services} services=${overview.services} />`;
}

function Memory({ overview }) {
  const { history, figures: now } = overview;
  const aside = html`<span class="number">${bytes(now.resident_bytes)} of
    ${" "}${bytes(now.memory_limit_bytes)} (${percent(now.resident_bytes, now.memory_limit_bytes)}),
    ${" "}${bytes(now.promised_bytes)} promised</span>`;
  return html`<${Panel} title="Memory of all" aside=${aside} testid="panel-memory">
    <${Chart} label="Memory of the last hour, against its limit" times=${timesOf(history)}
      format=${bytes} height=${200} zeroTop=${1e6} series=${[
        { label: "in use", values: history.resident_bytes, color: "--accent", fill: true },
        { label: "limit", values: history.memory_limit_bytes, color: "--bad", dash: [6, 4] },
      ]} />
  <//>`;
}

function Workers({ overview }) {
  const { workers, history } = overview;
  const most = Math.max(1e6, ...workers.map((one) => highest(one, history)));
  return html`<${Panel} title=${`Workers (${count(workers.length)})`} testid="panel-workers">
    ${workers.length
      ? html`<${Table} label="Workers" head=${WORKERS} testid="workers">
          ${workers.map((one) => html`<${Worker} key=${one.slot} worker=${one} history=${history}
            most=${most} />`)}
        <//>`
      : html`<${Nothing} title="No worker is up">
          Workers are forked when requests come, and leave when they have been idle.
        <//>`}
  <//>`;
}

function Worker({ worker, history, most }) {
  const values = workerHistory(history, worker.pid);
  const label = `Memory of worker ${worker.slot}, at most ${bytes(highest(worker, history))}`;
  return html`<tr data-testid="worker-row">
    <th scope="row">${worker.slot} <span class="quiet">process ${worker.pid ?? "–"}</span></th>
    <td>${worker.lane}</td>
    <td>${worker.state}${worker.burst ? " (burst)" : ""}</td>
    <td><${Running} ids=${worker.running} /></td>
    <td class="number">${count(worker.uses)}</td>
    <td class="number">${seconds(worker.age_ms / 1000)}</td>
    <td class="number">${bytes(worker.private_bytes)}</td>
    <td>${values.length > 1 && html`<${Sparkline} values=${values} top=${most} label=${label} />`}</td>
  </tr>`;
}

function Running({ ids }) {
  if (!ids.length) return html`<span class="quiet">–</span>`;
  const more = ids.length - RUNNING_SHOWN;
  return html`${ids.slice(0, RUNNING_SHOWN).map(
    (id) => html`<a class="id-link" href=${linkTo("requests", id)}><code>${id}</code></a> `,
  )}${more > 0 && html`<span class="quiet">and ${more} more</span>`}`;
}

function Services({ services }) {
  return html`<${Panel} title=${`Services (${count(services.length)})`} testid="panel-services">
    ${services.length
      ? html`<${Table} label="Services" head=${SERVICES} testid="services">
          ${services.map((one) => html`<tr key=${`${one.slot} ${one.pid}`}>
            <th scope="row">${one.name}</th>
            <td class="number">${one.pid || "–"}</td>
            <td>${one.state}</td>
            <td class="number">${one.holder || "–"}</td>
            <td class="number">${seconds(one.age_s)}</td>
          </tr>`)}
        <//>`
      : html`<${Nothing} title="No service is up">
          Services that requests lease with <code>forebay.acquire</code> appear here.
        <//>`}
  <//>`;
}

function highest(worker, history) {
  return Math.max(worker.private_bytes ?? 0, ...workerHistory(history, worker.pid));
}
