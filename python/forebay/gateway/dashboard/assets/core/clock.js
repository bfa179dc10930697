/** The time at the server: the clock of the browser may be wrong. */
import { useSignal, Signal } from "./signal.js";

const TICK_MS = 1000;
const LATE_MS = 3000;

let ahead = 0;
const ticks = new Signal(0);

setInterval(() => {
  if (document.visibilityState !== "hidden") ticks.value += 1;
}, TICK_MS);

/** Take the time of an answer that came now; of those that came late the least late one counts. */
export function setServerTime(text) {
  const told = Date.parse(text) - Date.now();
  ahead = Math.abs(told - ahead) < LATE_MS ? Math.max(told, ahead) : told;
}

/** Milliseconds since 1970, by the server's clock. */
export function serverNow() {
  return Date.now() + ahead;
}

/** The same; the component is drawn again each second. */
export function useServerNow() {
  useSignal(ticks);
  return serverNow();
}
