/** A command that can be copied. */
import { html, useState } from "../core/elements.js";
import { Icon } from "./icons.js";

const SAID_MS = 1500;

/** A command in one line, with a button that copies it. */
export function Command({ text }) {
  return html`<span class="command">
    <code>${text}</code>
    <${Copy} text=${text} label=${`Copy: ${text}`} />
  </span>`;
}

/** The button alone. */
export function Copy({ text, label }) {
  const [isDone, setDone] = useState(false);
  const press = async () => {
    await copy(text);
    setDone(true);
    setTimeout(() => setDone(false), SAID_MS);
  };
  return html`<button
    type="button"
    class="icon-button"
    aria-label=${isDone ? "Copied" : label}
    title=${isDone ? "Copied" : label}
    data-testid="copy"
    onClick=${press}
  >
    <${Icon} name=${isDone ? "check" : "copy"} />
  </button>`;
}

async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  copySelected(text); // a page over plain HTTP from another host has no clipboard
}

function copySelected(text) {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "unseen";
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
