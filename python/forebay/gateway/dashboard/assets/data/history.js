/** The history that the gateway keeps, put together from what it told each time. */

const SAMPLES_MAX = 720;
const FIGURES = [
  "resident_bytes", "memory_limit_bytes", "ready", "parked", "running", "finished", "failed",
];

export class History {
  #kept = null;

  /** The number from which on the gateway has to tell; undefined: it has to tell all. */
  get next() {
    return this.#kept?.next;
  }

  /**
   * Take samples that follow those before, and give all of them.
   * @param {object} part `history` of an overview
   */
  take(part) {
    const before = this.#kept;
    const missing = before === null ? 0 : part.first - before.next;
    if (missing < 0) {
      this.#kept = null; // another gateway, whose clock is behind: it has to tell all
      return part;
    }
    if (before === null || missing > SAMPLES_MAX) this.#kept = part;
    else if (part.next > before.next) this.#kept = joined(before, part, missing);
    return this.#kept;
  }
}

/** The moments of its samples, in seconds since 1970, by the clock of the newest one. */
export function timesOf(history) {
  const newest = Date.parse(history.until) / 1000;
  const last = history.resident_bytes.length - 1;
  return history.resident_bytes.map((_, at) => newest - (last - at) * history.every_s);
}

/** How many requests waited at each sample: for a worker, or for something else. */
export function waitingOf(history) {
  return history.ready.map((ready, at) => (ready === null ? null : ready + history.parked[at]));
}

/** The samples of one worker. */
export function workerHistory(history, pid) {
  return history.workers[pid] ?? [];
}

function joined(before, part, missing) {
  const gap = new Array(missing).fill(null);
  const dropped = Math.max(0, part.next - before.first - SAMPLES_MAX);
  const join = (old, fresh) => [...old, ...gap, ...fresh].slice(dropped);
  const figures = FIGURES.map((name) => [name, join(before[name], part[name])]);
  const nothing = new Array(before.next - before.first).fill(null);
  const workers = Object.entries(part.workers).map(([pid, fresh]) => [
    pid,
    join(before.workers[pid] ?? nothing, fresh),
  ]);
  return {
    ...part,
    first: before.first + dropped,
    ...Object.fromEntries(figures),
    workers: Object.fromEntries(workers),
  };
}
