"""Why a request that has ended ended so: the reason, the next step and what happened before.

Of one that has not ended, the dispatcher tells.
"""

from __future__ import annotations

import signal
from typing import Any

from forebay.executor.server.rows import Row, rfc3339, shown
from forebay.executor.wire.ids import text_of

Told = tuple[str, str]
"""A reason, and what to do about it."""


def why_ended(row: Row, runs: list[Row], now_ms: int) -> dict[str, Any]:
    """The reason, the next step and the decisions of a request that has ended."""
    seen = shown(row, now_ms)
    reason, next_step = _reason(seen)
    return {
        "id": seen["id"],
        "status": seen["status"],
        "reason": reason,
        "next": next_step,
        "decisions": _history(row, seen, runs),
    }


def _reason(seen: Row) -> Told:
    status, failure = seen["status"], seen["failure"] or {}
    if status == "succeeded":
        return f"succeeded: {_spans(seen)}", ""
    if status == "cancelled":
        return f"cancelled: {_spans(seen)}", f"forebay retry {seen['id']}"
    reason, next_step = cause(failure, seen["name"])
    if status == "dead":
        reason = f"set aside after it ended {seen['deaths']} workers; the last time {reason}"
        next_step = f"{next_step}, then: forebay retry {seen['id']}"
    return f"{status}: {reason}" if status == "failed" else reason, next_step


def cause(failure: dict[str, Any], name: str) -> Told:
    """What a failure says, and what to do about it."""
    kind = failure.get("kind", "")
    if kind == "raised":
        what = f"{name} raised {failure['name']}: {failure['message']}"
        return (
            what,
            f"read the traceback of: forebay show, or run: forebay replay --pdb, for {name}",
        )
    if kind == "died":
        return _death(failure)
    if kind == "timed_out":
        return (
            f"{name} took longer than its timeout of {failure['timeout_s']:g} s",
            "raise its timeout=, or give it less to do",
        )
    if kind == "after":
        return (
            f"the request {failure['id']} that it waited for did not succeed",
            f"see: forebay why {failure['id']}",
        )
    if kind == "outcome_unknown":
        return (
            "it had begun when the power went, and may not run twice",
            "look whether it has done its work; permit retries where a second run does no harm",
        )
    if kind == "cancelled":
        return "it was cancelled", ""
    return str(failure.get("message", "nothing was kept of its end")), ""


def _death(failure: dict[str, Any]) -> Told:
    pid, what = failure.get("pid"), failure["cause"]
    worker = f"its worker (process {pid})" if pid else "its worker"
    used = _memory(failure)
    if what == "memory":
        return (
            f"{worker} was ended for want of memory{used}",
            "raise its memory=, or give it less to do at once",
        )
    if what == "signal":
        return f"{worker} was ended by {_signal(failure.get('signal'))}{used}", "see its output"
    if what == "exit":
        return f"{worker} exited with code {failure.get('exit_code')}{used}", "see its output"
    if what == "time":
        return f"{worker} was ended: its time had run out{used}", "raise its timeout="
    if what == "server":
        return (
            f"{worker} ended with its server{used}",
            "permit retries where a second run does no harm",
        )
    if what == "node_lost":
        return (
            f"the node of {worker} was lost{used}",
            "look whether it has done its work; permit retries where a second run does no harm",
        )
    return f"{worker} ended, and nobody could tell how{used}", "see its output"


def _signal(number: int | None) -> str:
    try:
        return f"signal {number} ({signal.Signals(number or 0).name})"
    except ValueError:
        return f"signal {number}"


def _memory(failure: dict[str, Any]) -> str:
    peak, limit = failure.get("peak_bytes"), failure.get("limit_bytes")
    if not peak:
        return ""
    of = f" of {limit / 1e6:.0f} MB" if limit else ""
    return f"; it used {peak / 1e6:.0f} MB{of}"


def _spans(seen: Row) -> str:
    peak = f", {seen['peak_bytes'] / 1e6:.0f} MB at most" if seen["peak_bytes"] else ""
    ran = "it never ran" if seen["run_s"] is None else f"it ran {seen['run_s']:.3f} s{peak}"
    return f"it waited {seen['queue_s']:.3f} s, {ran}"


def _history(row: Row, seen: Row, runs: list[Row]) -> list[dict[str, str | None]]:
    """What happened to a request, oldest first."""
    told = [{"at": seen["accepted_at"], "text": "accepted"}]
    for run in runs:
        reason, _ = cause(run["failure"] or {}, row["name"])
        told.append({"at": run["ended_at"], "text": f"run {run['attempt']} ended: {reason}"})
    if row["claimed_at"] is not None:
        told.append({"at": rfc3339(row["claimed_at"]), "text": f"run {row['attempts']} began"})
    told.append({"at": seen["ended_at"], "text": row["status"]})
    return told


def why_told(number: int, why: dict[str, Any]) -> dict[str, Any]:
    """What the dispatcher tells of a request that has not ended, as a client gets it."""
    return {
        "id": text_of(number),
        "status": why["status"],
        "reason": why["reason"],
        "next": why["next"],
        "decisions": [{"at": rfc3339(at), "text": text} for at, text in why["decisions"]],
    }
