"""Waiting for requests while a user watches: their output, their progress, their end."""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from forebay.cli.ending import report
from forebay.cli.exit_codes import CANCELLED, INTERRUPTED, TERMINATED, TIMED_OUT, error_text
from forebay.cli.items import ItemPrinter
from forebay.cli.output import note
from forebay.cli.session import tell
from forebay.errors import DeadlineError, Error

if TYPE_CHECKING:
    from forebay.cli.progress import Display
    from forebay.executor import Request

SECOND_S: Final = 1.5
"""A second Ctrl-C within this time cancels; a user who presses it twice does so in a second."""

LAST_WORDS_S: Final = 2.0
"""The longest time after a request's end in which the rest of its log is shown."""

SHOWN_MAX: Final = 16
"""Requests whose progress is shown; nobody reads more bars, and each takes a thread."""


class TerminatedError(BaseException):
    """SIGTERM came: stop watching; the request goes on."""


def following(parser: Any) -> None:
    """Options of commands that watch."""
    parser.add_argument(
        "--progress",
        choices=("auto", "plain", "json", "none"),
        default="auto",
        help="bars on a terminal, else a line every 10 %% or 30 s (auto)",
    )


def follow(request: Request, options: argparse.Namespace, *, gives_items: bool = False) -> int:
    """Show a request's log and progress until it ends, then its result; its exit code.

    Args:
        request: what is followed.
        options: of the command.
        gives_items: print its items too, as they come.
    """
    items = ItemPrinter(request, options) if gives_items else None
    return watch([request], options, logs=True, ended=lambda one: report(one, options), items=items)


def watch(
    requests: Sequence[Request],
    options: argparse.Namespace,
    *,
    logs: bool,
    ended: Callable[[Request], int],
    items: ItemPrinter | None = None,
) -> int:
    """Wait for requests while their progress is shown.

    Args:
        requests: of one client.
        options: of the command.
        logs: show their output too.
        ended: called for each in the order given; its exit code.
        items: prints those of the request, all before its end.

    Returns:
        The first exit code that is not 0; 124, 130 or 143 if the waiting was stopped.
    """
    from forebay.cli.display import display

    shown = display(options)
    shows: list[Callable[[Request, Display], None]] = []
    if logs and not options.quiet:
        shows.append(_show_log)
    if shown.wanted:
        shows.append(_show_events)
    threads = [
        threading.Thread(target=_quietly, args=(show, request, shown), daemon=True)
        for request in requests[:SHOWN_MAX]
        for show in shows
    ]
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        with shown:
            for thread in threads:
                thread.start()
            if items is not None:
                items.start(shown)
            _Waiter(requests, getattr(options, "until", None)).join()
            if items is not None:
                items.join()
            until = time.monotonic() + LAST_WORDS_S
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
    except KeyboardInterrupt:
        return _interrupted(requests, options)
    except TerminatedError:
        say_how_to_go_on(requests, options)
        return TERMINATED
    except DeadlineError:
        over = DeadlineError(
            f"--timeout has run out after {options.timeout:g} s", timeout=options.timeout
        )
        note(error_text(over, as_json=options.json))
        say_how_to_go_on(requests, options)
        return TIMED_OUT
    finally:
        signal.signal(signal.SIGTERM, before)
    codes = [ended(request) for request in requests]
    return next((code for code in codes if code), 0)


class _Waiter:
    """Waits in a thread of its own, so that a signal always wakes the main thread.

    A thread that waits for an answer polls before it sleeps. If the main thread did that, a Ctrl-C
    that came while it polls would have no effect until the answer comes.
    """

    def __init__(self, requests: Sequence[Request], until: float | None) -> None:
        self._requests = requests
        self._until = until
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until all have ended; raises the error that ended the waiting."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for request in self._requests:
                until = self._until
                request.exception(None if until is None else max(0.0, until - time.monotonic()))
        except Error as error:
            self._error = error


def _interrupted(requests: Sequence[Request], options: argparse.Namespace) -> int:
    """Leave them running after the first Ctrl-C; cancel them after a second one that comes soon."""
    try:
        say_how_to_go_on(requests, options)
        tell(options, "Ctrl-C once more cancels")
        time.sleep(SECOND_S)
    except KeyboardInterrupt:
        for request in requests:
            request.cancel()
        tell(options, "cancelled")
        return CANCELLED
    return INTERRUPTED


def say_how_to_go_on(requests: Sequence[Request], options: argparse.Namespace) -> None:
    """Print that they go on, and how to watch them again."""
    ids = " ".join(request.id for request in requests)
    goes = "goes on" if len(requests) == 1 else "go on"
    tell(options, f"\n{ids} {goes}; to wait: forebay wait {ids}; its log: forebay logs -f {ids}")


def _terminate(number: int, frame: FrameType | None) -> None:
    raise TerminatedError


def _quietly(show: Callable[[Request, Display], None], request: Request, shown: Display) -> None:
    """In a thread: show a request. An error is ignored, because the result reports it as well."""
    try:
        show(request, shown)
    except (Error, ValueError):  # ValueError: stderr is closed
        return


def _show_log(request: Request, shown: Display) -> None:
    for text in request.logs():
        shown.write(text)


def _show_events(request: Request, shown: Display) -> None:
    for event in request.events():
        shown.event(request.id, request.name, event)
