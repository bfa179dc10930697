/** The list of requests: filtered, selected, cancelled and retried. */
import { html, useEffect, useLayoutEffect, useRef, useState } from "../core/elements.js";
import { feed } from "../core/feed.js";
import { count, counted } from "../core/format.js";
import { useKeys } from "../core/keys.js";
import { goTo } from "../core/router.js";
import { useSignal } from "../core/signal.js";
import { RequestList } from "../data/request-list.js";
import { askToCancel, askToRetry, noneToCancel, noneToRetry } from "../parts/acts.js";
import { Button } from "../parts/button.js";
import { Command } from "../parts/copy.js";
import { FilterBar } from "../parts/filter-bar.js";
import { Loading, Nothing, Refusal } from "../parts/notices.js";
import { COLUMNS, RequestRow } from "../parts/request-row.js";
import { useSelection } from "../parts/selection.js";
import { scrollToRow, VirtualList } from "../parts/virtual-list.js";

const ROW_PX = 36;
const NARROW_ROW_PX = 60;
const FIELDS = ["status", "name", "submitter", "lane", "since"];
const narrow = matchMedia("(max-width: 720px)");

/** The list that was shown last: who comes back from one request is where they were. */
let kept = { key: null, list: null, end: () => {} };

/** @param {{query: object}} props of the link */
export function RequestsView({ query }) {
  const filter = Object.fromEntries(FIELDS.map((name) => [name, query[name] ?? ""]));
  const list = listOf(filter);
  useSignal(list.version);
  return html`<${FilterBar} filter=${filter} />
    <${Shown} list=${list} isFiltered=${Object.values(filter).some(Boolean)} />`;
}

/** The list of a filter; it follows the feed until another one is shown. */
function listOf(filter) {
  const key = JSON.stringify(filter);
  if (kept.key !== key) {
    kept.end();
    const list = new RequestList(filter);
    kept = { key, list, end: list.follow(feed) };
  }
  return kept.list;
}

function Shown({ list, isFiltered }) {
  if (list.state === "loading") return html`<${Loading} what="requests" />`;
  if (list.state !== "ready") return html`<${Refusal} problem=${list.state} />`;
  if (list.length === 0 && list.hasMore) return html`<${Deeper} list=${list} />`;
  if (list.length === 0) return isFiltered ? html`<${NoneFits} />` : html`<${NoneYet} />`;
  return html`<${Grid} list=${list} />`;
}

function NoneYet() {
  return html`<${Nothing} title="Nothing has been submitted yet">
    <p>A request appears here once it is accepted:</p>
    <p><${Command} text="forebay submit NAME --argument value" /></p>
  <//>`;
}

function NoneFits() {
  return html`<${Nothing} title="No request fits this filter">
    Take a part of it away to see more; new requests that fit appear by themselves.
  <//>`;
}

/** Many were looked at, and none of them fits. */
function Deeper({ list }) {
  return html`<${Nothing} title="None of the newest requests fits this filter">
    <${Older} list=${list} />
  <//>`;
}

/** Read on where the list has given that up. */
function Older({ list }) {
  return html`<${Button} because=${list.isReading ? "It is being read." : null} data-testid="look-older"
    onPress=${() => list.readMore()}>Look at older ones<//>`;
}

function Grid({ list }) {
  const box = useRef(null);
  const rowHeight = useRowHeight();
  const [active, setActive] = useState(null);
  const selection = useSelection(list);
  const go = (index) => {
    const place = Math.max(0, Math.min(list.length - 1, index));
    setActive(list.at(place).id);
    scrollToRow(box.current, place, rowHeight);
  };
  useGridKeys({ list, active, go, selection, box, rowHeight });
  useScrollPlace(box, list);
  const onPress = (event, index) => {
    if (event.target.closest("a, input")) return;
    setActive(list.at(index).id);
    if (event.shiftKey) selection.extendTo(index);
    else goTo("requests", list.at(index).id);
  };
  const row = (index) => {
    const one = list.at(index);
    return html`<${RequestRow} key=${one.id} row=${one} index=${index} isActive=${one.id === active}
      isSelected=${selection.has(one.id)} onSelect=${selection.onSelect} onPress=${onPress} />`;
  };
  const onRange = ({ isAtTop, isAtEnd }) => {
    list.hold(!isAtTop);
    list.reach(isAtEnd);
  };
  const toTop = () => {
    box.current.scrollTop = 0;
  };
  return html`<${Toolbar} list=${list} selection=${selection} toTop=${toTop} />
    <div class="grid" role="grid" tabindex="0" aria-label="Requests" aria-multiselectable="true"
      aria-rowcount=${list.hasMore ? -1 : list.length + 1} data-testid="requests-grid"
      aria-activedescendant=${isDrawn(active) ? `row-${active}` : undefined}
      onFocus=${() => active ?? setActive(list.at(0)?.id ?? null)}>
      <${Head} selection=${selection} list=${list} />
      <${VirtualList} class="grid-body" role="presentation" rowsRole="rowgroup" count=${list.length}
        rowHeight=${rowHeight} row=${row} box=${box} onRange=${onRange} />
    </div>`;
}

