/** The view that the link names: `#/requests/ID?name=value`. */
import { Signal } from "./signal.js";

const DEFAULT_VIEW = "overview";

export const route = new Signal(parsed(location.hash));

addEventListener("hashchange", () => {
  route.value = parsed(location.hash);
});

/** The link of a view. */
export function linkTo(view, id = null, query = {}) {
  const path = view === DEFAULT_VIEW && id === null ? "" : view;
  const rest = id === null ? "" : `/${encodeURIComponent(id)}`;
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) words.set(name, value);
  const text = words.toString();
  return `#/${path}${rest}${text && `?${text}`}`;
}

/** Go to a view. */
export function goTo(view, id = null, query = {}) {
  location.hash = linkTo(view, id, query);
}

/** Change the query of this view without a step in the browser's history. */
export function replaceQuery(query) {
  const { view, id } = route.value;
  history.replaceState(null, "", linkTo(view, id, query));
  route.value = parsed(location.hash);
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
