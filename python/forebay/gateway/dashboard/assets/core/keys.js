/** Keys that do something wherever the focus is, except where a text is typed. */
import { useEffect, useRef } from "./elements.js";

const layers = [];

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]") || (isTyped(event.target) && event.key !== "Escape")) {
    return;
  }
  for (const layer of [...layers].reverse()) {
    const does = layer.current[event.key];
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

function isTyped(element) {
  if (element.matches?.("textarea, select, [contenteditable]")) return true;
  return element.matches?.("input:not([type=checkbox]):not([type=radio])") ?? false;
}
