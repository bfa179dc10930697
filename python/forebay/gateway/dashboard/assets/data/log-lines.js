/** The lines of one log, the newest of them: bounded in number and size. */

const LINES_MAX = 200_000;
const CHARS_MAX = 16 * 1024 * 1024;
const LINE_CHARS_MAX = 10_000;
const DROP = 1000;

// What terminals take for colours and movements; nothing here draws them.
const ESCAPES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

export class LogLines {
  #lines = [];
  #first = 0;
  #chars = 0;
  #open = "";
  #offset = null;

  /** Lines that are kept, the unfinished one included. */
  get length() {
    return this.#lines.length + (this.#open ? 1 : 0);
  }

  /** Lines that are kept and do not change any more. */
  get finished() {
    return this.#lines.length;
  }

  /** How many lines were dropped: the number of the first one that is kept. */
  get dropped() {
    return this.#first;
  }

  /** The line at a place among those that are kept. */
  at(index) {
    return index < this.#lines.length ? this.#lines[index] : shown(this.#open);
  }

  /**
   * Take a piece.
   * @param {string} text
   * @param {number|null} offset of its first byte; null: it follows the piece before
   * @param {number|null} end the offset behind it
   */
  append(text, offset = null, end = null) {
    const isCut = offset !== null && this.#offset !== null && offset !== this.#offset;
    if (isCut) this.#missing(offset - this.#offset);
    this.#offset = end;
    const parts = (this.#open + text).split("\n");
    this.#open = parts.pop();
    for (const part of parts) this.#push(shown(part));
    if (this.#open.length > LINE_CHARS_MAX * 4) this.#closeLine();
    this.#bound();
  }

  #missing(count) {
    this.#closeLine();
    this.#push(`[${count} bytes are not kept: the middle of a long log is dropped]`);
  }

  #closeLine() {
    if (this.#open) this.#push(shown(this.#open));
    this.#open = "";
  }

  #push(line) {
    this.#lines.push(line);
    this.#chars += line.length;
  }

  #bound() {
    while (this.#lines.length > LINES_MAX || (this.#chars > CHARS_MAX && this.#lines.length)) {
      const dropped = this.#lines.splice(0, DROP);
      this.#first += dropped.length;
      for (const line of dropped) this.#chars -= line.length;
    }
  }
}

/** A line as it is shown: what a terminal would have left of it. */
function shown(line) {
  const text = line.endsWith("\r") ? line.slice(0, -1) : line;
  const last = text.slice(text.lastIndexOf("\r") + 1);
  const plain = last.includes("\u001b") ? last.replace(ESCAPES, "") : last;
  return plain.length > LINE_CHARS_MAX ? `${plain.slice(0, LINE_CHARS_MAX)} …` : plain;
}
