/** What the list of requests shows, kept in the link. */
import { html, useEffect, useRef, useState } from "../core/elements.js";
import { goTo, replaceQuery } from "../core/router.js";
import { useKeys } from "../core/keys.js";
import { SPANS_S } from "../data/request-list.js";
import { STATUSES } from "../data/row-events.js";
import { usePolled } from "../data/polled.js";

const ID = /^[0-9A-Za-z]{12}$/;
const LANES = ["short", "long", "async"];

/** @param {{filter: object}} props the words of the link */
export function FilterBar({ filter }) {
  const set = (change) => replaceQuery({ ...filter, ...change });
  const chosen = filter.status ? filter.status.split(",") : [];
  const toggle = (word) => {
    const next = chosen.includes(word) ? chosen.filter((it) => it !== word) : [...chosen, word];
    set({ status: next.join(",") });
  };
  const isFiltered = Object.values(filter).some(Boolean);
  return html`<form class="filters" role="search" aria-label="Filter requests"
    onSubmit=${(event) => event.preventDefault()}>
    <${NameField} filter=${filter} set=${set} />
    <div class="chips" role="group" aria-label="Status">
      ${STATUSES.map(
        (word) => html`<button type="button" class="chip" aria-pressed=${String(chosen.includes(word))}
          data-testid=${`filter-${word}`} onClick=${() => toggle(word)}>
          <i class=${`mark status-${word}`} aria-hidden="true"></i>${word}
        </button>`,
      )}
    </div>
    <${Choice} label="Lane" value=${filter.lane} words=${LANES} onChoice=${(lane) => set({ lane })} />
    <${Choice} label="Accepted" value=${filter.since} words=${Object.keys(SPANS_S)}
      shown=${(word) => `last ${word}`} onChoice=${(since) => set({ since })} />
    ${filter.submitter &&
    html`<button type="button" class="chip" aria-pressed="true" onClick=${() => set({ submitter: "" })}>
      submitter ${filter.submitter} ×
    </button>`}
    ${isFiltered &&
    html`<button type="button" class="button plain" data-testid="filter-clear"
      onClick=${() => replaceQuery({})}>Clear</button>`}
  </form>`;
}

/** The name of a request of the application; an id goes there. */
function NameField({ filter, set }) {
  const field = useRef(null);
  const [text, setText] = useState(filter.name ?? "");
  const { value: manifest } = usePolled("v1/manifest");
  useEffect(() => setText(filter.name ?? ""), [filter.name]);
  useKeys({ "/": () => field.current.focus() });
  const names = manifestNames(manifest);
  const apply = (value) => {
    const word = value.trim();
    if (ID.test(word) && !names.includes(word)) goTo("requests", word);
    else set({ name: word });
  };
  const onInput = (event) => {
    setText(event.target.value);
    if (names.includes(event.target.value) || !event.target.value) apply(event.target.value);
  };
  /** Give up what was typed; the rows that are selected stay so. */
  const leave = (event) => {
    event.preventDefault();
    field.current.value = filter.name ?? "";
    setText(field.current.value);
    field.current.blur();
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter") apply(text);
    if (event.key === "Escape") leave(event);
  };
  return html`<label class="field">
    <span class="unseen">Name of a request, or an id</span>
    <input type="search" list="names" placeholder="Name or id  ( / )" data-testid="filter-name"
      autocomplete="off" spellcheck=${false} ref=${field} value=${text} onInput=${onInput}
      onKeyDown=${onKeyDown} onChange=${() => apply(text)} />
    <datalist id="names">${names.map((name) => html`<option value=${name}></option>`)}</datalist>
  </label>`;
}

function Choice({ label, value, words, shown = (word) => word, onChoice }) {
  return html`<label class="field">
    <span class="unseen">${label}</span>
    <select aria-label=${label} data-testid=${`filter-${label.toLowerCase()}`} value=${value ?? ""}
      onChange=${(event) => onChoice(event.target.value)}>
      <option value="">${label}: any</option>
      ${words.map((word) => html`<option value=${word} selected=${word === value}>${shown(word)}</option>`)}
    </select>
  </label>`;
}

/** The names of the application's requests. */
export function manifestNames(manifest) {
  const requests = manifest?.requests ?? [];
  return requests.map((one) => one.name);
}