function Head({ selection, list }) {
  return html`<div role="rowgroup"><div role="row" class="grid-row grid-head" aria-rowindex="1">
    <span role="columnheader" class="cell-check">
      <input type="checkbox" tabindex="-1" aria-label="Select all that are here"
        data-testid="select-all" checked=${selection.size > 0 && selection.size === list.length}
        onChange=${() => selection.toggleAll()} />
    </span>
    ${COLUMNS.map(([text, kind], at) => html`<span role="columnheader"
      class=${`${kind} cell-${CELLS[at]}`}>${text}</span>`)}
  </div></div>`;
}

const CELLS = ["status", "name", "what", "waited", "ran", "peak", "submitter", "accepted"];

/** How many there are, and what can be done to those that are selected. */
function Toolbar({ list, selection, toTop }) {
  const rows = selection.rows();
  return html`<div class="toolbar" data-testid="toolbar">
    ${rows.length ? html`<${Acts} rows=${rows} clear=${() => selection.clear()} />` : html`<${Count} list=${list} />`}
    ${list.isSpent && list.hasMore && html`<${Older} list=${list} />`}
    ${list.held > 0 &&
    html`<${Button} kind="held" data-testid="show-newer" onPress=${toTop}>${count(list.held)} newer<//>`}
  </div>`;
}

function Acts({ rows, clear }) {
  return html`
    <span class="number" role="status">${count(rows.length)} selected</span>
    <${Button} needs="submit" kind="danger-text" because=${noneToCancel(rows)}
      data-testid="cancel-selected" onPress=${() => askToCancel(rows, clear)}>Cancel<//>
    <${Button} needs="submit" because=${noneToRetry(rows)} data-testid="retry-selected"
      onPress=${() => askToRetry(rows, clear)}>Retry<//>
    <${Button} kind="plain" onPress=${clear}>Select none<//>`;
}

function Count({ list }) {
  const words = counted(list.length, "request");
  const more = list.isFull ? ", the newest; older ones: use a filter" : list.hasMore ? " and older ones" : "";
  return html`<span class="quiet number" data-testid="requests-count">${words}${more}</span>`;
}

function useRowHeight() {
  const [isNarrow, setNarrow] = useState(narrow.matches);
  useEffect(() => {
    const look = () => setNarrow(narrow.matches);
    narrow.addEventListener("change", look);
    return () => narrow.removeEventListener("change", look);
  }, []);
  return isNarrow ? NARROW_ROW_PX : ROW_PX;
}

function useScrollPlace(box, list) {
  useLayoutEffect(() => {
    const element = box.current;
    element.scrollTop = list.scrollTop;
    return () => {
      list.scrollTop = element.scrollTop;
    };
  }, [list]);
}

function useGridKeys({ list, active, go, selection, box, rowHeight }) {
  const at = active === null ? -1 : list.indexOf(active);
  const isOnPage = (event) => !event.target.closest?.("a, button, select, input");
  const step = (by, event) => {
    const isExtending = event.shiftKey || "JK".includes(event.key);
    if (isExtending) selection.extendTo(Math.max(0, Math.min(list.length - 1, at + by)), at);
    go(at + by);
  };
  const page = () => Math.floor(box.current.clientHeight / rowHeight) - 1;
  const open = (event) => {
    if (at < 0 || !isOnPage(event)) return false;
    goTo("requests", active);
    return undefined;
  };
  const down = (event) => step(1, event);
  const up = (event) => step(-1, event);
  useKeys({
    j: down, J: down, ArrowDown: down, k: up, K: up, ArrowUp: up,
    PageDown: (event) => step(page(), event),
    PageUp: (event) => step(-page(), event),
    Home: () => go(0),
    End: () => go(list.length - 1),
    Enter: open,
    x: () => at >= 0 && selection.toggle(active, at),
    " ": (event) => (isOnPage(event) && at >= 0 ? selection.toggle(active, at) : false),
    a: () => selection.toggleAll(),
    c: () => document.querySelector("[data-testid=cancel-selected]")?.click(),
    r: () => document.querySelector("[data-testid=retry-selected]")?.click(),
    Escape: () => selection.clear(),
  });
}

function isDrawn(id) {
  return id !== null && document.getElementById(`row-${id}`) !== null;
}
