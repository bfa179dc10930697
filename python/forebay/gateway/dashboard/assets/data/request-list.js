/** The rows of one filter, the newest first: read page by page, kept true by events. */
import { Problem, read } from "../core/api.js";
import { serverNow } from "../core/clock.js";
import { connection } from "../core/connection.js";
import { session } from "../core/session.js";
import { Signal } from "../core/signal.js";
import { fits, isInDoubt, rowAfter } from "./row-events.js";

const PAGE = 100;
const PAGE_MAX = 1000;
const ROWS_MAX = 10_000;
/** Between two readings of what is here already. */
const RENEW_MS = 3000;
/** Between two looks whether the connection is back. */
const AWAY_MS = 1000;
const EMPTY_PAGES_MAX = 20;

/** How long ago the oldest request of a filter was accepted, by the words of a link. */
export const SPANS_S = { "1h": 3600, "24h": 86_400, "7d": 604_800 };

export class RequestList {
  /** Grows with each change; views watch it. */
  version = new Signal(0);
  /** "loading", "ready" or a `Problem`. */
  state = "loading";
  /** Where the reader was, for the next time that this list is shown. */
  scrollTop = 0;
  #filter;
  #ids = [];
  #rows = new Map();
  #next = null;
  #isReading = false;
  #isSpent = false;
  #isWanted = false;
  #renewal = null;
  #wholeRenewal = null;
  #readAt = -Infinity;
  #meanwhile = [];
  #isHeld = false;
  #held = [];
  #isStale = false;
  #isEnded = false;

  /** @param {object} filter of the link: status, name, submitter, lane, since */
  constructor(filter) {
    this.#filter = filter;
  }

  get length() {
    return this.#ids.length;
  }

  /** Whether there are older ones that were not read. */
  get hasMore() {
    return this.#next !== null && this.#ids.length < ROWS_MAX;
  }

  /** Whether there are older ones, and the list takes no more. */
  get isFull() {
    return this.#next !== null && this.#ids.length >= ROWS_MAX;
  }

  /** How many newer ones are held back while the reader looks at older ones. */
  get held() {
    return this.#held.length;
  }

  /** Hold newer ones back, so that what the reader sees stays in place; or let them in. */
  hold(isHeld) {
    if (isHeld === this.#isHeld) return;
    this.#isHeld = isHeld;
    if (isHeld || !this.#held.length) return;
    this.#insert(this.#held.splice(0));
    this.#changed();
  }

  get isReading() {
    return this.#isReading;
  }

  /** Whether the last try to read older ones gave none: the next one is the reader's. */
  get isSpent() {
    return this.#isSpent && !this.#isReading;
  }

  /** Read on while the reader is at the end; what gave nothing is tried again once they come back. */
  reach(isAtEnd) {
    this.#isWanted = isAtEnd;
    if (!isAtEnd) this.#isSpent = false;
    this.#readOn();
  }

  /** The row at a place. */
  at(index) {
    return this.#rows.get(this.#ids[index]);
  }

  /** The row of an id, if it is here. */
  get(id) {
    return this.#rows.get(id);
  }

  /** Ids from one place to another, both included. */
  between(first, last) {
    return this.#ids.slice(Math.min(first, last), Math.max(first, last) + 1);
  }

  indexOf(id) {
    return this.#ids.indexOf(id);
  }

  /** Take what the feed tells until the function that is returned is called. */
  follow(feed) {
    this.renewAll();
    const unwatch = feed.watch((events, isMissing) => {
      this.apply(events);
      if (isMissing) this.#renewAllSoon();
    });
    return () => {
      unwatch();
      this.#end();
    };
  }

  /** Give up what is being read, and read no more: another filter is shown. */
  #end() {
    this.#isEnded = true;
    clearTimeout(this.#renewal);
    clearTimeout(this.#wholeRenewal);
  }

  /** Read all anew that is here: others of its events were missed. */
  async renewAll() {
    this.#isStale = this.#isReading;
    await this.#reading(async () => {
      const wanted = Math.max(this.length, PAGE);
      const rows = [];
      let more = [];
      let next = null;
      do {
        [more, next] = await this.#page(next, Math.min(wanted, PAGE_MAX));
        rows.push(...more);
      } while (next !== null && more.length && rows.length < wanted);
      this.#replace(rows, next);
    });
  }

  /** Read the newest page; what is known beyond it stays. */
  async renew() {
    clearTimeout(this.#renewal);
    this.#renewal = null;
    await this.#reading(async () => {
      const [rows, next] = await this.#page(null);
      if (!rows.length && next !== null) return; // too far to look: what is known may be beyond it
      const reaches = rows.some((row) => this.#rows.has(row.id));
      if (next === null || !reaches) this.#replace(rows, next);
      else this.#merge(rows);
    });
  }

  /** Read the next page. */
  async readMore() {
    if (!this.hasMore || this.#isReading) return;
    this.#isSpent = true; // until it has given some
    await this.#reading(async () => {
      const [rows, next] = await this.#page(this.#next);
      this.#next = next;
      this.#append(rows);
      this.#isSpent = rows.length === 0;
    });
  }

