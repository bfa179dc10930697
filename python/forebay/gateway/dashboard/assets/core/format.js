/** Numbers, sizes and times as people read them. */

const NOTHING = "–";
const COUNTS = new Intl.NumberFormat("en");
const MOMENTS = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const SIZES = ["B", "kB", "MB", "GB", "TB"];

/** A whole number, such as 12,345. */
export function count(number) {
  return number === null || number === undefined ? NOTHING : COUNTS.format(number);
}

/** "1 request", "2 requests". */
export function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A size, such as 312 MB; decimal, as everywhere in Forebay. */
export function bytes(size) {
  if (size === null || size === undefined) return NOTHING;
  let step = 0;
  let value = size;
  while (Math.abs(value) >= 999.5 && step < SIZES.length - 1) {
    value /= 1000;
    step += 1;
  }
  const digits = step > 0 && value < 9.95 ? 1 : 0;
  return `${value.toFixed(digits)} ${SIZES[step]}`;
}

/** A duration in seconds, such as "340 ms", "4.2 s", "3 min 20 s". */
export function seconds(value) {
  if (value === null || value === undefined) return NOTHING;
  const s = Math.max(0, value);
  if (s < 0.0005) return "0 ms";
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  return longer(Math.floor(s));
}

/** A duration that grows while it is shown: whole seconds. */
export function growing(value) {
  const s = Math.max(0, Math.floor(value));
  return s < 60 ? `${s} s` : longer(s);
}

function longer(s) {
  if (s < 3600) return pair(s, 60, "min", 1, "s");
  if (s < 86_400) return pair(s, 3600, "h", 60, "min");
  return pair(s, 86_400, "d", 3600, "h");
}

function pair(s, large, largeWord, small, smallWord) {
  const rest = Math.floor((s % large) / small);
  return `${Math.floor(s / large)} ${largeWord}${rest ? ` ${rest} ${smallWord}` : ""}`;
}

/** How long ago, or in what time; both in milliseconds since 1970. */
export function relative(at, now) {
  const s = Math.floor((now - at) / 1000);
  if (Math.abs(s) < 2) return "now";
  const text = rough(Math.abs(s));
  return s > 0 ? `${text} ago` : `in ${text}`;
}

function rough(s) {
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

/** A moment with date and time of this place. */
export function exact(at) {
  return MOMENTS.format(new Date(at));
}

/** A part of something in percent; nothing where the whole is not known. */
export function percent(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)} %` : NOTHING;
}

/** The name of a signal of Linux, for those that end processes. */
export function signalName(number) {
  const names = { 1: "SIGHUP", 2: "SIGINT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE" };
  Object.assign(names, { 9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM" });
  return names[number] ?? `signal ${number}`;
}
