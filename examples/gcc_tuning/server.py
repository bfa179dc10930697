"""A server of the application, with places of its own that go with it."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import forebay

from .app import app

__all__ = ["command", "local_server"]

IDLE_END = "20s"
"""Where this program is killed, its server ends after so long without a request."""

END_S = 20.0


@contextmanager
def local_server(say: Callable[[str], None]) -> Iterator[forebay.Client]:
    """Start a server in the background, as `forebay run` does; yield a client of it.

    Args:
        say: gets the line that it was started.

    What it keeps lies in the temporary directory; its sockets lie in /tmp, because the path of a
    socket is short. Both are removed, whatever ends the block; what runs then is ended at once.
    """
    with (
        tempfile.TemporaryDirectory(prefix="gcc-tuning-") as state,
        tempfile.TemporaryDirectory(prefix=f"gcc-tuning-{os.getpid()}-", dir="/tmp") as sockets,
    ):
        os.environ["FOREBAY_STATE_DIR"] = state
        os.environ["XDG_RUNTIME_DIR"] = sockets
        os.environ["FOREBAY_EXECUTOR_IDLE_TIMEOUT"] = IDLE_END
        try:
            with forebay.Client(app=app.target, on_start=say) as client:
                client.info()  # starts it
                yield client
        finally:  # once that client is closed, which else would start another server
            _end(app.target)


def command(*words: str) -> str:
    """What a forebay command prints on stdout."""
    full = [sys.executable, "-m", "forebay.cli", *words]
    return subprocess.run(full, stdout=subprocess.PIPE, text=True, check=True).stdout


def _end(target: str | None) -> None:
    """End the server with what runs, and wait until it is gone.

    By a client of its own, which also finds a server that is still on its way: an interrupt may
    come at any moment, in the middle of a call too.
    """
    with (
        contextlib.suppress(forebay.BrokenError, forebay.ClosedError),  # it was quicker
        forebay.Client(app=target) as client,
    ):
        process = os.pidfd_open(client.info()["pid"])
        try:
            client.stop(0.0)
            select.select([process], [], [], END_S)
        finally:
            os.close(process)
