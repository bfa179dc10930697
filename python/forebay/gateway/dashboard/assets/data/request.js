/** All that is known of one request: read again when something happens to it. */
import { addressOf } from "../core/api.js";
import { useEffect, useState } from "../core/elements.js";
import { feed } from "../core/feed.js";
import { usePolled } from "./polled.js";
import { ENDED } from "./row-events.js";

const WAITING_MS = 2000;

/**
 * What `show` tells, and the newest progress.
 * @param {string} id
 */
export function useRequest(id) {
  const [isOver, setOver] = useState(false);
  const [progress, setProgress] = useState(null);
  const polled = usePolled(`v1/requests/${encodeURIComponent(id)}/show`, {
    periodMs: isOver ? null : WAITING_MS,
    concerns: (event) => event.id?.startsWith(id) && event.event !== "progress",
  });
  const status = polled.value?.status;
  const known = polled.value?.id;
  useEffect(() => setOver(ENDED.has(status)), [status]);
  useEffect(() => {
    setProgress(null);
    return feed.watch((events) => {
      const newest = events.findLast((event) => event.id === known && event.event === "progress");
      if (newest) setProgress(newest);
    });
  }, [known, polled.value?.attempts]);
  useEffect(() => {
    if (!known || status !== "running") return undefined;
    return readProgress(known, (told) => setProgress((newer) => newer ?? told));
  }, [known, status, polled.value?.attempts]);
  return { ...polled, progress: status === "running" ? progress : null };
}

/**
 * Read the progress that was reported before: the stream of a request begins with how it stands, and
 * the last event of that has a number. What follows is told by the feed.
 * @returns {() => void} gives it up
 */
function readProgress(id, told) {
  const source = new EventSource(addressOf(`v1/requests/${encodeURIComponent(id)}/events`));
  const take = (event) => {
    if (event.type === "progress") told(JSON.parse(event.data));
    if (event.lastEventId || event.type === "end") source.close();
  };
  for (const kind of ["status", "progress", "end"]) source.addEventListener(kind, take);
  source.onerror = () => source.close();
  return () => source.close();
}
