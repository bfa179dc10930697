"""Describing what a request raised, without the frames of the worker itself."""

from __future__ import annotations

import os
import traceback
from types import TracebackType

from forebay._package import PACKAGE
from forebay.executor.worker.entry import Unfit, Unkept

MESSAGE_CHARS_MAX = 10_000
TRACE_CHARS_MAX = 64_000
_OWN = os.path.join(PACKAGE, "executor", "")


def failure_of(error: BaseException) -> dict[str, str]:
    """Describe what a request raised, as `forebay.errors.remote_error` needs it.

    The middle of a long text is left out: the innermost frames and the message are at its end.
    """
    cls = type(error)
    builtin = next(base.__name__ for base in cls.__mro__ if base.__module__ == "builtins")
    if issubclass(cls, Unfit | Unkept):
        name, trace = builtin, ""
    else:
        own = cls.__module__ == "builtins"
        name = cls.__qualname__ if own else f"{cls.__module__}.{cls.__qualname__}"
        trace = _trace(error)
    return {
        "kind": "raised",
        "builtin": builtin,
        "name": name,
        "message": _cut(_message(error), MESSAGE_CHARS_MAX),
        "trace": _cut(trace, TRACE_CHARS_MAX),
    }


def without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame that is not the worker's."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OWN):
        trace = trace.tb_next
    return trace


def _trace(error: BaseException) -> str:
    shown = without_own_frames(error.__traceback__)
    try:
        return "".join(traceback.format_exception(type(error), error, shown))
    except Exception as broken:  # its own __str__, or that of its cause
        return f"<its traceback is not available: {type(broken).__name__}>\n"


def _message(error: BaseException) -> str:
    try:
        text = str(error)
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    except Exception as broken:
        return f"<its text is not available: {type(broken).__name__}>"
    return text


def _cut(text: str, limit: int) -> str:
    text = text.encode(errors="backslashreplace").decode()
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[-half:]}"
