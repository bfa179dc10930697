/** What a request has yielded: how many items, and the last of them. */
import { html } from "../core/elements.js";
import { addressOf } from "../core/api.js";
import { bytes, count, counted } from "../core/format.js";
import { useItems } from "../data/items.js";
import { Refusal } from "./notices.js";
import { Panel } from "./panel.js";
import { Value } from "./value.js";

/** @param {{id: string, told: {epoch: number, count: number, bytes: number}}} props */
export function Items({ id, told }) {
  const { items, problem } = useItems(id, told);
  return html`<${Panel} title="Items" aside=${html`<${Figures} id=${id} told=${told} />`}
    testid="panel-items">
    ${problem && html`<${Refusal} problem=${problem} />`}
    ${told.count === 0 && html`<p class="quiet">It has yielded none yet.</p>`}
    <dl class="facts" data-testid="items">
      ${items.map((one) => html`<${Item} one=${one} key=${`${one.epoch}-${one.number}`} />`)}
    </dl>
  <//>`;
}

/** A new epoch begins with item 1, so that it stands beside the number. */
function Figures({ id, told }) {
  const href = addressOf(`v1/requests/${encodeURIComponent(id)}/items`).href;
  return html`<span class="quiet number">
    ${counted(told.count, "item")}, ${bytes(told.bytes)}, epoch ${count(told.epoch)}
  </span> <a href=${href} target="_blank" rel="noopener">all of them</a>`;
}

function Item({ one }) {
  const isLarge = !("item" in one);
  return html`<div>
    <dt class="number">${count(one.number)}</dt>
    <dd>${isLarge ? html`<span class="quiet">${bytes(one.bytes)}</span>` : html`<${Value} value=${one.item} />`}</dd>
  </div>`;
}
