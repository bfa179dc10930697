"""A server of the application, with places of its own that go with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import forebay

from .app import app

__all__ = ["served"]

END_S = 30.0


@contextmanager
def served(options: Sequence[str]) -> Iterator[tuple[forebay.Client, str]]:
    """Start `forebay serve` in the foreground of a child; yield a client, and a folder for files.

    Args:
        options: of `forebay serve`, such as those of an engine.

    What it keeps is removed, and what runs is ended, whatever ends the block.

    Raises:
        RuntimeError: the server ended before it could be used; stderr has the reason.
    """
    target = app.target
    assert target is not None
    with (
        tempfile.TemporaryDirectory(prefix="autotune-") as folder,
        tempfile.TemporaryDirectory(prefix=f"autotune-{os.getpid()}-", dir="/tmp") as sockets,
    ):
        os.environ["FOREBAY_STATE_DIR"] = f"{folder}/state"
        os.environ["XDG_RUNTIME_DIR"] = sockets  # the path of a socket is short
        command = [sys.executable, "-m", "forebay.cli", "serve", target, *options]
        with subprocess.Popen(
            [*command, "--drain-grace", "0"], stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                _wait_until_ready(server)
                with forebay.Client(app=target, start=False) as client:
                    yield client, folder
            finally:
                server.terminate()
                try:
                    server.wait(END_S)
                except subprocess.TimeoutExpired:
                    server.kill()


def _wait_until_ready(server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    for line in server.stdout:
        if line.startswith("serving "):
            return
    raise RuntimeError("the server ended before it could be used")
