/** An answer that is read again and again while a view shows it. */
import { useEffect, useState } from "../core/elements.js";
import { Problem, read } from "../core/api.js";
import { connection } from "../core/connection.js";
import { feed } from "../core/feed.js";
import { visible } from "../core/visibility.js";

const SOON_MS = 250;
/** After an answer that did not come, of what has no period. */
const AGAIN_MS = 2000;

/**
 * Read a route at once, each period, and soon after events that concern it.
 * @param {string|null} path null: nothing is read
 * @param {object} [options]
 * @param {object} [options.query]
 * @param {number|null} [options.periodMs] null: events alone
 * @param {(event: object) => boolean} [options.concerns]
 * @param {(path: string, query: object) => Promise<object>} [options.reads] the form of the answer
 * @returns {{value: object|null, problem: Problem|null, renew: () => void}}
 */
export function usePolled(path, { query, periodMs = null, concerns = () => false, reads = read } = {}) {
  const [told, setTold] = useState({ value: null, problem: null, key: null });
  const key = path && `${path}?${JSON.stringify(query ?? {})}`;
  useEffect(() => {
    if (!key) return undefined;
    const poll = new Poll(() => reads(path, query), periodMs, (next) => setTold({ ...next, key }));
    const unwatch = feed.watch((events, isMissing) => {
      if (isMissing || events.some(concerns)) poll.soon();
    });
    setTold((before) => ({ ...before, renew: () => poll.now() }));
    return () => {
      unwatch();
      poll.end();
    };
  }, [key, periodMs]);
  return told.key === key ? told : { value: null, problem: null, renew: told.renew };
}

class Poll {
  #read;
  #periodMs;
  #told;
  #timer = null;
  #isEnded = false;
  #value = null;
  #asked = 0;

  constructor(reads, periodMs, told) {
    this.#read = reads;
    this.#periodMs = periodMs;
    this.#told = told;
    this.now();
  }

  soon() {
    this.#schedule(SOON_MS);
  }

  end() {
    this.#isEnded = true;
    clearTimeout(this.#timer);
  }

  async now() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#asked += 1;
    const turn = this.#asked;
    let isLost = false;
    try {
      const value = await this.#read();
      if (turn === this.#asked) this.#tell(value, null);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      isLost = error.isLost;
      if (!isLost && turn === this.#asked) this.#tell(this.#value, error);
    }
    const pause = this.#periodMs ?? (isLost ? AGAIN_MS : null);
    if (pause && !this.#timer) this.#schedule(pause, true);
  }

  #tell(value, problem) {
    this.#value = value;
    if (!this.#isEnded) this.#told({ value, problem, renew: () => this.now() });
  }

  /** Read after a pause; an earlier reading that is scheduled stays. */
  #schedule(ms, isLater = false) {
    if (this.#isEnded) return;
    if (this.#timer && !isLater && this.#isSoon) return;
    clearTimeout(this.#timer);
    this.#isSoon = !isLater;
    this.#timer = setTimeout(() => this.#due(), ms);
  }

  #isSoon = false;

  #due() {
    this.#timer = null;
    if (visible.value && connection.value.phase === "open") this.now();
    else this.#schedule(this.#periodMs ?? SOON_MS * 4, true);
  }
}
