/** What happens in the server, as events: one stream, given up while nobody sees the page. */
import { addressOf } from "./api.js";
import { connection, tryNow } from "./connection.js";
import { session } from "./session.js";
import { Signal } from "./signal.js";
import { visible } from "./visibility.js";

const KINDS = [
  "accepted", "started", "progress", "queued", "ended", "retried", "refused", "worker_started",
  "worker_ended", "service_leased", "service_returned", "service_ended", "schedule", "server",
];
const PAUSE_MS_MAX = 15_000;
/** Between two batches: more often than that nobody reads, and each is drawn. */
const BATCH_MS = 100;

class Feed {
  /** "off", "opening" or "live". */
  phase = new Signal("off");
  #source = null;
  #cursor = null;
  #heard = true;
  #failures = 0;
  #timer = null;
  #batch = [];
  #isMissing = false;
  #frame = 0;
  #flushedAt = 0;
  #watchers = new Set();

  /** Begin, for as long as the page lives. */
  start() {
    for (const signal of [session, visible, connection]) signal.watch(() => this.#adjust());
    this.#adjust();
  }

  /**
   * Hear of what happens, in batches, each before a frame.
   * @param {(events: object[], isMissing: boolean) => void} told `isMissing`: others happened
   *     before these that nobody tells, so what is shown has to be read again
   * @returns {() => void} ends it
   */
  watch(told) {
    this.#watchers.add(told);
    return () => this.#watchers.delete(told);
  }

  #adjust() {
    const isWanted = session.value.open && visible.value && connection.value.phase === "open";
    if (isWanted && !this.#source && !this.#timer) this.#open();
    if (!isWanted) this.#close();
  }

  #open() {
    this.#timer = null;
    if (!this.#heard) this.#cursor = null; // the server may not know it: begin anew
    this.#heard = this.#cursor === null;
    const source = new EventSource(addressOf("v1/events", { cursor: this.#cursor }));
    this.#source = source;
    this.phase.value = "opening";
    source.onopen = () => this.#live();
    source.onerror = () => this.#failed();
    for (const kind of KINDS) source.addEventListener(kind, (event) => this.#take(event));
    for (const kind of ["begin", "gap"]) {
      source.addEventListener(kind, (event) => this.#miss(event));
    }
  }

  #live() {
    this.#heard = true;
    this.phase.value = "live";
  }

  #close() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#source?.close();
    this.#source = null;
    this.phase.value = "off";
  }

  #failed() {
    this.#close();
    this.#failures += 1;
    const pause = Math.min(1000 * 2 ** (this.#failures - 1), PAUSE_MS_MAX);
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#adjust();
    }, pause);
    tryNow(); // which finds out whether it is the server, the session, or this stream alone
  }

  #take(event) {
    this.#mark(event);
    this.#batch.push(JSON.parse(event.data));
  }

  #miss(event) {
    this.#mark(event);
    this.#isMissing = true;
  }

  #mark(event) {
    this.#failures = 0;
    if (event.lastEventId) this.#cursor = event.lastEventId;
    this.#frame ||= requestAnimationFrame((now) => this.#flushIfDue(now));
  }

  #flushIfDue(now) {
    const isDue = now - this.#flushedAt >= BATCH_MS;
    this.#frame = isDue ? 0 : requestAnimationFrame((later) => this.#flushIfDue(later));
    if (!isDue) return;
    this.#flushedAt = now;
    this.#flush();
  }

  #flush() {
    const [events, isMissing] = [this.#batch, this.#isMissing];
    this.#batch = [];
    this.#isMissing = false;
    for (const told of [...this.#watchers]) told(events, isMissing);
  }
}

export const feed = new Feed();
