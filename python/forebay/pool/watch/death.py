"""Making an exception that says why from the keeper's report of a death."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from forebay.errors import ConfigError, DiedError

if TYPE_CHECKING:
    from forebay import _core

KEEPER_WAIT = 1.0
"""Seconds that the keeper has to report a death or output; it takes milliseconds."""

Told = tuple[str, int, int, bytes, int, int]
"""A death as the keeper reports it.

Cause, process id, exit code or signal, output, most memory used, memory allowed (bytes; 0: none).
"""

_WORDS = {
    "not_started": "could not be started",
    "template_died": "was not started: its template ended",
    "start_deadline": "was ended: it was not ready in time",
    "reset_deadline": "was ended: it was not reset in time",
    "reset_failed": "was ended: its reset raised",
    "idle_timeout": "was ended after its idle timeout",
    "discarded": "was ended: a call on it timed out, was cancelled or broke the connection",
    "closed": "was ended with its pool",
    "lifetime": "was ended: it had lived as long as its pool lets services live",
    "uses": "was ended: it had served as many leases as its pool lets services serve",
    "evicted": "was ended to make room for another kind",
    "contaminated": "was ended: state of one lease was found in it after its reset",
    "keeper_lost": "was ended because the keeper of the pool was killed",
    "out_of_memory": "was ended by the kernel for want of memory",
    "cpu": "was ended by the kernel: it used the processor time that ulimit -t allows",
    "memory": "was ended: it used more private memory than max_memory of its pool",
    "call_deadline": "was ended: a call took longer than call_timeout of its limits",
}

TAIL_LINES = 20
"""Lines of output in the message; `stderr_tail` has all that was kept."""


def died_error(name: str, told: Told) -> DiedError | ConfigError:
    """The exception for the death of service `name`, given cause, process id, code and output."""
    cause, pid, code, text, peak_bytes, limit_bytes = told
    output = text.decode(errors="replace").rstrip()
    if cause in ("template_unfit", "limit_not_enforceable"):
        return ConfigError(f"service {name} cannot be started: {output}")
    exit_code = code if cause == "exit" else None
    number = code if cause != "exit" and pid and code else None
    process = f"{name} (process {pid})" if pid else name
    message = f"service {process} {_how(cause, code)}"
    if limit_bytes:
        message += _memory(cause, peak_bytes, limit_bytes)
    if output:
        message += "; the last that it wrote:\n" + "\n".join(output.splitlines()[-TAIL_LINES:])
    never_ran = cause in ("not_started", "template_died")
    return DiedError(
        message,
        cause=cause,
        pid=pid or None,
        exit_code=exit_code,
        signal=number,
        peak_bytes=peak_bytes or None,
        limit_bytes=limit_bytes or None,
        stderr_tail=output,
        delivered="no" if never_ran else "maybe",
    )


def _how(cause: str, code: int) -> str:
    if cause == "exit":
        return f"exited with code {code}"
    if cause == "signal":
        try:
            return f"was killed by signal {code} ({signal.Signals(code).name})"
        except ValueError:
            return f"was killed by signal {code}"
    return _WORDS.get(cause, cause)


def _memory(cause: str, peak_bytes: int, limit_bytes: int) -> str:
    """How much memory it used, and advice if that was the cause."""
    used = f"used {peak_bytes / 1e6:.0f} MB of " if peak_bytes else ""
    text = f" ({used}at most {limit_bytes / 1e6:.0f} MB)"
    if cause == "out_of_memory":
        text += "; raise memory of its Limits, or give it less to do at once"
    return text


class DeathNotice:
    """The death of one lease's service, once it is reported."""

    __slots__ = ("_core", "_handle", "told")

    def __init__(self, core: _core.Pool, handle: _core.Handle) -> None:
        self._core = core
        self._handle = handle
        self.told: Told | None = None

    def found(self, queue: _core.WakeQueue) -> bool:
        """Look for it; `queue` is told when it pays to look again."""
        self.told = self._core.death(self._handle, queue)
        return self.told is not None


class LastWords:
    """The last output of one lease's service, once it is reported."""

    __slots__ = ("_core", "_handle", "told")

    def __init__(self, core: _core.Pool, handle: _core.Handle) -> None:
        self._core = core
        self._handle = handle
        self.told: bytes | None = None

    def found(self, queue: _core.WakeQueue) -> bool:
        """Look for it; `queue` is told when it pays to look again."""
        self.told = self._core.output(self._handle, queue)
        return self.told is not None
