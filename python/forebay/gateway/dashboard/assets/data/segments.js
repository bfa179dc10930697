/** The life of a request as parts of time: waits, runs, pauses between runs. */
import { failureShort } from "./failures.js";

/**
 * @typedef {object} Segment
 * @property {"wait"|"run"|"pause"} kind
 * @property {string} title such as "Run 2"
 * @property {number} from milliseconds since 1970
 * @property {number} to the same; now, where it goes on
 * @property {boolean} isOpen whether it goes on
 * @property {string} note why it waits, or how it ended
 * @property {string} outcome of a run: "running" or a status
 */

/**
 * The segments of what `show` told, the first one first.
 * @param {object} shown
 * @param {number} now milliseconds since 1970, by the server's clock
 * @returns {Segment[]}
 */
export function segmentsOf(shown, now) {
  const found = [];
  let at = Date.parse(shown.accepted_at);
  const runs = [...shown.runs, ...lastRun(shown)];
  for (const run of runs) {
    const from = Math.max(at, Date.parse(run.started_at ?? run.ended_at));
    if (from > at) found.push(waited(at, from, found.length > 0));
    at = run.ended_at ? Date.parse(run.ended_at) : now;
    found.push(ran(run, from, at));
  }
  const tail = rest(shown, at, now, found.length > 0);
  return tail ? [...found, tail] : found;
}

/** The run that ended the request, or that goes on: `runs` has those before it alone. */
function lastRun(shown) {
  if (!shown.started_at || shown.status === "queued") return [];
  if (shown.runs.at(-1)?.attempt === shown.attempts) return [];
  const { attempts, started_at, ended_at, failure, status } = shown;
  return [{ attempt: attempts, started_at, ended_at, failure, status }];
}

function waited(from, to, isPause) {
  return {
    kind: isPause ? "pause" : "wait",
    title: isPause ? "Paused" : "Waited",
    from,
    to,
    isOpen: false,
    note: isPause ? "until the next run" : "for its turn",
    outcome: "",
  };
}

function ran(run, from, to) {
  const isOpen = !run.ended_at;
  const outcome = isOpen ? "running" : (run.status ?? "failed");
  const note = isOpen ? "running" : (failureShort(run.failure) ?? outcome);
  return { kind: "run", title: `Run ${run.attempt}`, from, to, isOpen, note, outcome };
}

/** What follows the last run: it waits, or it ended without one. */
function rest(shown, at, now, isPause) {
  const ended = shown.ended_at ? Date.parse(shown.ended_at) : null;
  if (ended !== null) {
    if (ended <= at || shown.started_at) return null;
    const note = failureShort(shown.failure) ?? shown.status;
    return { ...waited(at, ended, isPause), note, outcome: shown.status };
  }
  if (shown.status !== "queued") return null;
  const note = (shown.reason ?? "").replace(/^waiting: /, "");
  const to = Math.max(now, at);
  return { ...waited(at, to, isPause), title: isPause ? "Pauses" : "Waits", isOpen: true, note };
}
