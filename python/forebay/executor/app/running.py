"""Which request runs here, for clients that submit others from inside of it."""

from __future__ import annotations

from collections.abc import Callable


def _outside() -> str | None:
    return None


_find: Callable[[], str | None] = _outside
"""Replaced by the loop of a worker."""


def find_by(find: Callable[[], str | None] = _outside) -> None:
    """Have `running_request` ask this, in a worker; without it, nothing runs here any more."""
    global _find
    _find = find


def running_request() -> str | None:
    """The id of the request that the caller belongs to; None outside of a server.

    In a worker that runs one request at a time that is the one that runs, in whatever thread. In
    the one of asynchronous requests a task belongs to its request, and so does what it starts.
    """
    return _find()
