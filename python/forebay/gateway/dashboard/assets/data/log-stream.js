/** The output of one request as it comes; the stream is given up while nobody sees the page. */
import { addressOf } from "../core/api.js";
import { connection } from "../core/connection.js";
import { Signal } from "../core/signal.js";
import { visible } from "../core/visibility.js";
import { LogLines } from "./log-lines.js";

const PAUSE_MS = 1000;
const PAUSE_MS_MAX = 15_000;

export class LogStream {
  lines = new LogLines();
  /** Grows with each change. */
  version = new Signal(0);
  /** "opening", "live" or "ended". */
  phase = "opening";
  #id;
  #source = null;
  #offset = null;
  #timer = null;
  #failures = 0;
  #frame = 0;
  #pieces = [];
  #unwatch;

  constructor(id) {
    this.#id = id;
    const adjust = () => this.#adjust();
    this.#unwatch = [visible.watch(adjust), connection.watch(adjust)];
    this.#adjust();
  }

  /** Give it up for good. */
  close() {
    for (const end of this.#unwatch) end();
    cancelAnimationFrame(this.#frame);
    this.#disconnect();
  }

  #adjust() {
    const isWanted = this.phase !== "ended" && visible.value && connection.value.phase !== "lost";
    if (isWanted && !this.#source && !this.#timer) this.#connect();
    if (!isWanted) this.#disconnect();
  }

  #connect() {
    const path = `v1/requests/${encodeURIComponent(this.#id)}/logs`;
    const source = new EventSource(addressOf(path, { cursor: this.#offset }));
    this.#source = source;
    source.onopen = () => this.#set("live");
    source.onerror = () => this.#failed();
    source.addEventListener("log", (event) => this.#take(event));
    source.addEventListener("end", () => {
      this.#set("ended");
      this.#disconnect();
    });
  }

  #disconnect() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#source?.close();
    this.#source = null;
  }

  #failed() {
    this.#disconnect();
    const pause = Math.min(PAUSE_MS * 2 ** this.#failures, PAUSE_MS_MAX);
    this.#failures += 1;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#adjust();
    }, pause);
  }

  #take(event) {
    const { offset, text } = JSON.parse(event.data);
    this.#failures = 0;
    this.#offset = event.lastEventId;
    this.#pieces.push([text, offset, Number(event.lastEventId)]);
    this.#drawSoon();
  }

  #set(phase) {
    this.phase = phase;
    this.#drawSoon();
  }

  #drawSoon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      for (const piece of this.#pieces) this.lines.append(...piece);
      this.#pieces = [];
      this.version.value += 1;
    });
  }
}
