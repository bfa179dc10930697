"""`forebay top`: who runs, who waits, and for what."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from forebay._units import duration, size
from forebay.cli.commands.ps import listing
from forebay.cli.commands.status import cordoned, counts, memory
from forebay.cli.output import colored, harmless, is_terminal, say, say_json, table, wants_color
from forebay.cli.parser import command, talking
from forebay.cli.session import session

if TYPE_CHECKING:
    from forebay.executor import Client

EXAMPLES = """\
  forebay top                 on a terminal: until q or Ctrl-C
  forebay top | cat           one picture of now
  forebay top --json          as one object"""

PAUSE_S: Final = 0.25
"""Between two pictures, however much happens."""
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The terminal's other screen without a cursor, and back."""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(commands, "top", run, examples=EXAMPLES)
    talking(parser)
    parser.add_argument("--once", action="store_true", help="print one picture and leave")


def run(options: argparse.Namespace) -> int:
    """Print it once, or again and again on a terminal."""
    color = wants_color(options.color, sys.stdout)
    with session(options) as client:
        if options.json:
            say_json(client.ask("top"))
        elif options.once or not (is_terminal(sys.stdout) and is_terminal(sys.stdin)):
            say(picture(client.ask("top"), color=color))
        else:
            _watch(client, color=color)
    return 0


def picture(seen: dict[str, Any], *, color: bool) -> str:
    """Figures, workers, services and requests as text."""
    figures = seen.get("figures") or {}
    parts = [f"requests  {counts(figures)}\nmemory    {memory(figures)}"]
    if figures.get("cordon"):
        parts.append(f"cordoned: {cordoned(figures['cordon'])}")
    if figures.get("held"):
        parts.append(f"held: {figures['held']}")
    workers = seen.get("workers") or []
    if workers:
        head = ("worker", "lane", "state", "private", "age", "uses", "runs")
        parts.append(table(head, [_worker(one) for one in workers]))
    services = seen.get("services") or []
    if services:
        rows = [(one.get("name"), one.get("pid") or "-", one.get("state")) for one in services]
        parts.append(table(("service", "process", "state"), rows))
    requests = seen.get("requests") or []
    parts.append(listing(requests, color=color) if requests else "nothing runs, nothing waits")
    return "\n\n".join(_headed(part, color=color) for part in parts)


def _headed(part: str, *, color: bool) -> str:
    """A table with its head in bold."""
    head, newline, rest = part.partition("\n")
    return colored(head, "bold", on=color and bool(newline)) + newline + rest


def _worker(one: dict[str, Any]) -> tuple[Any, ...]:
    running = one.get("running") or []
    runs = " ".join(running[:2]) + (f" and {len(running) - 2} more" if len(running) > 2 else "")
    age = one.get("age_ms")
    return (
        one.get("pid") or one.get("slot"),
        one.get("lane"),
        f"{one.get('state')}{', burst' if one.get('burst') else ''}",
        size(one.get("private_bytes")),
        duration(None if age is None else age / 1000),
        one.get("uses", "-"),
        runs or "-",
    )


class _Pictures:
    """Asks for a picture whenever something has happened, in a thread of its own.

    A descriptor wakes the main thread, which waits for keys too.
    """

    def __init__(self, client: Client) -> None:
        self.newest: dict[str, Any] = {}
        self.error: Exception | None = None
        self.descriptor, self._wakes = os.pipe()
        self._client = client
        threading.Thread(target=self._run, name="forebay-top", daemon=True).start()

    def seen(self) -> dict[str, Any]:
        """The newest picture; the main thread was woken for it.

        Raises:
            Error: there will be none any more.
        """
        os.read(self.descriptor, 1)
        if self.error is not None:
            raise self.error
        return self.newest

    def _run(self) -> None:
        try:
            while True:
                # Before the picture: what happens behind it is told.
                with contextlib.closing(self._client.follow()) as events:
                    self.newest = self._client.ask("top")
                    os.write(self._wakes, b"p")
                    asked_at = time.monotonic()
                    next(events)
                time.sleep(max(0.0, asked_at + PAUSE_S - time.monotonic()))
        except Exception as error:  # the main thread raises it
            self.error = error
            os.write(self._wakes, b"e")


def _watch(client: Client, *, color: bool) -> None:
    """Draw each picture on the terminal's other screen."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    sys.stdout.write(_ENTER)
    try:
        tty.setcbreak(descriptor)
        pictures = _Pictures(client)
        while True:
            ready, _, _ = select.select([sys.stdin, pictures.descriptor], [], [])
            if sys.stdin in ready and sys.stdin.read(1) in ("q", "Q", "\x1b", ""):
                return
            if pictures.descriptor in ready:
                _draw(picture(pictures.seen(), color=color))
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _draw(text: str) -> None:
    import shutil

    columns, rows = shutil.get_terminal_size()
    lines = [_cut(line, columns) for line in harmless(text, sys.stdout).split("\n")[: rows - 1]]
    clock = time.strftime("%H:%M:%S")
    sys.stdout.write("\x1b[H\x1b[J" + "\n".join(lines) + f"\n{clock}  q: leave")
    sys.stdout.flush()


def _cut(line: str, columns: int) -> str:
    """A line cut to the width; one with colors stays, as a cut could lose the end of a color."""
    return line if "\x1b" in line else line[:columns]
