/** How the server is, at a glance. */
import { html } from "../core/elements.js";
import { bytes, count, counted, percent, seconds } from "../core/format.js";
import { linkTo } from "../core/router.js";
import { useSignal } from "../core/signal.js";
import { figures } from "../data/figures.js";
import { timesOf, waitingOf } from "../data/history.js";
import { usePolled } from "../data/polled.js";
import { failureShort } from "../data/failures.js";
import { Chart } from "../parts/chart.js";
import { Command } from "../parts/copy.js";
import { manifestNames } from "../parts/filter-bar.js";
import { Ago } from "../parts/moment.js";
import { Loading, Nothing, Told } from "../parts/notices.js";
import { Panel, Table } from "../parts/panel.js";
import { ServerNotices } from "../parts/server-notices.js";
import { Status } from "../parts/status.js";

const FAILURES = 8;
const LANES = [["Lane"], ["Waiting", "number"], ["Running", "number"], ["Workers", "number"],
  ["Idle", "number"], ["Starting", "number"]];
const WAITS = {
  worker: "a worker",
  request: "another request",
  time: "a time",
  key: "a key",
  name: "others of its name",
  children: "its children",
};

/** The figures of now, and of the last hour. */
export function OverviewView() {
  const overview = useSignal(figures);
  if (!overview) return html`<${Loading} what="figures" />`;
  return html`<${ServerNotices} overview=${overview} />
    <${Stats} overview=${overview} />
    <div class="columns even">
      <${Memory} overview=${overview} />
      <${Queue} overview=${overview} />
    </div>
    <div class="columns">
      <${Lanes} lanes=${overview.figures.lanes} />
      <${Waits} waits=${overview.waits} />
    </div>
    <div class="columns even">
      <${Ended} overview=${overview} />
      <${Failures} hasAny=${overview.figures.accepted > 0} />
    </div>`;
}

function Stats({ overview }) {
  const { figures: now } = overview;
  const lanes = Object.values(now.lanes);
  const sum = (field) => lanes.reduce((all, lane) => all + lane[field], 0);
  const waiting = sum("ready") + now.parked;
  const bad = now.failed + now.dead;
  return html`<dl class="stats">
    <${Stat} name="Waiting" value=${count(waiting)} testid="stat-waiting"
      href=${linkTo("requests", null, { status: "queued" })}
      note=${now.oldest_ready_ms ? `oldest ${seconds(now.oldest_ready_ms / 1000)}` : "none is late"} />
    <${Stat} name="Running" value=${count(sum("running"))} testid="stat-running"
      href=${linkTo("requests", null, { status: "running" })}
      note=${`${count(now.unfinished)} unfinished`} />
    <${Stat} name="Workers" value=${count(sum("workers_up"))} testid="stat-workers"
      href=${linkTo("workers")} note=${`${count(sum("workers_idle"))} idle`} />
    <${Stat} name="Memory" value=${bytes(now.resident_bytes)} testid="stat-memory"
      href=${linkTo("workers")}
      note=${now.memory_limit_bytes
        ? `${percent(now.resident_bytes, now.memory_limit_bytes)} of ${bytes(now.memory_limit_bytes)}`
        : "no limit"} />
    <${Stat} name="Succeeded" value=${count(now.succeeded)} testid="stat-succeeded"
      href=${linkTo("requests", null, { status: "succeeded" })}
      note=${`of ${count(now.accepted)} since the start`} />
    <${Stat} name="Failed" value=${count(bad)} testid="stat-failed" kind=${bad ? "bad" : ""}
      href=${linkTo("requests", null, { status: "failed,dead" })}
      note=${`${counted(now.deaths, "death")} of workers`} />
  </dl>`;
}

function Stat({ name, value, note, href, testid, kind = "" }) {
  return html`<div class=${`stat ${kind}`} data-testid=${testid}>
    <dt><a href=${href}>${name}</a></dt>
    <dd class="stat-value">${value}</dd>
    <dd class="stat-note">${note}</dd>
  </div>`;
}

function Memory({ overview }) {
  const { history, figures: now } = overview;
  const limit = history.memory_limit_bytes;
  const words = `Memory of the last hour: now ${bytes(now.resident_bytes)} of ${bytes(now.memory_limit_bytes)}`;
  return html`<${Panel} title="Memory" testid="panel-memory">
    <${Chart} label=${words} times=${timesOf(history)} format=${bytes} zeroTop=${1e6} series=${[
      { label: "in use", values: history.resident_bytes, color: "--accent", fill: true },
      { label: "limit", values: limit, color: "--bad", dash: [6, 4] },
    ]} />
  <//>`;
}

