/** What an event of the feed does to a row of the list of requests. */
import { causeWords } from "./failures.js";

export const STATUSES = ["queued", "running", "succeeded", "failed", "cancelled", "dead"];
export const ENDED = new Set(["succeeded", "failed", "cancelled", "dead"]);

/**
 * The row after an event.
 * @param {object|undefined} row before; undefined: it is not known
 * @param {object} event of the feed, with an `id`
 * @returns {object|undefined} undefined: the event tells nothing about rows
 */
export function rowAfter(row, event) {
  const change = CHANGES[event.event];
  if (!change) return undefined;
  const before = row ?? { id: event.id, name: event.name, isPartial: true };
  return { ...before, ...change(event) };
}

const CHANGES = {
  accepted: (event) => ({
    status: "queued",
    lane: event.lane,
    submitter: event.submitter,
    attempts: 0,
    accepted_at: moment(event.at_ms),
    isPartial: false,
  }),
  started: (event) => ({
    status: "running",
    attempts: event.attempt,
    started_at: moment(event.at_ms),
    ended_at: null,
    queue_s: event.queued_ms === null ? null : event.queued_ms / 1000,
    reason: null,
    failure: null,
    progress: null,
  }),
  progress: ({ done, total, message, unit }) => ({
    status: "running",
    progress: { done, total, message, unit },
  }),
  queued: (event) => ({
    status: "queued",
    attempts: event.attempt,
    started_at: null,
    reason: `to run again: ${causeWords(event.reason)}`,
    progress: null,
  }),
  retried: () => ({
    status: "queued",
    started_at: null,
    ended_at: null,
    run_s: null,
    failure: null,
    progress: null,
  }),
  ended: (event) => ({
    status: event.status,
    attempts: event.attempt,
    ended_at: moment(event.at_ms),
    run_s: event.run_ms === null ? null : event.run_ms / 1000,
    failure: event.cause ? { kind: "cause", cause: event.cause } : null,
    reason: null,
    progress: null,
  }),
};

/** Whether a row that events alone told of may be one that the filter of a list leaves out. */
export function isInDoubt(row, filter) {
  return row.isPartial && Boolean(filter.submitter || filter.lane || filter.since);
}

/** Whether a row fits the filter of a list; what is not known of it fits. */
export function fits(row, filter) {
  if (filter.status && !filter.status.split(",").includes(row.status)) return false;
  return ["name", "submitter", "lane"].every(
    (field) => !filter[field] || row[field] === undefined || row[field] === filter[field],
  );
}

function moment(ms) {
  return new Date(ms).toISOString();
}
