"""How a call has ended, and what its caller gets."""

from __future__ import annotations

import pickle
from concurrent.futures import CancelledError
from typing import Any, Protocol

RESULT, RAISED, FAILURE, CANCELLED, ERROR = range(5)
"""How a call has ended, in the dispatcher's numbers; only the last is ours: an exception object."""


class Owner(Protocol):
    """The object that gets the end of a call: a future, or a map."""

    def put(self, ticket: int, end: int, payload: Any) -> None:
        """Take the end of the ticket's call; in the collector's thread, so it returns soon."""


def answer_of(end: int, payload: Any) -> tuple[bool, Any]:
    """Whether a call has succeeded, and its result or what to raise."""
    if end in (RESULT, RAISED):
        try:
            return end == RESULT, pickle.loads(payload)  # of a worker of this program
        except BaseException as error:  # unpickling runs code of the answer's class
            return False, _unreadable(error)
    if end == FAILURE:
        from forebay.executor.futures.errors import failure

        return False, failure(payload)
    return False, CancelledError() if end == CANCELLED else payload


def _unreadable(error: BaseException) -> BaseException:
    from forebay.executor.futures.errors import BrokenExecutorError

    broken = BrokenExecutorError(f"the answer of a call cannot be unpickled: {error!r}")
    broken.__cause__ = error
    return broken


def unsendable(error: Exception) -> Exception:
    """An error of pickling a call, with its traceback as in the standard library's pool."""
    from traceback import format_exception

    from forebay.executor.worker.pickled import rebuild

    text = "".join(format_exception(error))
    rebuild(error, f'\n"""\n{text}"""')
    return error