function Queue({ overview }) {
  const { history } = overview;
  return html`<${Panel} title="Queue" testid="panel-queue">
    <${Chart} label="Requests that wait and that run, of the last hour" times=${timesOf(history)}
      format=${count} zeroTop=${4} series=${[
        { label: "waiting", values: waitingOf(history), color: "--warn" },
        { label: "running", values: history.running, color: "--accent" },
      ]} />
  <//>`;
}

function Ended({ overview }) {
  const { history } = overview;
  return html`<${Panel} title=${`Ended, each ${history.every_s} s`} testid="panel-ended">
    <${Chart} label="Requests that ended, of the last hour" times=${timesOf(history)}
      format=${count} zeroTop=${4} series=${[
        { label: "all", values: history.finished, color: "--good" },
        { label: "failed", values: history.failed, color: "--bad" },
      ]} />
  <//>`;
}

function Lanes({ lanes }) {
  return html`<${Panel} title="Lanes" testid="panel-lanes">
    <${Table} label="Lanes" head=${LANES} testid="lanes">
      ${Object.entries(lanes).map(
        ([name, lane]) => html`<tr>
          <th scope="row"><a href=${linkTo("requests", null, { lane: name })}>${name}</a></th>
          <td class="number">${count(lane.ready)}</td>
          <td class="number">${count(lane.running)}</td>
          <td class="number">${count(lane.workers_up)}</td>
          <td class="number">${count(lane.workers_idle)}</td>
          <td class="number">${count(lane.workers_starting)}</td>
        </tr>`,
      )}
    <//>
  <//>`;
}

/** What requests wait for, as bars of one scale. */
function Waits({ waits }) {
  const most = Math.max(1, ...Object.values(waits));
  const isAny = Object.values(waits).some(Boolean);
  return html`<${Panel} title="What waits, and for what" testid="panel-waits">
    ${!isAny && html`<p class="quiet">Nothing waits.</p>`}
    ${isAny && html`<ul class="waits">
      ${Object.entries(WAITS).map(([reason, words]) => html`<li class=${waits[reason] ? "" : "quiet"}>
        <span>${words}</span>
        <span class="waits-track" aria-hidden="true">
          <span class="waits-bar" style=${{ width: `${(100 * (waits[reason] ?? 0)) / most}%` }}></span>
        </span>
        <span class="number">${count(waits[reason] ?? 0)}</span>
      </li>`)}
    </ul>`}
  <//>`;
}

function Failures({ hasAny }) {
  const polled = usePolled("v1/requests", {
    query: { status: "failed,dead", limit: FAILURES },
    concerns: (event) => event.event === "ended" && ["failed", "dead"].includes(event.status),
  });
  const all = html`<a href=${linkTo("requests", null, { status: "failed,dead" })}>all</a>`;
  return html`<${Panel} title="Newest failures" testid="panel-failures" aside=${all}>
    <${Told} polled=${polled} what="failures">
      ${({ requests }) => (requests.length
        ? html`<${FailureRows} requests=${requests} />`
        : html`<${NoFailure} hasAny=${hasAny} />`)}
    <//>
  <//>`;
}

function FailureRows({ requests }) {
  return html`<ul class="failures" data-testid="failures">
    ${requests.map((one) => html`<li key=${one.id}>
      <${Status} word=${one.status} />
      <a class="failures-name" href=${linkTo("requests", one.id)}>${one.name}</a>
      <span class="clip" title=${failureShort(one.failure)}>${failureShort(one.failure)}</span>
      <span class="quiet number"><${Ago} at=${one.ended_at} /></span>
    </li>`)}
  </ul>`;
}

function NoFailure({ hasAny }) {
  const { value: manifest } = usePolled(hasAny ? null : "v1/manifest");
  if (hasAny) return html`<p class="quiet">No request that is kept has failed.</p>`;
  const name = manifestNames(manifest)[0] ?? "NAME";
  return html`<${Nothing} title="Nothing has been submitted yet">
    <${Command} text=${`forebay submit ${name}`} />
  <//>`;
}
