/** Charts over time, with units and axes; uPlot draws them. */
import { html, useEffect, useRef } from "../core/elements.js";
import { count } from "../core/format.js";
import { colorOf, isDark } from "../core/theme.js";
import { useSignal } from "../core/signal.js";

/** Steps of an axis that counts things. */
const WHOLE = [1, 10, 100, 1e3, 1e4, 1e5, 1e6].flatMap((step) => [step, 2 * step, 5 * step]);
const FONT = "12px system-ui, sans-serif";

/**
 * A chart of one or more series over the same times.
 * @param {object} props
 * @param {string} props.label what it shows, with the newest figures, for those who do not see it
 * @param {number[]} props.times in seconds since 1970
 * @param {{label: string, values: (number|null)[], color: string, fill?: boolean, dash?: number[]}[]} props.series
 *     `color` is a custom property
 * @param {(value: number) => string} props.format of the axis and of the values
 */
export function Chart({ label, times, series, format, height = 180, zeroTop = 1 }) {
  const box = useRef(null);
  const plot = useRef(null);
  const dark = useSignal(isDark);
  const names = series.map((one) => one.label).join();
  const data = [times, ...series.map((one) => one.values)];
  useEffect(() => {
    const width = box.current.clientWidth;
    plot.current = new uPlot(options({ series, format, height, width, zeroTop }), data, box.current);
    const sizes = new ResizeObserver(() => resize(plot.current, box.current, height));
    sizes.observe(box.current);
    return () => {
      sizes.disconnect();
      plot.current.destroy();
    };
  }, [dark, names, height]);
  useEffect(() => plot.current.setData(data), [times.at(-1), times.length, names]);
  return html`<figure class="chart">
    <figcaption class="legend">
      ${series.map((one) => html`<${Key} ...${one} format=${format} />`)}
    </figcaption>
    <div class="chart-box" ref=${box} role="img" aria-label=${label}></div>
  </figure>`;
}

/** A series in the legend, with its newest value. */
function Key({ label, color, values, format, dash }) {
  const newest = values.findLast((value) => value !== null && value !== undefined);
  return html`<span class="key">
    <svg class="key-line" viewBox="0 0 16 4" aria-hidden="true">
      <line x1="0" y1="2" x2="16" y2="2" style=${{ stroke: `var(${color})` }}
        stroke-dasharray=${dash ? "4 2" : undefined} />
    </svg>
    ${label} <b>${format(newest)}</b>
  </span>`;
}

function resize(plot, element, height) {
  const width = element.clientWidth;
  if (width > 0 && width !== plot.width) plot.setSize({ width, height });
}

function options({ series, format, height, width, zeroTop }) {
  return {
    width,
    height,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    padding: [8, 28, 0, 0],
    scales: { y: { range: (plot, least, most) => [0, Math.max(zeroTop, (most ?? 0) * 1.08)] } },
    series: [{}, ...series.map(seriesOptions)],
    axes: [timeAxis(), valueAxis(format)],
    plugins: [tooltip(series, format)],
  };
}

function seriesOptions({ label, color, fill, dash }) {
  const stroke = colorOf(color);
  return {
    label,
    stroke,
    width: 1.5,
    dash,
    fill: fill ? colorOf(`${color}-soft`) : undefined,
    points: { show: false },
    spanGaps: false,
  };
}

function axis() {
  const grid = { stroke: colorOf("--line"), width: 1 };
  return { stroke: colorOf("--text-quiet"), font: FONT, grid, ticks: { show: false } };
}

function timeAxis() {
  return { ...axis(), grid: { show: false }, space: 70, values: clockTimes, size: 22, gap: 4 };
}

function clockTimes(plot, moments) {
  return moments.map((moment) => {
    const at = new Date(moment * 1000);
    const [hour, minute, second] = [at.getHours(), at.getMinutes(), at.getSeconds()];
    const text = `${String(hour).padStart(2, "0")}:${String(minute).padStart(2, "0")}`;
    return second ? `${text}:${String(second).padStart(2, "0")}` : text;
  });
}

function valueAxis(format) {
  const values = (plot, numbers) => numbers.map((number) => format(number));
  const incrs = format === count ? WHOLE : undefined;
  return { ...axis(), values, incrs, size: 64, space: 36, gap: 6 };
}

/** The values under the pointer. */
function tooltip(series, format) {
  const box = document.createElement("div");
  box.className = "chart-tip";
  box.hidden = true;
  const show = (plot) => {
    const { idx, left } = plot.cursor;
    box.hidden = idx === null || idx === undefined || left < 0;
    if (box.hidden) return;
    const lines = series.map((one, at) => `${one.label} ${format(plot.data[at + 1][idx])}`);
    const at = new Date(plot.data[0][idx] * 1000).toLocaleTimeString();
    box.textContent = [at, ...lines].join("\n");
    const isRight = left > plot.over.clientWidth / 2;
    box.style.left = isRight ? "" : `${left + 12}px`;
    box.style.right = isRight ? `${plot.over.clientWidth - left + 12}px` : "";
  };
  return { hooks: { ready: (plot) => plot.over.append(box), setCursor: show } };
}
