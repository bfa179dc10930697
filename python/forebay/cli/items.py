"""Items of a request as commands print them: one a line, as they come."""

from __future__ import annotations

import argparse
import threading
from typing import TYPE_CHECKING

from forebay.cli.ending import say_value
from forebay.cli.output import note, say, say_json
from forebay.errors import Error, StaleError

if TYPE_CHECKING:
    from forebay.cli.progress import Display
    from forebay.executor import Items, Request

__all__ = ["ItemPrinter", "say_items"]


class ItemPrinter:
    """Prints the items of one request while it is watched, in a thread of its own."""

    def __init__(self, request: Request, options: argparse.Namespace) -> None:
        self._items: Items | None = None
        self._request = request
        self._options = options
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._shown: Display | None = None

    def start(self, shown: Display) -> None:
        """Begin to print, beside what is shown."""
        self._shown = shown
        self._thread.start()

    def join(self) -> None:
        """Wait until all items of a request that has ended are printed.

        Raises:
            OutputError, BrokenPipeError: they cannot be printed.
            Error: they cannot be read.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        assert self._shown is not None
        try:
            say_items(self._request.items(), self._request.id, self._options, self._shown)
        except (Error, OSError) as error:
            # Why the request did not end well is told with its end.
            if error is not self._request.exception():
                self._error = error


def say_items(
    items: Items, id_: str, options: argparse.Namespace, shown: Display | None = None
) -> None:
    """Print items until there are no more; on stderr where the request begins again.

    Raises:
        what reading them raises at their end, and OutputError.
    """
    while True:
        try:
            value = next(items)
        except StopIteration:
            return
        except StaleError as again:
            note(f"forebay: {again}" if not options.json else _told(id_, again))
            continue

        def print_it(value: object = value) -> None:
            if options.json:
                told = {"id": id_, "epoch": items.epoch, "number": items.number, "item": value}
                say_json(told)
            elif value is None:
                say("null")
            else:
                say_value(value)

        if shown is None:
            print_it()
        else:
            shown.result(print_it)


def _told(id_: str, again: StaleError) -> str:
    """The beginning of a new epoch, for programs."""
    import json

    return json.dumps({"schema": 1, "id": id_, "event": "epoch", "message": str(again)})
