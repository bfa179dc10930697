/** Says that the connection is lost, since when, and when the next try is. */
import { html, useEffect, useState } from "../core/elements.js";
import { connection, tryNow } from "../core/connection.js";
import { growing } from "../core/format.js";
import { useSignal } from "../core/signal.js";

const TICK_MS = 250;

/** Nothing while the server answers. */
export function ConnectionBar() {
  const state = useSignal(connection);
  return state.phase === "lost" && html`<${Lost} state=${state} />`;
}

function Lost({ state }) {
  const now = useNow();
  const left = state.nextAt === null ? null : Math.max(0, Math.ceil((state.nextAt - now) / 1000));
  return html`<div class="connection-bar" data-testid="connection-bar">
    <span role="status"><strong>The connection is lost.</strong> ${state.why}</span>
    <span class="number">
      ${growing((now - state.since) / 1000)} ago; figures are of then.
      ${" "}${left === null ? "Trying …" : `Next try in ${left} s.`}
    </span>
    <button type="button" class="button" data-testid="try-now" onClick=${tryNow}>Try now</button>
  </div>`;
}

function useNow() {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}
