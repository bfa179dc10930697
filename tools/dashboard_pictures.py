"""Take the pictures of the dashboard, from a real server that a real browser looks at.

`python -m tools.dashboard_pictures [--folder docs/pictures] [--seconds N] [--chromium PATH]`

A server of `tools/pictured_app.py` works for some time, so that its figures have a history.
Playwright drives Debian's chromium. What is shown is what the server told: nothing is edited, and
each picture is written with a palette of 256 colours, so that it stays small.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

import forebay

ROOT = Path(__file__).resolve().parents[1]
APP = ROOT / "tools/pictured_app.py"
FOREBAY = [sys.executable, "-m", "forebay.cli"]
COLOURS = 256
PICTURE_BYTES_MAX = 150_000
STOP_S = 20.0
WIDE: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture.

    Attributes:
        name: of its file, behind `dashboard-`.
        link: of the view; `{tune}` and `{failed}` are ids.
        dark: the theme.
        size: of the window.
        prepare: what is done before, such as selecting rows.
    """

    name: str
    link: str
    dark: bool = False
    size: ViewportSize | None = None
    prepare: Callable[[Page], None] | None = None


def select_some(page: Page) -> None:
    """Select three rows, as a reader does with the keys."""
    page.keyboard.press("j")
    for _ in range(3):
        page.keyboard.press("x")
        page.keyboard.press("j")


PICTURES = (
    Picture("overview", "#/"),
    Picture("overview-dark", "#/", dark=True),
    Picture("requests", "#/requests", prepare=select_some),
    Picture("request", "#/requests/{tune}"),
    Picture("failed", "#/requests/{failed}", dark=True),
    Picture("workers", "#/workers"),
    Picture("phone", "#/requests", size=PHONE),
)


@contextlib.contextmanager
def served(home: Path) -> Iterator[str]:
    """Serve the application; yields the gateway's URL."""
    os.environ.update(XDG_RUNTIME_DIR=str(home), XDG_STATE_HOME=str(home))
    command = [*FOREBAY, "serve", str(APP), "--http", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        told = (json.loads(line) for line in process.stdout)
        url = next(one["url"] for one in told if one.get("event") == "http")
        # What it says later: a pipe that nobody reads would be full some day, and stop it.
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def working() -> Iterator[dict[str, str]]:
    """Have the laboratory work meanwhile; yields the ids of the requests that pictures show."""
    over = threading.Event()
    with forebay.Client(app=str(APP), start=False) as client:
        shown = {"tune": client.submit("tune", "lz", 2_000).id}
        shown["failed"] = client.submit("simulate", 4_000_000).id
        for program in ("sorting", "parser", "raytrace"):
            client.submit("tune", program, 600)
        worker = threading.Thread(target=submit_until, args=(client, over))
        worker.start()
        try:
            yield shown
        finally:
            over.set()
            worker.join()


def submit_until(client: forebay.Client, over: threading.Event) -> None:
    """Submit, a turn each second, until it is over."""
    turn = 0
    while not over.wait(1.0):
        submit_turn(client, turn)
        turn += 1


def submit_turn(client: forebay.Client, turn: int) -> None:
    """What comes in a second: waves of short requests, and now and then one that fails."""
    for document in range(1 + 9 * (turn % 30 < 8)):
        client.submit("embed", 100 * turn + document)
    if turn % 9 == 4:
        client.submit("fetch", f"https://example.org/{turn}", 3)
    if turn % 12 == 0:
        client.submit("publish", "docs" if turn % 24 else "shop", 20)
    if turn % 40 == 20:
        client.submit("simulate", 1_000_000)


def new_link() -> str:
    """A link that opens a session."""
    command = [*FOREBAY, "token", "link", "--app", str(APP)]
    return subprocess.check_output(command, text=True).strip()


def take(browser: Browser, picture: Picture, url: str, ids: dict[str, str]) -> bytes:
    """One picture as PNG with a palette."""
    context = browser.new_context(
        viewport=picture.size or WIDE,
        device_scale_factor=1.5 if picture.size else 1,
        color_scheme="dark" if picture.dark else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(new_link())
    page.goto(f"{url}/ui/{picture.link.format(**ids)}")
    page.wait_for_selector("[data-testid=live]:has-text('live')")
    page.wait_for_timeout(2500)  # a second reading of the figures
    if picture.prepare:
        picture.prepare(page)
    page.wait_for_timeout(500)
    taken = page.screenshot()
    context.close()
    return with_palette(taken)


def with_palette(png: bytes) -> bytes:
    """The same picture with few colours."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    reduced = image.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    written = io.BytesIO()
    reduced.save(written, "PNG", optimize=True)
    return written.getvalue()


def take_all(folder: Path, url: str, ids: dict[str, str], chromium: str) -> None:
    """Write every picture, and say how large it is.

    Raises:
        SystemExit: one is larger than a picture of the documentation may be.
    """
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        for picture in PICTURES:
            png = take(browser, picture, url, ids)
            path = folder / f"dashboard-{picture.name}.png"
            if len(png) > PICTURE_BYTES_MAX:
                sys.exit(f"{path} has {len(png)} bytes; at most {PICTURE_BYTES_MAX} are kept")
            path.write_bytes(png)
            sys.stdout.write(f"{path}: {len(png)} bytes\n")
        browser.close()


def main() -> None:
    """Serve, work, take the pictures."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.dashboard_pictures",
        description="Take the pictures of the dashboard from a real server.",
        epilog="example: python -m tools.dashboard_pictures --seconds 20 --folder /tmp",
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--seconds", type=float, default=150.0, help="of work before (150)")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="forebay-") as home,
        served(Path(home)) as url,
        working() as ids,
    ):
        time.sleep(given.seconds)
        take_all(given.folder, url, ids, given.chromium)


if __name__ == "__main__":
    main()
