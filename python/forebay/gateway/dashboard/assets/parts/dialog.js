/** Dialogs: the browser keeps the focus inside, and Escape leaves. */
import { html, useEffect, useLayoutEffect, useRef, useState } from "../core/elements.js";
import { counted } from "../core/format.js";
import { session } from "../core/session.js";
import { Signal, useSignal } from "../core/signal.js";
import { ACTS_MAX, Bulk } from "../data/bulk.js";
import { NextStep } from "./notices.js";

const NAMED_MAX = 8;
const REFUSED_MAX = 50;

/** What is asked now; null: nothing. */
const asked = new Signal(null);

/** It is of the session: who logs in next was asked nothing. */
session.watch(({ open }) => {
  if (open === false) asked.value = null;
});

/**
 * Ask before an act on some things, do it, and show what was refused.
 * @param {object} question
 * @param {string} question.title such as "Cancel 3 requests?"
 * @param {string} question.text what it destroys
 * @param {string} question.verb on the button that does it
 * @param {string} question.keep on the button that leaves
 * @param {boolean} question.isDanger
 * @param {{label: string, path: string}[]} question.acts
 * @param {() => void} [question.onDone]
 */
export function ask(question) {
  asked.value = question;
}

/** Where dialogs are drawn: once in a page. */
export function DialogHost() {
  const question = useSignal(asked);
  return question && html`<${Question} question=${question} key=${question.title} />`;
}

/** Close the dialog that is open: the focus goes back to where it was. */
export function closeDialog() {
  document.querySelector("dialog[open]")?.close();
}

/** A modal element of the browser. */
export function Modal({ title, testid, onClose, children }) {
  const element = useRef(null);
  useLayoutEffect(() => element.current.showModal(), []);
  return html`<dialog ref=${element} aria-labelledby="dialog-title" data-testid=${testid}
    onClose=${onClose}>
    <h2 id="dialog-title">${title}</h2>
    ${children}
  </dialog>`;
}

function Question({ question }) {
  const [bulk, setBulk] = useState(null);
  const leave = () => {
    asked.value = null;
  };
  useEffect(() => () => bulk?.stop(), [bulk]);
  const begin = async () => {
    const begun = new Bulk(question.acts);
    setBulk(begun);
    await begun.run();
    question.onDone?.();
    if (!begun.progress.value.refused.length && asked.value === question) closeDialog();
  };
  return html`<${Modal} title=${bulk ? question.verb : question.title} testid="confirm-dialog" onClose=${leave}>
    ${bulk
      ? html`<${Doing} bulk=${bulk} />`
      : html`<${Asking} question=${question} begin=${begin} />`}
  <//>`;
}

function Asking({ question, begin }) {
  const { acts, text, verb, keep, isDanger } = question;
  const more = Math.min(acts.length, ACTS_MAX) - NAMED_MAX;
  return html`<p>${text}</p>
    ${acts.length > ACTS_MAX &&
    html`<p>The first ${counted(ACTS_MAX, "request")} of ${acts.length}; select the others next.</p>`}
    <ul class="named">
      ${acts.slice(0, NAMED_MAX).map((one) => html`<li>${one.label}</li>`)}
      ${more > 0 && html`<li class="quiet">and ${counted(more, "other")}</li>`}
    </ul>
    <div class="dialog-acts">
      <button type="button" class="button" data-testid="confirm-keep" autofocus
        onClick=${closeDialog}>
        ${keep}
      </button>
      <button type="button" class=${`button ${isDanger ? "danger" : "primary"}`}
        data-testid="confirm-act" onClick=${begin}>
        ${verb}
      </button>
    </div>`;
}

function Doing({ bulk }) {
  const { phase, done, total, refused } = useSignal(bulk.progress);
  const words = `${done} of ${total} answered, ${refused.length} refused`;
  return html`<div role="status" data-testid="bulk-progress">
      <progress max=${total} value=${done} aria-label="answered"></progress>
      <p>${words}</p>
    </div>
    ${refused.length > 0 && html`<${Refused} refused=${refused} />`}
    <div class="dialog-acts">
      <button type="button" class="button" data-testid="bulk-close" onClick=${closeDialog}>
        ${phase === "done" ? "Close" : "Stop"}
      </button>
    </div>`;
}

function Refused({ refused }) {
  const more = refused.length - REFUSED_MAX;
  return html`<ul class="named refused" data-testid="bulk-refused">
    ${refused.slice(0, REFUSED_MAX).map(
      ({ label, problem }) => html`<li>
        <strong>${label}</strong>: ${problem.message}
        ${problem.next && html`<div><${NextStep} text=${problem.next} /></div>`}
      </li>`,
    )}
    ${more > 0 && html`<li>and ${more} more</li>`}
  </ul>`;
}
