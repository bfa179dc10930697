"""Running the handler of a listener for one connection."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from forebay.errors import BrokenError, ClosedError, Error, ProtocolError
from forebay.transport._connection import AsyncConnection

__all__ = ["Handler", "log_failed_start", "run_handler"]

Handler = Callable[[AsyncConnection], Awaitable[None]]

_ENDS = (BrokenError, ProtocolError, ClosedError)
"""The end of a connection; a subclass of these is the end of something else."""

_log = logging.getLogger(__name__)


async def run_handler(handler: Handler, connection: AsyncConnection, url: str) -> None:
    """Run a handler, then close its connection; what it raises is logged, with its traceback.

    Args:
        handler: of the listener.
        connection: stays open where the handler raises.
        url: what the log calls the listener.

    Cancellation: the handler's; the connection stays open.
    """
    try:
        await handler(connection)
        await connection.aclose()
    except Exception as error:
        if connection.closed and type(error) in _ENDS:
            _log.debug("a connection of %s ended: %s", url, error, exc_info=True)
        else:
            _log.exception("a handler of %s failed", url)


def log_failed_start(error: Error | OSError, url: str) -> None:
    """Log why a connection of a listener ended before its handler ran."""
    if type(error) in _ENDS:
        _log.debug("a connection of %s ended: %s", url, error)
    else:
        _log.warning("handshake on %s failed: %s", url, error)
