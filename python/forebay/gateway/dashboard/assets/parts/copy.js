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
  const [isDone, setDone] = useState(null);
  const words = { true: "Copied", false: "Not copied: the browser refuses it" }[isDone] ?? label;
  const icon = { true: "check", false: "close" }[isDone] ?? "copy";
  const press = async () => {
    setDone(await copy(text));
    setTimeout(() => setDone(null), SAID_MS);
  };
  return html`<button
    type="button"
    class="icon-button"
    aria-label=${words}
    title=${words}
    data-testid="copy"
    onClick=${press}
  >
    <${Icon} name=${icon} />
  </button>`;
}

/** Whether it was copied. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelected(text); // refused, or a page over plain HTTP from another host, which has none
  }
}

function copySelected(text) {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "unseen";
  document.body.append(field);
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  return isDone;
}
