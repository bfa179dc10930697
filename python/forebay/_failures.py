"""What the failure of a request is as an exception, and in words: the same for both clients.

`forebay_client` has this file as a link. So it imports the errors of its own package, and nothing
else that is not Python's own.
"""

from __future__ import annotations

import json
from typing import Any, Final

from .errors import BrokenError, CancelledError, DeadlineError, DiedError, Error, remote_error

__all__ = ["failure_error", "failure_text", "megabytes"]

_SIGNALS: Final = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    16: "SIGSTKFLT",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    26: "SIGVTALRM",
    27: "SIGPROF",
    29: "SIGIO",
    30: "SIGPWR",
    31: "SIGSYS",
}
"""Those that end a process, by the numbers of the server's system: a client's may have others.

Source: signal(7).
"""


def failure_error(id_: str, payload: Any) -> Error:
    """What the result of a request that did not succeed raises.

    Args:
        id_: of the request.
        payload: the failure as JSON bytes, or the map itself.
    """
    failure: dict[str, Any] = payload if isinstance(payload, dict) else json.loads(bytes(payload))
    kind = failure.get("kind")
    if kind == "raised":
        return remote_error(
            failure.get("builtin", "Exception"),
            failure.get("name", ""),
            _message_of(failure),
            failure.get("trace") or "",
        )
    text = f"request {id_} {failure_text(failure)}; see: forebay why {id_}"
    if kind == "died":
        return DiedError(
            text,
            cause=failure.get("cause", "unknown"),
            pid=failure.get("pid"),
            exit_code=failure.get("exit_code"),
            signal=failure.get("signal"),
            peak_bytes=failure.get("peak_bytes"),
            limit_bytes=failure.get("limit_bytes"),
            stderr_tail=failure.get("last_output") or "",
        )
    if kind == "timed_out":
        return DeadlineError(text, timeout=failure.get("timeout_s"))
    if kind == "cancelled":
        return CancelledError(f"request {id_} was cancelled")
    return BrokenError(text, delivered="no" if kind in ("after", "refused") else "maybe")


def failure_text(failure: dict[str, Any]) -> str:
    """What happened to a request, as the end of a sentence that begins with its id."""
    match failure.get("kind"):
        case "raised":
            name = str(failure.get("name", "")).rpartition(".")[2]
            return f"raised {name}: {failure.get('message', '')}".rstrip(": ")
        case "died":
            return _death_text(failure)
        case "timed_out":
            return f"ran longer than the {failure.get('timeout_s')} s that it may take"
        case "after":
            return f"waited for {failure.get('id')}, which did not succeed"
        case "outcome_unknown":
            return "had begun before the power was lost, and nobody knows how it ended"
        case "unkept":
            return f"ran, and its result was not kept: {failure.get('message', '')}"
        case "refused":
            return f"was refused when it was to run: {failure.get('message', '')}"
        case "cancelled":
            return "was cancelled"
        case other:
            return f"ended in a way that this version does not know ({other})"


def _death_text(failure: dict[str, Any]) -> str:
    told = _cause_text(failure)
    output = (failure.get("last_output") or "").strip()
    last = output.rpartition("\n")[2]
    return f"{told}; its last words: {last[:200]!r}" if last else told


def _cause_text(failure: dict[str, Any]) -> str:
    peak, limit = failure.get("peak_bytes"), failure.get("limit_bytes")
    used = "" if peak is None else f" at {megabytes(peak)} of private memory"
    of = "" if limit is None else f", the limit is {megabytes(limit)}"
    process = "its process" if failure.get("pid") is None else f"its process {failure['pid']}"
    match failure.get("cause"):
        case "memory":
            return f"was ended for its memory{used}{of}"
        case "exit":
            return f"ended because {process} left with exit code {failure.get('exit_code')}"
        case "signal":
            return f"ended because {process} was killed by {_signal(failure)}{used}"
        case "time":
            return f"did not heed its time-out, and {process} was killed"
        case "server":
            return "had begun when its server died, and may not run twice"
        case "node_lost":
            return f"ended because the node of {process} was lost"
        case _:
            return f"ended because {process} was lost{used}"


def megabytes(size: float) -> str:
    """A number of bytes for people."""
    return f"{size / 1e6:.0f} MB" if size >= 10e6 else f"{size / 1e6:.1f} MB"


def _signal(failure: dict[str, Any]) -> str:
    number = failure.get("signal")
    name = _SIGNALS.get(number) if isinstance(number, int) else None
    return name or ("an unknown signal" if number is None else f"signal {number}")


def _message_of(failure: dict[str, Any]) -> str:
    """The text of what was raised; a few say nothing themselves that a person understands."""
    message: str = failure.get("message") or ""
    if failure.get("builtin") == "SystemExit":
        return f"the function called sys.exit({message}); return, or raise an exception"
    return message or str(failure.get("name", ""))
