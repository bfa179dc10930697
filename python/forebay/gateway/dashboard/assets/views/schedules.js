/** Requests that run by the clock: when they ran, when they run next; pause and resume. */
import { html } from "../core/elements.js";
import { count } from "../core/format.js";
import { linkTo } from "../core/router.js";
import { usePolled } from "../data/polled.js";
import { Button } from "../parts/button.js";
import { ask } from "../parts/dialog.js";
import { Ago } from "../parts/moment.js";
import { Nothing, Told } from "../parts/notices.js";
import { Panel, Table } from "../parts/panel.js";

const PERIOD_MS = 5000;
const HEAD = [["Schedule"], ["State"], [html`<span class="unseen">Acts</span>`], ["Pattern (UTC)"],
  ["Last", "number"], ["Next", "number"], ["Skipped", "number"], ["Newest request"]];

/** All of them. */
export function SchedulesView() {
  const polled = usePolled("v1/schedules", {
    periodMs: PERIOD_MS,
    concerns: (event) => event.event === "schedule",
  });
  return html`<${Told} polled=${polled} what="schedules">
    ${({ schedules }) =>
      schedules.length
        ? html`<${Schedules} schedules=${schedules} renew=${polled.renew} />`
        : html`<${NoneYet} />`}
  <//>`;
}

function NoneYet() {
  return html`<${Nothing} title="The application has no schedules">
    A request with a pattern has one: <code>@app.request(cron="*/5 * * * *")</code> runs it each
    five minutes.
  <//>`;
}

function Schedules({ schedules, renew }) {
  return html`<${Panel} title=${`Schedules (${count(schedules.length)})`} testid="panel-schedules">
    <${Table} label="Schedules" head=${HEAD} testid="schedules">
      ${schedules.map((one) => html`<${Schedule} key=${one.name} schedule=${one} renew=${renew} />`)}
    <//>
  <//>`;
}

function Schedule({ schedule, renew }) {
  const { name, cron, paused, fired_at, next_at, skipped, last, said } = schedule;
  return html`<tr data-testid="schedule-row">
    <th scope="row">${name}</th>
    <td title=${said || undefined}>${paused ? "paused" : "on"}</td>
    <td>
      <${Button} needs="admin" data-testid=${paused ? "resume" : "pause"}
        onPress=${() => askToSet(schedule, renew)}>${paused ? "Resume" : "Pause"}<//>
    </td>
    <td><code>${cron}</code></td>
    <td class="number"><${Ago} at=${fired_at} /></td>
    <td class="number">${paused ? html`<span class="quiet">–</span>` : html`<${Ago} at=${next_at} />`}</td>
    <td class="number">${count(skipped)}</td>
    <td>${last && html`<a class="id-link" href=${linkTo("requests", last)}><code>${last}</code></a>`}</td>
  </tr>`;
}

function askToSet({ name, paused }, renew) {
  const verb = paused ? "resume" : "pause";
  ask({
    title: paused ? `Resume the schedule ${name}?` : `Pause the schedule ${name}?`,
    text: paused
      ? "It runs again at its next time; times that passed meanwhile are skipped."
      : "Times that pass while it is paused are skipped.",
    verb: paused ? "Resume it" : "Pause it",
    keep: "Leave it",
    isDanger: !paused,
    acts: [{ label: name, path: `v1/schedules/${encodeURIComponent(name)}/${verb}` }],
    onDone: renew,
  });
}
