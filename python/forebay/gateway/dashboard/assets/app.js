/** The page: the session first, then the view that the link names. */
import { html, render, useEffect, useRef, useState } from "./core/elements.js";
import { connection } from "./core/connection.js";
import { feed } from "./core/feed.js";
import { nextKey, useKeys } from "./core/keys.js";
import { goTo, linkTo, route } from "./core/router.js";
import { session } from "./core/session.js";
import { useSignal } from "./core/signal.js";
import { toggleTheme } from "./core/theme.js";
import { figures, figuresProblem, startFigures } from "./data/figures.js";
import { ConnectionBar } from "./parts/connection-bar.js";
import { DialogHost } from "./parts/dialog.js";
import { Navigation, VIEWS } from "./parts/navigation.js";
import { Loading, Nothing, Refusal } from "./parts/notices.js";
import { KeysHelp } from "./views/keys-help.js";
import { LoginView } from "./views/login.js";
import { OverviewView } from "./views/overview.js";
import { PoolsView } from "./views/pools.js";
import { RequestView } from "./views/request.js";
import { RequestsView } from "./views/requests.js";
import { SchedulesView } from "./views/schedules.js";
import { WorkersView } from "./views/workers.js";

const GO_MS = 1500;
const GO = Object.fromEntries(VIEWS.map(([view, , key]) => [key, () => goTo(view)]));
const TITLES = Object.fromEntries(VIEWS);
const SHOWN = {
  overview: OverviewView,
  requests: RequestsView,
  workers: WorkersView,
  pools: PoolsView,
  schedules: SchedulesView,
};

function Page() {
  const { open } = useSignal(session);
  const [hasKeys, setKeys] = useState(false);
  useGlobalKeys(() => setKeys(true));
  if (open === false) return html`<${ConnectionBar} /><${LoginView} />`;
  return html`<a class="skip" href="#main" onClick=${skip}>To the content</a>
    <${Navigation} showKeys=${() => setKeys(true)} />
    <div class="content">
      <${ConnectionBar} />
      ${open ? html`<${Main} />` : html`<${Opening} />`}
    </div>
    ${hasKeys && html`<${KeysHelp} onClose=${() => setKeys(false)} />`}
    <${DialogHost} />`;
}

/** Until the server has answered for the first time. */
function Opening() {
  const problem = useSignal(figuresProblem);
  return html`<main id="main">
    ${problem ? html`<${Refusal} problem=${problem} />` : html`<${Loading} what="the server" />`}
  </main>`;
}

function Main() {
  const { view, id, query } = useSignal(route);
  const { phase } = useSignal(connection);
  const main = useRef(null);
  useTitle(view, id);
  useFocusOfView(main, view, id);
  const name = view === "requests" && id !== null ? "request" : view;
  return html`<main id="main" ref=${main} data-testid=${`view-${name}`}
    class=${`view-${name} ${phase === "lost" ? "stale" : ""}`}>
    ${name === "request"
      ? html`<${RequestView} id=${id} key=${id} />`
      : html`<${Listed} view=${view} query=${query} />`}
  </main>`;
}

function Listed({ view, query }) {
  const problem = useSignal(figuresProblem);
  const View = SHOWN[view];
  if (!View) return html`<h1 tabindex="-1">No such view</h1><${Unknown} view=${view} />`;
  return html`<h1 tabindex="-1">${TITLES[view]}</h1>
    ${problem && html`<${Refusal} problem=${problem} what="The figures cannot be read" />`}
    <${View} query=${query} />`;
}

function Unknown({ view }) {
  return html`<${Nothing} title=${`There is no view ${view}`}>
    <a href=${linkTo("overview")}>To the overview</a>
  <//>`;
}

function useTitle(view, id) {
  const overview = useSignal(figures);
  const app = overview?.info.app ?? "Forebay";
  useEffect(() => {
    document.title = `${id ?? TITLES[view] ?? "Forebay"} · ${app}`;
  }, [view, id, app]);
}

/** After a change of the view its heading has the focus, so that it is read out. */
function useFocusOfView(main, view, id) {
  const isFirst = useRef(true);
  useEffect(() => {
    if (!isFirst.current) main.current.querySelector("h1")?.focus({ preventScroll: true });
    if (!isFirst.current) scrollTo(0, 0);
    isFirst.current = false;
  }, [view, id]);
}

function useGlobalKeys(showKeys) {
  useKeys({ "?": showKeys, t: toggleTheme, g: () => nextKey(GO, GO_MS) });
}

/** The hash is the router's, so the link moves the focus itself. */
function skip(event) {
  event.preventDefault();
  document.querySelector("main h1")?.focus();
}

startFigures();
feed.start();
const root = document.getElementById("app");
root.textContent = "";
render(html`<${Page} />`, root);
