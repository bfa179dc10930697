"""The errors of futures: ours, which are also those of `concurrent.futures`.

Imported when the first one is raised: the standard library's module of process pools loads
multiprocessing.
"""

from __future__ import annotations

import json
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from forebay.errors import BrokenError, ClosedError, DiedError, LimitError

__all__ = [
    "BrokenExecutorError",
    "ShutDownError",
    "WorkerDiedError",
    "failure",
]


class WorkerDiedError(DiedError, BrokenProcessPool):
    """The worker that ran this call ended; the other calls and the executor go on."""


class BrokenExecutorError(BrokenError, BrokenProcessPool):
    """A call cannot be run, or its answer cannot be read."""


class ShutDownError(ClosedError, RuntimeError):
    """The executor, or the interpreter, is shutting down and takes no more calls."""


def failure(payload: bytes) -> Exception:
    """The exception for a call that no worker has answered.

    Args:
        payload: the dispatcher's description of the failure, in JSON.
    """
    told: dict[str, Any] = json.loads(payload)
    kind = told["kind"]
    if kind == "died":
        return _died(told)
    if kind == "refused":
        return LimitError(told["message"])
    return BrokenExecutorError(f"the call did not run: {told.get('message', kind)}")


def _died(told: dict[str, Any]) -> WorkerDiedError:
    code, signal, last = told["exit_code"], told["signal"], told["last_output"]
    how = {
        "exit": f"exited with code {code}",
        "signal": f"was ended by signal {signal}",
        "memory": "was ended because memory ran out",
        "time": "was ended because its processor time ran out",
        "server": "was ended with the keeper that owned it",
    }.get(told["cause"], f"ended ({told['cause']})")
    peak, limit = told["peak_bytes"], told["limit_bytes"]
    memory = f"; it used up to {peak:,} bytes" if peak else ""
    memory += f" of {limit:,}" if peak and limit else ""
    words = f"; its last output:\n{last}" if last else ""
    return WorkerDiedError(
        f"the worker {told['pid']} that ran this call {how}{memory}{words}",
        cause=told["cause"],
        pid=told["pid"],
        exit_code=code,
        signal=signal,
        peak_bytes=peak,
        limit_bytes=limit,
        stderr_tail=last,
    )
