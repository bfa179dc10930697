/** Keys that do something wherever the focus is, except where a text is typed. */
import { useEffect, useRef } from "./elements.js";

const layers = [];
/** What the next key does before all layers, and until when. */
let next = { keys: {}, until: 0 };

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]") || (isTyped(event.target) && event.key !== "Escape")) {
    return;
  }
  const first = Date.now() <= next.until ? [next.keys] : [];
  next = { keys: {}, until: 0 };
  for (const keys of [...first, ...layers.map((layer) => layer.current).reverse()]) {
    const does = keys[event.key];
    if (does && does(event) !== false) {
      event.preventDefault();
      return;
    }
  }
});

/**
 * Have keys do something while this component is shown; the newest component comes first.
 * @param {Object<string, (event: KeyboardEvent) => void|false>} keys false: not for this one
 */
export function useKeys(keys) {
  const layer = useRef(keys);
  layer.current = keys;
  useEffect(() => {
    layers.push(layer);
    return () => layers.splice(layers.indexOf(layer), 1);
  }, []);
}

/** Have the next key do something, within so many milliseconds, whatever it does elsewhere. */
export function nextKey(keys, ms) {
  next = { keys, until: Date.now() + ms };
}

function isTyped(element) {
  if (element.matches?.("textarea, select, [contenteditable]")) return true;
  return element.matches?.("input:not([type=checkbox]):not([type=radio])") ?? false;
}
