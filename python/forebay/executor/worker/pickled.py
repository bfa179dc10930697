"""Pickled calls for `forebay.Executor`: any function, as in a process pool."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

from forebay.executor.app.cancelled import Terminated
from forebay.executor.worker.failure import without_own_frames


def run_pickled(blob: Any) -> tuple[bool, bytes]:
    """Run `(function, args, kwargs)`; whether it returned, and its result or its exception.

    An exception of the call is an answer, `SystemExit` too, and so is the error if the call, its
    result or its exception cannot be pickled or unpickled.
    """
    try:
        function, args, kwargs = pickle.loads(blob)
        return True, pickle.dumps(function(*args, **kwargs), 5)
    except Terminated:
        raise  # of the worker itself
    except BaseException as error:
        return False, pickled_error(error)


def pickled_error(error: BaseException) -> bytes:
    """An exception with its traceback as its cause; if it cannot be pickled, one that says why."""
    trace = without_own_frames(error.__traceback__)
    text = "".join(traceback.format_exception(type(error), error, trace))
    error.__traceback__ = None
    told = _Told(error, f'\n"""\n{text}"""')
    try:
        pickle.loads(pickle.dumps(error, 5))  # some can be pickled but not unpickled
        return pickle.dumps(told, 5)
    except Exception as broken:
        broken.__traceback__ = None
        named = RuntimeError(
            f"the call raised {type(error).__qualname__}, which cannot be pickled: {broken}"
        )
        return pickle.dumps(_Told(named, f'\n"""\n{text}"""'), 5)


class _Told:
    """Unpickles as the exception, with the remote traceback as its cause."""

    __slots__ = ("_error", "_text")

    def __init__(self, error: BaseException, text: str) -> None:
        self._error = error
        self._text = text

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return rebuild, (self._error, self._text)


def rebuild(error: BaseException, text: str) -> BaseException:
    """Make the exception when it is unpickled, with the cause class of concurrent.futures."""
    error.__cause__ = _remote_traceback(text)
    return error


def _remote_traceback(text: str) -> BaseException:
    from concurrent.futures import process

    made: BaseException = vars(process)["_RemoteTraceback"](text)
    return made
