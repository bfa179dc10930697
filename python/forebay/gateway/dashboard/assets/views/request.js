/** One request: what it does, why, what it wrote, how it ended. */
import { html, useState } from "../core/elements.js";
import { useServerNow } from "../core/clock.js";
import { bytes, seconds } from "../core/format.js";
import { useKeys } from "../core/keys.js";
import { goBack, linkBack, linkTo } from "../core/router.js";
import { usePolled } from "../data/polled.js";
import { useRequest } from "../data/request.js";
import { ENDED } from "../data/row-events.js";
import { segmentsOf } from "../data/segments.js";
import { askToCancel, askToRetry } from "../parts/acts.js";
import { Button } from "../parts/button.js";
import { Children } from "../parts/children.js";
import { Command, Copy } from "../parts/copy.js";
import { Failure } from "../parts/failure.js";
import { Icon } from "../parts/icons.js";
import { Items } from "../parts/items.js";
import { Log } from "../parts/log.js";
import { Ago, Since } from "../parts/moment.js";
import { Loading, NextStep, Nothing, Refusal, Told } from "../parts/notices.js";
import { Panel } from "../parts/panel.js";
import { Progress } from "../parts/progress.js";
import { Status } from "../parts/status.js";
import { Timeline } from "../parts/timeline.js";
import { Value } from "../parts/value.js";

/** @param {{id: string}} props an id, the unique beginning of one, or "@last" */
export function RequestView({ id }) {
  const told = useRequest(id);
  useKeys({ Escape: () => goBack("requests") });
  return html`<p class="crumb">
      <a href=${linkBack("requests")}><${Icon} name="back" /> Requests</a>
    </p>
    <${Answer} told=${told} id=${id} />`;
}

function Answer({ told, id }) {
  if (told.problem?.status === 404) return html`<${Gone} id=${id} />`;
  if (told.problem) return html`<${Refusal} problem=${told.problem} />`;
  if (!told.value) return html`<${Loading} what="the request" />`;
  return html`<${Whole} shown=${told.value} progress=${told.progress} renew=${told.renew}
    key=${told.value.id} />`;
}

function Gone({ id }) {
  return html`<${Nothing} title=${`There is no request ${id}`}>
    It is not kept any more, or there never was one: ended requests are given up by the server's
    retention, or by <code>forebay prune</code>.
  <//>`;
}

function Whole({ shown, progress, renew }) {
  const isOver = ENDED.has(shown.status);
  return html`<${Heading} shown=${shown} renew=${renew} />
    <${Why} shown=${shown} progress=${isOver ? null : progress} />
    ${shown.failure && html`<${Failure} failure=${shown.failure} />`}
    <div class="columns">
      <div class="stack">
        <${Life} shown=${shown} />
        <${Arguments} id=${shown.id} />
      </div>
      <${Facts} shown=${shown} />
    </div>
    ${shown.items && html`<${Items} id=${shown.id} told=${shown.items} />`}
    <${Panel} title="Log" testid="panel-log">
      <${Log} id=${shown.id} life=${shown.retried} isOver=${isOver} />
    <//>
    <${Children} id=${shown.id} />`;
}

function Heading({ shown, renew }) {
  const isOver = ENDED.has(shown.status);
  return html`<div class="request-head" data-testid="request-head">
    <div class="request-name">
      <h1 tabindex="-1">${shown.name}</h1>
      <${Status} word=${shown.status} />
    </div>
    <span class="request-id">
      <code class="id" data-testid="request-id">${shown.id}</code>
      <${Copy} text=${shown.id} label="Copy the id" />
    </span>
    <div class="acts">
      <${Button} needs="submit" kind="danger-text" data-testid="cancel"
        because=${isOver ? "It has ended." : null}
        onPress=${() => askToCancel([shown], renew)}>Cancel<//>
      <${Button} needs="submit" data-testid="retry" because=${isOver ? null : "It has not ended."}
        onPress=${() => askToRetry([shown], renew)}>Retry<//>
    </div>
  </div>`;
}

