/** The output of one request: live, searched, and as fast with 100,000 lines as with ten. */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../core/elements.js";
import { addressOf } from "../core/api.js";
import { count, counted } from "../core/format.js";
import { useKeys } from "../core/keys.js";
import { useSignal } from "../core/signal.js";
import { LogSearch } from "../data/log-search.js";
import { LogStream } from "../data/log-stream.js";
import { Icon } from "./icons.js";
import { Loading, Nothing } from "./notices.js";
import { scrollToRow, VirtualList } from "./virtual-list.js";

const LINE_PX = 20;
const HIGHEST = "max(60vh, 240px)";
/** Room for the bar that scrolls sideways. */
const BAR_PX = 16;
const END_PX = 4;

/** @param {{id: string, life: number, isOver: boolean}} props `life`: how often it was retried */
export function Log({ id, life, isOver }) {
  const [stream, setStream] = useState(null);
  useEffect(() => {
    const opened = new LogStream(id);
    setStream(opened);
    return () => opened.close();
  }, [id, life]);
  return stream && html`<${Lines} stream=${stream} id=${id} isOver=${isOver} />`;
}

function Lines({ stream, id, isOver }) {
  const version = useSignal(stream.version);
  const { lines, phase } = stream;
  if (lines.length) return html`<${Shown} ...${{ stream, version, id, isOver }} />`;
  if (phase === "opening") return html`<${Loading} what="the log" />`;
  return html`<${Empty} isOver=${isOver || phase === "ended"} />`;
}

function Shown({ stream, version, id, isOver }) {
  const { lines, phase } = stream;
  const box = useRef(null);
  const search = useSearch(lines, version, box);
  const [follows, setFollows] = useFollowing(box, version, !isOver);
  const row = (index) => html`<${Line} key=${lines.dropped + index} text=${lines.at(index)}
    number=${lines.dropped + index} search=${search} />`;
  return html`<${Bar} search=${search} follows=${follows} setFollows=${setFollows} lines=${lines}
      id=${id} phase=${phase} />
    ${lines.dropped > 0 && html`<${Dropped} count=${lines.dropped} id=${id} />`}
    <${VirtualList} class="log" data-testid="log" role="group" aria-label="Lines" tabindex="0"
      style=${{ height: `min(${lines.length * LINE_PX + BAR_PX}px, ${HIGHEST})` }}
      count=${lines.length} rowHeight=${LINE_PX} row=${row} box=${box} />`;
}

function Empty({ isOver }) {
  if (isOver) return html`<${Nothing} title="It wrote nothing">Its output would be here.<//>`;
  return html`<${Nothing} title="No output yet">
    What it prints appears here as it comes.
  <//>`;
}

function Dropped({ count: dropped, id }) {
  return html`<p class="log-note">
    The first ${counted(dropped, "line")} are not kept in this page: <${Whole} id=${id} />
  </p>`;
}

function Whole({ id }) {
  const href = addressOf(`v1/requests/${encodeURIComponent(id)}/logs`).href;
  return html`<a href=${href} target="_blank" rel="noopener">the whole text</a>`;
}

function Bar({ search, follows, setFollows, lines, id, phase }) {
  return html`<div class="log-bar">
    <label class="field grow">
      <span class="unseen">Search the log</span>
      <input type="search" placeholder="Search the log" data-testid="log-search"
        value=${search.text} ref=${search.field}
        onInput=${(event) => search.setText(event.target.value)} onKeyDown=${search.onKeyDown} />
    </label>
    ${search.text &&
    html`<span class="number" role="status" data-testid="log-found">${search.words}</span>
      <button type="button" class="icon-button" aria-label="Previous match" onClick=${search.back}>
        <${Icon} name="up" />
      </button>
      <button type="button" class="icon-button" aria-label="Next match" onClick=${search.on}>
        <${Icon} name="down" />
      </button>`}
    <label class="check">
      <input type="checkbox" checked=${follows} data-testid="log-follow"
        onChange=${(event) => setFollows(event.target.checked)} />
      Follow
    </label>
    <span class="quiet number">${count(lines.dropped + lines.length)} lines</span>
    <span class="quiet">${phase === "live" ? "live" : ""}</span>
    <${Whole} id=${id} />
  </div>`;
}

/** Scroll with new lines until the reader scrolls away. */
function useFollowing(box, version, first) {
  const [follows, setFollows] = useState(first);
  useLayoutEffect(() => {
    if (follows) box.current.scrollTop = box.current.scrollHeight;
  }, [follows, version]);
  useEffect(() => {
    const element = box.current;
    let top = element.scrollTop;
    const look = () => {
      const isUp = element.scrollTop < top;
      top = element.scrollTop;
      const isEnd = top + element.clientHeight >= element.scrollHeight - END_PX;
      if (isUp && !isEnd) setFollows(false);
    };
    element.addEventListener("scroll", look, { passive: true });
    return () => element.removeEventListener("scroll", look);
  }, []);
  return [follows, setFollows];
}

/** A search within the lines: which have it, and the number of the one that is shown now. */
function useSearch(lines, version, box) {
  const [text, setText] = useState("");
  const [current, setCurrent] = useState(null);
  const field = useRef(null);
  const search = useMemo(() => new LogSearch(lines, text), [lines, text]);
  const found = useMemo(() => search.renew(), [search, version]);
  const at = current === null ? -1 : found.indexOf(current);
  const go = (step) => {
    if (!found.length) return;
    const from = at < 0 && step < 0 ? 0 : at;
    const next = found[(from + step + found.length) % found.length];
    setCurrent(next);
    box.current.scrollIntoView({ block: "nearest" });
    scrollToRow(box.current, next - lines.dropped, LINE_PX, LINE_PX * 2);
  };
  const choose = (next) => {
    setText(next);
    setCurrent(null);
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter") go(event.shiftKey ? -1 : 1);
    if (event.key !== "Escape") return;
    event.preventDefault(); // it leaves the field alone
    choose("");
    field.current.blur();
  };
  useKeys({ "/": () => field.current?.focus() });
  return {
    text,
    setText: choose,
    field,
    onKeyDown,
    on: () => go(1),
    back: () => go(-1),
    words: found.length ? `${at + 1} of ${count(found.length)}` : "no match",
    current,
  };
}

function Line({ text, number, search }) {
  const kind = search.current === number ? "log-line current" : "log-line";
  return html`<div class=${kind} data-testid="log-line">
    <span class="log-number" aria-hidden="true">${number + 1}</span>
    <span class="log-text">${search.text ? marked(text, search.text) : text || " "}</span>
  </div>`;
}

/** The text with what was searched for marked in it. */
function marked(text, wanted) {
  const lower = text.toLowerCase();
  const sought = wanted.toLowerCase();
  const parts = [];
  let from = 0;
  for (let at = lower.indexOf(sought); at >= 0; at = lower.indexOf(sought, from)) {
    parts.push(text.slice(from, at), html`<mark>${text.slice(at, at + sought.length)}</mark>`);
    from = at + sought.length;
  }
  return [...parts, text.slice(from)];
}
