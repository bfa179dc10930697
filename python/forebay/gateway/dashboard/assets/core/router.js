/** The view that the link names: `#/requests/ID?name=value`. */
import { Signal } from "./signal.js";

const DEFAULT_VIEW = "overview";

/** The query that each view had last, by its name. */
const queries = new Map();

export const route = new Signal(null);
look();
addEventListener("hashchange", look);

/** The link of a view. */
export function linkTo(view, id = null, query = {}) {
  const path = view === DEFAULT_VIEW && id === null ? "" : view;
  const rest = id === null ? "" : `/${encodeURIComponent(id)}`;
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) words.set(name, value);
  const text = words.toString();
  return `#/${path}${rest}${text && `?${text}`}`;
}

/** The link of a view as it was shown last. */
export function linkBack(view) {
  return linkTo(view, null, queries.get(view));
}

/** Go to a view. */
export function goTo(view, id = null, query = {}) {
  location.hash = linkTo(view, id, query);
}

/** Go to a view as it was shown last. */
export function goBack(view) {
  location.hash = linkBack(view);
}

/** Change the query of this view without a step in the browser's history. */
export function replaceQuery(query) {
  const { view, id } = route.value;
  history.replaceState(null, "", linkTo(view, id, query));
  look();
}

function look() {
  const now = parsed(location.hash);
  if (now.id === null) queries.set(now.view, now.query);
  route.value = now;
}

function parsed(hash) {
  const [path, text = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [view, id] = path.split("/", 2);
  const query = Object.fromEntries(new URLSearchParams(text));
  return { view: view || DEFAULT_VIEW, id: id ? decoded(id) : null, query };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
