/** A value that views watch. */
import { useLayoutEffect, useState } from "./elements.js";

export class Signal {
  #value;
  #watchers = new Set();

  /** @param {*} value the first one */
  constructor(value) {
    this.#value = value;
  }

  get value() {
    return this.#value;
  }

  /** Set it, and tell those who watch; an identical value is no change. */
  set value(value) {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const told of [...this.#watchers]) told(value);
  }

  /**
   * Call a function with each new value.
   * @returns {() => void} ends it
   */
  watch(told) {
    this.#watchers.add(told);
    return () => this.#watchers.delete(told);
  }
}

/** The value of a signal; the component is drawn again when it changes. */
export function useSignal(signal) {
  const [, draw] = useState(signal.value);
  useLayoutEffect(() => {
    draw(signal.value);
    return signal.watch(draw);
  }, [signal]);
  return signal.value;
}
