"""The exception in a request that was cancelled, or whose time has run out."""

from __future__ import annotations


class Cancelled(BaseException):
    """This request was cancelled, or its time-out has passed: clean up, and let it through.

    No `Exception`, so that handlers of errors do not take it for one.
    Raised in the main thread of the worker, between two instructions or out of a system call;
    in an `async def` request the loop's own `asyncio.CancelledError` takes its place.
    A request that continues is ended by SIGTERM, and then by SIGKILL.
    """


class Terminated(SystemExit):
    """SIGTERM came while a request ran: the worker ends."""
