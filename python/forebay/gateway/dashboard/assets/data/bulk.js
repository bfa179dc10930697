/** One act on many things: six at once, with what was refused. */
import { act, Problem } from "../core/api.js";
import { Signal } from "../core/signal.js";

export const ACTS_MAX = 1000;
const AT_ONCE = 6;

export class Bulk {
  /** How far it is: `done` of `total`, `refused` as `{label, problem}`, "doing" or "done". */
  progress;
  #left;
  #isStopped = false;

  /** @param {{label: string, path: string}[]} acts each a POST */
  constructor(acts) {
    this.#left = acts.slice(0, ACTS_MAX).reverse();
    this.progress = new Signal({
      phase: "doing",
      done: 0,
      total: this.#left.length,
      refused: [],
    });
  }

  /** Do all of them; ends when each is answered, or was left out after `stop`. */
  async run() {
    await Promise.all(Array.from({ length: AT_ONCE }, () => this.#work()));
    this.progress.value = { ...this.progress.value, phase: "done" };
  }

  /** Begin no further one. */
  stop() {
    this.#isStopped = true;
  }

  async #work() {
    while (this.#left.length && !this.#isStopped) await this.#one(this.#left.pop());
  }

  async #one({ label, path }) {
    const refused = [];
    try {
      await act(path);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      refused.push({ label, problem: error });
    }
    const { done, ...rest } = this.progress.value;
    this.progress.value = { ...rest, done: done + 1, refused: [...rest.refused, ...refused] };
  }
}
