/** A line without axes, for a row of a table; the figures stand beside it. */
import { html } from "../core/elements.js";

const WIDTH = 120;
const HEIGHT = 24;

/** @param {{values: (number|null)[], top: number, label: string}} props `top`: of the scale */
export function Sparkline({ values, top, label }) {
  const most = top || 1;
  const step = WIDTH / Math.max(1, values.length - 1);
  const y = (value) => (HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1);
  let path = "";
  let isDown = false;
  values.forEach((value, at) => {
    if (value !== null) path += `${isDown ? "L" : "M"}${(at * step).toFixed(1)} ${y(value)}`;
    isDown = value !== null;
  });
  return html`<svg class="sparkline" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${label}>
    <path d=${path || "M0 0"} />
  </svg>`;
}
