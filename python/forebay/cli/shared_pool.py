"""The shared pool that a command uses."""

from __future__ import annotations

import os

__all__ = ["lent_at"]


def lent_at(path: str | None) -> str | None:
    """The socket of the pool: `--path`, `FOREBAY_POOL_PATH`, or that of the current lender.

    If no `forebay serve` without an application runs, the lender is the server of an application
    that was started last.
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
        except OSError:  # the path is too long for a socket
            return False
