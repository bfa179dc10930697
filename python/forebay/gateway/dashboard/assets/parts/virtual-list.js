/** A list of which those rows are drawn that can be seen, and some around them. */
import { html, useLayoutEffect, useState } from "../core/elements.js";

const BESIDE = 6;

/**
 * Rows of one height in an element that scrolls.
 * @param {object} props
 * @param {number} props.count
 * @param {number} props.rowHeight in pixels
 * @param {(index: number) => object} props.row draws one
 * @param {{current: HTMLElement|null}} props.box of the element that scrolls
 * @param {string} [props.rowsRole] the role of what holds the rows
 * @param {(seen: {isAtTop: boolean, isAtEnd: boolean}) => void} [props.onRange] called when one of
 *     them or the count changes
 */
export function VirtualList({ count, rowHeight, row, box, onRange, rowsRole, ...rest }) {
  const [range, draw] = useState({ top: 0, height: 600 });
  useViewport(box, draw, rowHeight);
  const first = Math.max(0, Math.floor(range.top / rowHeight) - BESIDE);
  const last = Math.min(count, Math.ceil((range.top + range.height) / rowHeight) + BESIDE);
  const isAtTop = range.top < rowHeight;
  const isAtEnd = range.top + range.height >= (count - 2) * rowHeight;
  useLayoutEffect(() => onRange?.({ isAtTop, isAtEnd }), [isAtTop, isAtEnd, count]);
  const rows = [];
  for (let index = first; index < last; index += 1) rows.push(row(index));
  const space = { height: `${count * rowHeight}px` };
  const shift = { transform: `translateY(${first * rowHeight}px)` };
  return html`<div ...${rest} ref=${box}>
    <div class="virtual-space" role="presentation" style=${space}>
      <div class="virtual-rows" role=${rowsRole ?? "presentation"} style=${shift}>${rows}</div>
    </div>
  </div>`;
}

/** Scroll so that a row can be seen whole. */
export function scrollToRow(element, index, rowHeight, margin = 0) {
  const top = index * rowHeight;
  const seen = element.clientHeight - margin;
  if (top < element.scrollTop) element.scrollTop = top;
  else if (top + rowHeight > element.scrollTop + seen) {
    element.scrollTop = top + rowHeight - seen;
  }
}

/** Draw when it is scrolled by a row, or its size changes. */
function useViewport(box, draw, rowHeight) {
  useLayoutEffect(() => {
    const element = box.current;
    let frame = 0;
    const look = () => {
      frame = 0;
      const { scrollTop, clientHeight } = element;
      draw((before) => {
        const isSame =
          before.height === clientHeight &&
          Math.floor(before.top / rowHeight) === Math.floor(scrollTop / rowHeight);
        return isSame ? before : { top: scrollTop, height: clientHeight };
      });
    };
    const soon = () => {
      frame ||= requestAnimationFrame(look);
    };
    const sizes = new ResizeObserver(soon);
    sizes.observe(element);
    element.addEventListener("scroll", soon, { passive: true });
    look();
    return () => {
      cancelAnimationFrame(frame);
      sizes.disconnect();
      element.removeEventListener("scroll", soon);
    };
  }, [rowHeight]);
}
