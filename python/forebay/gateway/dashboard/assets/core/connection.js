/** Whether the server answers, since when it does not, and when the next try is. */
import { Signal } from "./signal.js";

const PAUSES_MS = [1000, 2000, 4000, 8000, 15_000];

/** `phase`: "opening" until the first answer, "open", "lost". Times by the browser's clock. */
export const connection = new Signal({ phase: "opening", since: null, nextAt: null, why: "" });

let attempt = 0;
let timer = null;
let probe = async () => {};

/** Name the function that finds out whether the server answers; it reports by the two below. */
export function probeWith(asked) {
  probe = asked;
}

/** An answer has come. */
export function serverAnswered() {
  clearTimeout(timer);
  attempt = 0;
  if (connection.value.phase === "open") return;
  connection.value = { phase: "open", since: null, nextAt: null, why: "" };
}

/** No answer has come; another try follows. */
export function serverLost(why) {
  clearTimeout(timer);
  const pause = PAUSES_MS[Math.min(attempt, PAUSES_MS.length - 1)];
  attempt += 1;
  const now = Date.now();
  const since = connection.value.phase === "lost" ? connection.value.since : now;
  connection.value = { phase: "lost", since, nextAt: now + pause, why };
  timer = setTimeout(tryNow, pause);
}

/** Try at once. */
export function tryNow() {
  clearTimeout(timer);
  if (connection.value.phase === "lost") connection.value = { ...connection.value, nextAt: null };
  return probe();
}
