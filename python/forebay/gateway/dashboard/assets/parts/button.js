/** Buttons: what the role may not do is there, and says why it cannot be pressed. */
import { html } from "../core/elements.js";
import { forbids, session } from "../core/session.js";
import { useSignal } from "../core/signal.js";

/**
 * A button that can be reached by Tab also when it does nothing, so that its title can be read.
 * @param {object} props
 * @param {string} [props.needs] the role that may press it
 * @param {string|null} [props.because] why it does nothing now
 */
export function Button({ needs, because = null, kind = "", title, onPress, children, ...rest }) {
  useSignal(session);
  const why = (needs && forbids(needs)) || because;
  const press = (event) => {
    if (!why) onPress(event);
  };
  return html`<button
    type="button"
    class=${`button ${kind}`}
    aria-disabled=${why ? "true" : undefined}
    title=${why ?? title}
    onClick=${press}
    ...${rest}
  >
    ${children}
  </button>`;
}
