/** Small drawings, 16 by 16, in the colour of the text around them. */
import { html } from "../core/elements.js";

const PATHS = {
  overview: "M2.5 13.5v-4M6.5 13.5v-8M10.5 13.5v-6M14 13.5v-11",
  requests: "M2 4h2M2 8h2M2 12h2M6.5 4H14M6.5 8H14M6.5 12H14",
  workers: "M4.5 4.5h7v7h-7zM6.5 1.5v3M9.5 1.5v3M6.5 11.5v3M9.5 11.5v3M1.5 6.5h3M1.5 9.5h3M11.5 6.5h3M11.5 9.5h3",
  pools: "M8 1.8 14 5 8 8.2 2 5zM2 8l6 3.2L14 8M2 11l6 3.2 6-3.2",
  schedules: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 4.8V8l2.3 1.6",
  sun: "M8 10.8a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6zM8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9",
  moon: "M13.5 9.6A5.9 5.9 0 0 1 6.4 2.5a5.9 5.9 0 1 0 7.1 7.1z",
  keys: "M6 6.2A2 2 0 1 1 8.6 8c-.4.2-.6.5-.6.9v.4M8 11.6v.1M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13z",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  close: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.5l3.2 3.2L13 4.8",
  leave: "M6.5 2.5h-4v11h4M6 8h8M11 5l3 3-3 3",
  back: "M9.5 3.5 5 8l4.5 4.5",
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
};

/** One of them; a text beside it or a label says what it stands for. */
export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
    <path d=${PATHS[name]} />
  </svg>`;
}
