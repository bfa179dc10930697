/** What can be done to requests, with the question that comes first. */
import { counted } from "../core/format.js";
import { ACTS_MAX } from "../data/bulk.js";
import { ENDED } from "../data/row-events.js";
import { ask } from "./dialog.js";

/** Ask whether to cancel these rows; those that have ended are left out. */
export function askToCancel(rows, onDone) {
  const wanted = rows.filter((row) => !ENDED.has(row.status));
  const words = `Cancel ${howMany(wanted)}`;
  ask({
    title: `${words}?`,
    text: "What waits will not run. What runs is ended, and what it has not kept is lost.",
    verb: words,
    keep: wanted.length === 1 ? "Keep it" : "Keep them",
    isDanger: true,
    acts: wanted.map((row) => actOf(row, "cancel")),
    onDone,
  });
}

/** Ask whether to run these rows again; those that have not ended are left out. */
export function askToRetry(rows, onDone) {
  const wanted = rows.filter((row) => ENDED.has(row.status));
  const words = `Retry ${howMany(wanted)}`;
  ask({
    title: `${words}?`,
    text: "Each is queued again with the same arguments, and its earlier result is given up.",
    verb: words,
    keep: wanted.length === 1 ? "Leave it" : "Leave them",
    isDanger: false,
    acts: wanted.map((row) => actOf(row, "retry")),
    onDone,
  });
}

/** Why none of these rows can be cancelled; null: some can. */
export function noneToCancel(rows) {
  return rows.some((row) => !ENDED.has(row.status)) ? null : "None of them is queued or running.";
}

/** Why none of these rows can be retried; null: some can. */
export function noneToRetry(rows) {
  return rows.some((row) => ENDED.has(row.status)) ? null : "None of them has ended.";
}

function howMany(rows) {
  return counted(Math.min(rows.length, ACTS_MAX), "request");
}

function actOf(row, verb) {
  return {
    label: `${row.name} ${row.id}`,
    path: `v1/requests/${encodeURIComponent(row.id)}/${verb}`,
  };
}