/** The reason where it stands, the next step, and how far it is. */
function Why({ shown, progress }) {
  return html`<section class="why" aria-label="Why" data-testid="why">
    ${shown.reason && html`<p role="status">${sentence(shown.reason)}</p>`}
    ${progress && html`<${Progress} progress=${progress} />`}
    ${shown.next && html`<p><${NextStep} text=${shown.next} /></p>`}
    ${shown.failure?.kind === "raised" &&
    html`<p>Again, in the foreground: <${Command} text=${`forebay replay ${shown.id} --pdb`} /></p>`}
  </section>`;
}

function Life({ shown }) {
  const now = useServerNow();
  return html`<${Panel} title="Timeline" testid="panel-timeline">
    <${Timeline} segments=${segmentsOf(shown, now)} />
    <${Decisions} decisions=${shown.decisions} />
  <//>`;
}

function Decisions({ decisions }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details class="decisions" open=${isOpen} onToggle=${(event) => setOpen(event.target.open)}>
    <summary>What was decided (${decisions.length})</summary>
    <ol>
      ${decisions.map(
        ({ at, text }) => html`<li><span class="quiet"><${Ago} at=${at} /></span><span>${text}</span></li>`,
      )}
    </ol>
  </details>`;
}

function Facts({ shown }) {
  const facts = [
    ["Accepted", html`<${Ago} at=${shown.accepted_at} />`],
    ["Waited", waited(shown)],
    ["Ran", ran(shown)],
    ["Peak memory", bytes(shown.peak_bytes)],
    ["Result", shown.status === "succeeded" ? html`<${Result} shown=${shown} />` : "–"],
    ["Attempts", attempts(shown)],
    ["Lane", shown.lane],
    ["Submitter", shown.submitter && html`<${Submitter} name=${shown.submitter} />`],
    ["Priority", String(shown.priority)],
    ["Parent", shown.parent && html`<a href=${linkTo("requests", shown.parent)}><code>${shown.parent}</code></a>`],
    ["Code", html`<code>${(shown.code ?? "").slice(0, 12)}</code>`],
    ["Trace", shown.traceparent && html`<code>${shown.traceparent}</code>`],
    ...Object.entries(shown.options).map(option),
  ];
  return html`<${Panel} title="Facts" testid="panel-facts">
    <dl class="facts">
      ${facts.filter(([, value]) => value).map(
        ([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`,
      )}
    </dl>
  <//>`;
}

function Submitter({ name }) {
  return html`<a href=${linkTo("requests", null, { submitter: name })}>${name}</a>`;
}

/** An option of its submission, with its unit read off its name. */
function option([name, value]) {
  const words = sentence(name.replaceAll("_", " "));
  if (words.endsWith(" bytes")) return [words.slice(0, -6), bytes(value)];
  if (words.endsWith(" ms")) return [words.slice(0, -3), seconds(value / 1000)];
  return [words, html`<${Value} value=${value} />`];
}

function Result({ shown }) {
  const href = `../v1/requests/${encodeURIComponent(shown.id)}/result`;
  return html`<a href=${href} target="_blank" rel="noopener">${bytes(shown.result_bytes)}</a>`;
}

function waited(shown) {
  const isWaiting = shown.status === "queued" && !shown.started_at;
  return isWaiting ? html`<${Since} at=${shown.accepted_at} />` : seconds(shown.queue_s);
}

function ran(shown) {
  if (shown.status === "running" && shown.started_at) return html`<${Since} at=${shown.started_at} />`;
  return seconds(shown.run_s);
}

function attempts({ attempts: number, deaths, retried }) {
  const parts = [String(number)];
  if (deaths) parts.push(`${deaths} ended a worker`);
  if (retried) parts.push(`retried ${retried} ×`);
  return parts.join(", ");
}

function Arguments({ id }) {
  const polled = usePolled(`v1/requests/${encodeURIComponent(id)}/arguments`);
  return html`<${Panel} title="Arguments" testid="panel-arguments">
    <${Told} polled=${polled} what="the arguments">
      ${({ arguments: given }) =>
        Object.keys(given).length
          ? html`<dl class="facts">
              ${Object.entries(given).map(
                ([name, value]) => html`<div><dt>${name}</dt><dd><${Value} value=${value} /></dd></div>`,
              )}
            </dl>`
          : html`<p class="quiet">It has none.</p>`}
    <//>
  <//>`;
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