  /** Take events of the feed. */
  apply(events) {
    if (this.#isReading) this.#meanwhile.push(...events); // the answer may be from before them
    const fresh = [];
    const gone = new Set();
    let isChanged = false;
    for (const event of events) {
      if (event.id && this.#applyOne(event, fresh, gone)) isChanged = true;
    }
    if (!isChanged) return;
    if (gone.size) this.#drop(gone);
    this.#insert(fresh.filter((id) => !gone.has(id)));
    this.#changed();
  }

  #applyOne(event, fresh, gone) {
    const before = this.#rows.get(event.id);
    const row = rowAfter(before, event);
    if (!row) return false;
    if (!fits(row, this.#filter)) {
      if (before) gone.add(event.id);
      return this.#rows.delete(event.id);
    }
    if (!before && !this.#isInReach(event.id)) return false;
    if (!before && isInDoubt(row, this.#filter)) {
      this.#renewSoon();
      return false;
    }
    if (!before && gone.has(event.id)) gone.delete(event.id);
    else if (!before) fresh.push(event.id);
    this.#rows.set(event.id, row);
    if (row.isPartial || row.failure?.kind === "cause") this.#renewSoon();
    return true;
  }

  /** Whether a request belongs among those that were read: it is not older than all of them. */
  #isInReach(id) {
    return this.#next === null || !this.#ids.length || id > this.#ids.at(-1);
  }

  #drop(gone) {
    this.#ids = this.#ids.filter((id) => !gone.has(id));
    this.#held = this.#held.filter((id) => !gone.has(id));
  }

  #insert(ids) {
    if (!ids.length) return;
    const newest = this.#ids[0] ?? "";
    const sorted = [...new Set(ids)].sort().reverse();
    const newer = sorted.filter((id) => id > newest);
    const among = sorted.slice(newer.length);
    if (among.length) this.#ids = [...this.#ids, ...among].sort().reverse();
    if (this.#isHeld && this.#ids.length) this.#held.push(...newer);
    else this.#ids = newer.concat(this.#ids);
    this.#cut();
  }

  #cut() {
    for (const id of this.#held.splice(0, this.#held.length - ROWS_MAX)) this.#rows.delete(id);
    if (this.#ids.length <= ROWS_MAX) return;
    for (const id of this.#ids.splice(ROWS_MAX)) this.#rows.delete(id);
    this.#next = this.#ids.at(-1);
  }

  #replace(rows, next) {
    this.#ids = rows.map((row) => row.id);
    this.#held = [];
    this.#rows = new Map(rows.map((row) => [row.id, this.#withProgress(row)]));
    this.#next = next;
  }

  /** Take a newest page: rows within its reach that it does not have are gone. */
  #merge(rows) {
    const oldest = rows.at(-1).id;
    const told = new Set(rows.map((row) => row.id));
    const gone = this.#ids.filter((id) => id >= oldest && !told.has(id));
    for (const id of gone) this.#rows.delete(id);
    this.#ids = this.#ids.filter((id) => this.#rows.has(id));
    const fresh = rows.filter((row) => !this.#rows.has(row.id)).map((row) => row.id);
    for (const row of rows) this.#rows.set(row.id, this.#withProgress(row));
    this.#insert(fresh);
  }

  /** Progress is told by events alone. */
  #withProgress(row) {
    const progress = this.#rows.get(row.id)?.progress;
    return progress && row.status === "running" ? { ...row, progress } : row;
  }

  #append(rows) {
    const fresh = rows.filter((row) => !this.#rows.has(row.id));
    for (const row of fresh) this.#rows.set(row.id, row);
    this.#ids = this.#ids.concat(fresh.map((row) => row.id));
    this.#cut();
  }

  /** A page, and behind which id the next one begins; a page may be empty and not the last. */
  async #page(cursor, limit = PAGE) {
    const { since, ...filter } = this.#filter;
    const span = SPANS_S[since];
    const from = span && new Date(serverNow() - span * 1000).toISOString();
    let at = cursor;
    for (let turn = 0; turn < EMPTY_PAGES_MAX && !this.#isEnded; turn += 1) {
      const page = await read("v1/requests", { ...filter, since: from, limit, cursor: at });
      if (page.requests.length || page.next === null) return [page.requests, page.next];
      at = page.next;
    }
    return [[], at];
  }

  async #reading(work) {
    if (this.#isReading || this.#isEnded) return;
    this.#isReading = true;
    try {
      await work();
      this.state = "ready";
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (this.state === "loading" || !error.isLost) this.state = error;
      this.#isStale ||= error.isLost || error.status === 401;
    } finally {
      this.#isReading = false;
      this.apply(this.#meanwhile.splice(0));
      this.#changed();
      this.#readAt = performance.now();
      if (this.#isStale) this.#renewAllSoon();
      this.#readOn();
    }
  }

  /** Read older ones once for each time that the reader is said to be at the end. */
  #readOn() {
    if (!this.#isWanted || this.#isSpent || this.#isReading) return;
    this.#isWanted = false;
    this.readMore();
  }

  /** Read all anew: not at once after another reading, and once there is somebody to ask. */
  #renewAllSoon(pause = Math.max(0, this.#readAt + RENEW_MS - performance.now())) {
    if (this.#isEnded) return;
    this.#wholeRenewal ??= setTimeout(() => {
      this.#wholeRenewal = null;
      const isOpen = connection.value.phase === "open" && session.value.open;
      if (isOpen) this.renewAll();
      else this.#renewAllSoon(AWAY_MS);
    }, pause);
  }

  #renewSoon() {
    this.#renewal ??= setTimeout(() => this.renew(), RENEW_MS);
  }

  #changed() {
    this.version.value += 1;
  }
}
