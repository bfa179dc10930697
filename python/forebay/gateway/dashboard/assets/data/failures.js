/** How a request or a run failed, in a few words. */
import { bytes, seconds, signalName } from "../core/format.js";

const CAUSES = {
  signal: "its worker was killed by a signal",
  memory: "its worker was ended for its memory",
  exit: "its worker exited",
  time: "its worker was ended: out of time",
  server: "its worker ended with the server",
  node_lost: "the node of its worker was lost",
  unknown: "its worker was lost",
  raised: "raised an exception",
  timeout: "took longer than its timeout",
  after: "what it waited for did not succeed",
  outcome_unknown: "nobody knows how it ended",
  unkept: "its result was not kept",
  refused: "was refused when it was to run",
  cancelled: "cancelled",
  returned: "its worker had not begun it",
};

const KINDS = {
  raised: (failure) => `${failure.name}: ${firstLine(failure.message)}`,
  died: deathShort,
  timed_out: (failure) => `took longer than ${seconds(failure.timeout_s)}`,
  after: (failure) => `${failure.id} did not succeed`,
  unkept: (failure) => `${CAUSES.unkept}: ${firstLine(failure.message)}`,
  refused: (failure) => `${CAUSES.refused}: ${firstLine(failure.message)}`,
  cause: (failure) => causeWords(failure.cause),
};

/** What the cause of an end means, in a few words. */
export function causeWords(cause) {
  return CAUSES[cause] ?? cause;
}

/** One line; null where nothing failed. */
export function failureShort(failure) {
  if (!failure) return null;
  return KINDS[failure.kind]?.(failure) ?? causeWords(failure.kind);
}

/** The figures of a death, as pairs of a name and a text. */
export function deathFacts(failure) {
  const facts = [["Cause", causeWords(failure.cause)]];
  if (failure.signal) facts.push(["Signal", `${failure.signal} (${signalName(failure.signal)})`]);
  if (failure.exit_code) facts.push(["Exit code", String(failure.exit_code)]);
  if (failure.pid) facts.push(["Process", String(failure.pid)]);
  if (failure.peak_bytes) facts.push(["Its memory", bytes(failure.peak_bytes)]);
  if (failure.limit_bytes) facts.push(["The limit", bytes(failure.limit_bytes)]);
  return facts;
}

function deathShort(failure) {
  if (failure.cause === "signal") return `died: ${signalName(failure.signal)}`;
  if (failure.cause === "exit") return `died: exit code ${failure.exit_code}`;
  if (failure.cause === "memory") return `died: memory (${bytes(failure.peak_bytes)})`;
  return `died: ${causeWords(failure.cause)}`;
}

function firstLine(text = "") {
  return text.split("\n", 1)[0];
}
