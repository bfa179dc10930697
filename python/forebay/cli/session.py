"""The client of one command, made from its options."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from forebay.cli.output import note
from forebay.cli.parser import UsageError

if TYPE_CHECKING:
    from forebay.executor import Client

CALL_S = 30.0
"""A server that does not answer a short call in this time hangs."""


CALL_LEAST_S = 1.0
"""A shorter `--timeout` is for requests; a loaded server may take longer to answer a call."""


@contextmanager
def session(
    options: argparse.Namespace, *, start: bool = False, waits: bool = False, here: str = ""
) -> Iterator[Client]:
    """A client of the server that the options name.

    Args:
        options: of the command.
        start: whether a server may be started.
        waits: whether the command waits for requests: `--timeout` then limits the start of a server
            and after that the wait for the requests.
        here: why the server must be on this machine, if it must.

    Raises:
        UsageError: it must, and it is not.
    """
    from forebay.executor import Client

    log(options)
    if waits:
        limit_wait(options)
    if not start and options.url is None and options.app is None:
        _find_any()
    client = Client(
        options.url,
        app=options.app,
        start=start,
        timeout=CALL_S if options.timeout is None else max(options.timeout, CALL_LEAST_S),
        on_start=lambda text: tell(options, f"forebay: {text}"),
        token_file=options.token_file,
        ca_file=options.ca_file,
    )
    with client:
        if here and client.is_remote:
            raise UsageError(f"this command does nothing over HTTP: {here}")
        yield client


def limit_wait(options: argparse.Namespace) -> None:
    """Start the time of `--timeout` now; without that option no wait has a limit."""
    options.until = None if options.timeout is None else time.monotonic() + options.timeout


def _find_any() -> None:
    """Make sure that the options name a server, or that one runs.

    Raises:
        BrokenError: neither is so.
    """
    from forebay.configuration import find_configuration
    from forebay.errors import BrokenError
    from forebay.executor._internal import newest

    configuration = find_configuration()
    if not configuration.value("url") and not configuration.value("app") and newest() is None:
        raise BrokenError(
            "no server runs; start one with: forebay serve APP, or forebay run TARGET",
            delivered="no",
        )


def tell(options: argparse.Namespace, text: str) -> None:
    """Print a line on stderr, unless `--quiet` is given."""
    if not options.quiet:
        note(text)


def log(options: argparse.Namespace) -> None:
    """Log to stderr, as much as `-v` says."""
    if options.verbose:
        import logging

        class Told(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                try:
                    note(self.format(record))
                except Exception:
                    self.handleError(record)  # whose text does not fit its arguments

        level = logging.DEBUG if options.verbose > 1 else logging.INFO
        form = "%(levelname)s %(name)s: %(message)s"
        logging.basicConfig(level=level, format=form, handlers=[Told()])
