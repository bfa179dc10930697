"""The program of a server that a command started: it says once, to a pipe, whether it is ready."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import Any

from forebay._log_format import log_to_stderr
from forebay.configuration import find_configuration
from forebay.errors import BusyError, Error
from forebay.executor.client.local import BUSY, FAILED, READY, UNFIT, home_of
from forebay.executor.server.server import Server, UnfitError

PIPE = 3
"""The inherited descriptor."""

_log = logging.getLogger(__name__)


def main() -> None:
    """Serve the application of the first argument until nothing was asked for in a long time."""
    os.set_inheritable(PIPE, False)
    try:
        configuration = find_configuration()
        log_to_stderr(configuration.value("log_level"), configuration.value("log_format"))
        for warning in configuration.warnings:
            _log.warning("%s", warning)
        home = home_of(sys.argv[1], configuration)
        server = Server(
            home.target,
            configuration.executor,
            pool=configuration.pool,
            reloads=True,
            ends_when_idle=True,
            state_dir=configuration.value("state_dir"),
            log_format=configuration.value("log_format"),
            hooks=configuration.hooks,
            report=_report,
        )
        server.run()
    except BusyError:
        _say(BUSY)
    except UnfitError as error:
        _say(UNFIT, error.reason)
        sys.exit(1)
    except Error as error:
        _log.error("%s", error)
        _say(FAILED, str(error))
        sys.exit(1)


def _report(event: str, facts: dict[str, Any]) -> None:
    _log.info("%s %s", event, facts)
    if event == "ready":
        _say(READY)


def _say(word: bytes, text: str = "") -> None:
    """Say it to who waits, where somebody does, and only once."""
    with contextlib.suppress(OSError):
        os.write(PIPE, word + b" " + text.encode(errors="replace") + b"\n")
        os.close(PIPE)
