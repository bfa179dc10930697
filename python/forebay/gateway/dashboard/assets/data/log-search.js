/** Where a text is in the lines of one log: each line is searched once, while they come and go. */

export class LogSearch {
  #lines;
  #wanted;
  #found = [];
  #next = 0;

  /**
   * @param {import("./log-lines.js").LogLines} lines
   * @param {string} text whatever its case; an empty one is nowhere
   */
  constructor(lines, text) {
    this.#lines = lines;
    this.#wanted = text.toLowerCase();
  }

  /** Numbers of the lines that have it, of those that are kept; the first line of the log is 0. */
  renew() {
    if (!this.#wanted) return [];
    const { dropped, finished, length } = this.#lines;
    if (this.#found[0] < dropped) this.#found = this.#found.filter((number) => number >= dropped);
    const first = Math.max(0, this.#next - dropped);
    for (let at = first; at < finished; at += 1) if (this.#has(at)) this.#found.push(dropped + at);
    this.#next = dropped + finished;
    const isInLast = length > finished && this.#has(finished);
    return isInLast ? [...this.#found, dropped + finished] : this.#found;
  }

  #has(at) {
    return this.#lines.at(at).toLowerCase().includes(this.#wanted);
  }
}
