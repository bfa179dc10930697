/** The figures of the server: read every two seconds while somebody sees them. */
import { Problem, read } from "../core/api.js";
import { setServerTime } from "../core/clock.js";
import { connection, probeWith, serverAnswered, serverLost } from "../core/connection.js";
import { session, sessionIsOpen } from "../core/session.js";
import { Signal } from "../core/signal.js";
import { visible } from "../core/visibility.js";
import { History } from "./history.js";

const PERIOD_MS = 2000;

/** The newest answer of `GET /v1/overview`, with all of the history; null until there is one. */
export const figures = new Signal(null);

/** What was answered in its place, where the server answered something else. */
export const figuresProblem = new Signal(null);

const history = new History();
let timer = null;
let reading = null;

/** Begin, for as long as the page lives. */
export function startFigures() {
  probeWith(readFigures);
  session.watch(readIfDue);
  visible.watch(readIfDue);
  readFigures();
}

/** Read them now; one reading at a time. */
export function readFigures() {
  reading ??= readOnce().finally(() => {
    reading = null;
  });
  return reading;
}

function readIfDue() {
  const isWanted = visible.value && session.value.open !== false;
  if (isWanted && connection.value.phase !== "lost") readFigures();
}

async function readOnce() {
  clearTimeout(timer);
  try {
    take(await read("v1/overview", { since: history.next }));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    refuse(error);
  } finally {
    if (connection.value.phase === "open") timer = setTimeout(readIfDue, PERIOD_MS);
  }
}

function take(overview) {
  setServerTime(overview.at);
  figures.value = { ...overview, history: history.take(overview.history) };
  figuresProblem.value = null;
  sessionIsOpen(overview.me);
  serverAnswered();
}

function refuse(problem) {
  if (problem.isLost) {
    serverLost(problem.message);
    return;
  }
  if (problem.status !== 401) figuresProblem.value = problem;
  serverAnswered();
}
