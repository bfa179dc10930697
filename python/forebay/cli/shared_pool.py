"""The shared pool that a command means."""

from __future__ import annotations

import os

__all__ = ["lent_at"]


def lent_at(path: str | None) -> str | None:
    """The socket of the pool that is meant: `--path`, `FOREBAY_POOL_PATH`, or who lends now.

    Where no `forebay serve` lends alone, the server of the application that was started last does.
    """
    from forebay.executor._internal import newest
    from forebay.pool._internal import VARIABLE, shared_path

    if path is not None or VARIABLE in os.environ or _answers(os.fspath(shared_path())):
        return path
    found = newest()
    return None if found is None else found.pool_socket


def _answers(path: str) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX) as probe:
        try:
            return probe.connect_ex(path) == 0
        except OSError:  # no socket has so long a path
            return False
