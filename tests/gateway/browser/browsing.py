"""A real browser at a real gateway: pages that are open, and what they did that they should not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from forebay.gateway.login import new_link
from tests.gateway.http.http_serving import HttpServing

APP = '''
import os
import sys
import time
from collections.abc import Iterator

import forebay

app = forebay.App("shown")


@app.request(lane="short", retries=0)
def add(a: int, b: int = 1) -> int:
    return a + b


@app.request(lane="short", retries=0)
def say(text: str) -> str:
    """A text everywhere where a user may put one."""
    return text


@app.request(lane="long", retries=0)
def tell(ctx: forebay.Context, text: str, path: str, each_s: float = 0.5) -> None:
    """The same in a log, in progress that is told again and again, and in an error."""
    print(text, flush=True)
    until, told = time.monotonic() + 600, 0.0
    while not os.path.exists(path) and time.monotonic() < until:
        if time.monotonic() - told >= each_s:
            told = time.monotonic()
            ctx.tell(1, 2, text, text)
        time.sleep(0.01)
    raise ValueError(text)


@app.request(lane="short", retries=0)
def fail(text: str) -> None:
    raise ValueError(text)


@app.request(lane="long", retries=0)
def hold(path: str) -> str:
    """Wait until a file is there, or for ten minutes."""
    until = time.monotonic() + 600
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.01)
    return "held"


@app.request(lane="long", retries=0)
def shout(count: int) -> None:
    sys.stdout.write("".join(f"line {number} of {count}\\n" for number in range(1, count + 1)))


@app.request(lane="long", retries=0)
def yields(path: str, text: str, count: int) -> Iterator[str]:
    """So many items with a text, and once a file is there a large one and an error."""
    for number in range(1, count):
        yield f"{text} {number}"
    until = time.monotonic() + 600
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.01)
    yield "x" * 4000
    raise ValueError(text)


@app.request(lane="long")
def tree(ctx: forebay.Context, depth: int) -> int:
    """So many requests below each other, two by two."""
    return 1 + sum(ctx.map(tree, [depth - 1] * 2)) if depth else 1


@app.request(lane="short", cron="0 0 1 1 *")
def yearly() -> None:
    pass
'''

RECORDED = """
window.recorded = {violations: [], frames: []};
document.addEventListener("securitypolicyviolation", (event) => {
  recorded.violations.push(`${event.violatedDirective}: ${event.blockedURI}`);
});
"""
"""Runs in each page before its own scripts."""

FRAMES = """
(ms) => new Promise((resolve) => {
  const frames = [];
  let before = performance.now();
  const until = before + ms;
  const frame = (now) => {
    frames.push(now - before);
    before = now;
    if (now < until) requestAnimationFrame(frame);
    else resolve(frames.slice(1));
  };
  requestAnimationFrame(frame);
})
"""
"""Milliseconds from each frame to the next."""


TRACED = ["-*", "toplevel"]
"""The browser's tasks, and what they wait for."""

TASK = "ThreadControllerImpl::RunTask"

PATIENCE_MS = 60_000
"""For what has to come; the machine may have other things to do."""


class Frames(NamedTuple):
    """The frames of a while, in milliseconds from each to the next.

    Attributes:
        count: of them.
        p50: the median.
        p95: what 95 of 100 do not exceed.
        most: the longest.
        busy: processor time of the page's main thread for each of them, whatever else the machine
            had to do.
        task: that of its longest task.
    """

    count: int
    p50: float
    p95: float
    most: float
    busy: float
    task: float


