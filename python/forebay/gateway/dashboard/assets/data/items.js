/** The last items that a request has yielded: read again when there are more, or a new epoch begins. */
import { readLines } from "../core/api.js";
import { useRef } from "../core/elements.js";
import { usePolled } from "./polled.js";

const SHOWN = 5;
/** A larger item is told by its size alone. */
const BYTES_MAX = 1000;

/**
 * Asked for, not followed: a generator may yield 60,000 items a second, and nobody reads more than the last ones.
 * @param {string} id
 * @param {{epoch: number, count: number}} told what `show` says of its items
 * @returns {{items: object[], problem: Problem|null}} the items of before while those of now are on their way
 */
export function useItems(id, { epoch, count }) {
  const limit = Math.min(count, SHOWN);
  const polled = usePolled(count ? `v1/requests/${encodeURIComponent(id)}/items` : null, {
    query: { epoch, after: count - limit, limit, max_bytes: BYTES_MAX },
    reads: readLines,
  });
  const last = useRef([]);
  if (polled.value) last.current = polled.value;
  return { items: count ? last.current : [], problem: polled.problem };
}
