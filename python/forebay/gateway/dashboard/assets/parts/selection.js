/** Which rows of a list are selected: one, many, a range. */
import { useRef, useState } from "../core/elements.js";

/**
 * @param {import("../data/request-list.js").RequestList} list rows that leave it leave the selection
 */
export function useSelection(list) {
  const [ids, setIds] = useState(new Set());
  const anchor = useRef(null);
  const rows = () => [...ids].map((id) => list.get(id)).filter(Boolean);
  const toggle = (id, index) => {
    anchor.current = list.at(index)?.id ?? null;
    setIds((before) => {
      const next = new Set(before);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  };
  const extendTo = (index, from = null) => {
    anchor.current ??= list.at(from ?? index)?.id ?? null;
    const start = list.indexOf(anchor.current);
    const between = list.between(start < 0 ? index : start, index);
    setIds((before) => new Set([...before, ...between]));
  };
  const onSelect = (event, index) => {
    event.stopPropagation();
    if (event.shiftKey) extendTo(index);
    else toggle(list.at(index).id, index);
  };
  const toggleAll = () => {
    const all = list.between(0, list.length - 1);
    setIds(new Set(rows().length === all.length ? [] : all));
  };
  const clear = () => {
    anchor.current = null;
    setIds(new Set());
  };
  const has = (id) => ids.has(id);
  return { has, size: rows().length, rows, toggle, extendTo, onSelect, toggleAll, clear };
}