@dataclass
class Opened:
    """A page that is open, and what went wrong in it.

    Attributes:
        page: of Playwright.
        serving: whose dashboard it is.
        faults: errors of its scripts, what the console has of them, and dialogs.
    """

    page: Any
    serving: HttpServing
    faults: list[str] = field(default_factory=list)

    def go(self, view: str) -> None:
        """To a view, such as `requests?status=failed`, as a link of the page does."""
        self.page.evaluate("(view) => { location.hash = `#/${view}`; }", view)

    def part(self, testid: str) -> Any:
        """A part of the page by its `data-testid`."""
        return self.page.get_by_test_id(testid)

    def row(self, id_: str) -> Any:
        """A request in the list."""
        return self.page.locator(f'[data-testid=request-row][data-id="{id_}"]')

    def press(self, *keys: str) -> None:
        """Keys, one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def frames(self, seconds: float) -> Frames:
        """The frames of so much time."""
        browser = self.page.context.browser
        browser.start_tracing(page=self.page, categories=TRACED)
        frames: list[float] = self.page.evaluate(FRAMES, seconds * 1000)
        tasks = _tasks_ms(json.loads(browser.stop_tracing())["traceEvents"])
        return Frames(
            len(frames),
            percentile(frames, 0.5),
            percentile(frames, 0.95),
            max(frames),
            sum(tasks) / len(frames),
            max(tasks),
        )

    def violations(self) -> list[str]:
        """What the Content-Security-Policy has refused."""
        found: list[str] = self.page.evaluate("recorded.violations")
        return found

    def text(self) -> str:
        """All text that is shown."""
        shown: str = self.page.locator("body").inner_text()
        return shown

    def check(self) -> None:
        """That nothing went wrong.

        Raises:
            AssertionError: something did.
        """
        assert self.violations() == []
        assert self.faults == []


@contextmanager
def opened(
    chromium: Any,
    serving: HttpServing,
    view: str = "",
    *,
    log_in: bool = True,
    checks: bool = True,
    **options: Any,
) -> Iterator[Opened]:
    """A page of the dashboard in a context of its own.

    Args:
        chromium: the browser.
        serving: whose dashboard.
        view: that it begins with.
        log_in: whether by the link of `forebay serve`.
        checks: whether nothing may have gone wrong at the end.
        options: of the browser's context, such as `color_scheme` and `viewport`.
    """
    context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}} | options)
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(RECORDED)
    try:
        page = context.new_page()
        it = Opened(page, serving)
        page.on("pageerror", lambda error: it.faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: _refuse(it, dialog))
        page.on("console", lambda message: _note(it, message))
        if log_in:
            enter(it)
        page.goto(f"{serving.url}/ui/#/{view}")
        yield it
        if checks:
            it.check()
    finally:
        context.close()


def enter(it: Opened, name: str = "local") -> None:
    """Use a link, which sets the cookie; the page is not opened."""
    link = new_link(it.serving.state, it.serving.url, name)
    answer = it.page.context.request.get(link, max_redirects=0)
    assert answer.status == 303


def call(it: Opened, module: str, body: str, given: Any = None) -> Any:
    """What a function of JavaScript gives, whose arguments are a module and what is given."""
    return it.page.evaluate(
        f"async (given) => {{ const module = await import('{it.serving.url}/ui/{module}');"
        f" return ({body})(module, given); }}",
        given,
    )


def expect(what: Any) -> Any:
    """Playwright's assertions, which wait; it is there wherever the browser is."""
    from playwright.sync_api import expect as of_playwright

    of_playwright.set_options(timeout=PATIENCE_MS)
    return of_playwright(what)


def _tasks_ms(events: list[dict[str, Any]]) -> list[float]:
    """Processor time of each task of the page's main thread, which is the busiest of its kind."""
    threads: dict[tuple[int, int], list[float]] = {
        (one["pid"], one["tid"]): []
        for one in events
        if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"
    }
    for one in events:
        # One that had not ended has no time.
        if one["name"] == TASK and "tdur" in one and (one["pid"], one["tid"]) in threads:
            threads[one["pid"], one["tid"]].append(one["tdur"] / 1000)
    return max(threads.values(), key=sum)


def _refuse(it: Opened, dialog: Any) -> None:
    it.faults.append(f"dialog: {dialog.message}")
    dialog.dismiss()


def _note(it: Opened, message: Any) -> None:
    # What a route refuses, or nobody answers, is the page's to show: tests look there.
    is_of_network = message.text.startswith("Failed to load resource")
    if message.type in ("error", "warning") and not is_of_network:
        it.faults.append(f"console: {message.text}")


def launched(playwright: Any) -> Any:
    """Debian's Chromium; Playwright's own builds are not fetched."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)


def percentile(values: list[float], share: float) -> float:
    """The value below which that share of them is."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
