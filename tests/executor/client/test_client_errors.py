"""What failures and refusals of the wire are as exceptions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forebay._failures import failure_error, failure_text
from forebay.errors import (
    BrokenError,
    CancelledError,
    ConfigError,
    DeadlineError,
    DiedError,
    Error,
    InternalError,
    LimitError,
    RemoteError,
)
from forebay.executor.wire.errors import refusal_error

ID = "03f0x279p000"
MB = 1_000_000


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        ({"cause": "exit", "pid": 7, "exit_code": 3}, "its process 7 left with exit code 3"),
        ({"cause": "signal", "signal": 11}, "its process was killed by SIGSEGV"),
        ({"cause": "signal", "signal": 10}, "its process was killed by SIGUSR1"),
        ({"cause": "signal", "signal": 99}, "was killed by signal 99"),
        ({"cause": "signal"}, "its process was killed by an unknown signal"),
        (
            {"cause": "memory", "peak_bytes": 310 * MB, "limit_bytes": 300 * MB},
            "ended for its memory at 310 MB of private memory, the limit is 300 MB",
        ),
        ({"cause": "time", "pid": 7}, "did not heed its time-out, and its process 7 was killed"),
        ({"cause": "server"}, "had begun when its server died, and may not run twice"),
        ({"cause": "unknown", "pid": 7}, "its process 7 was lost"),
        ({"cause": "exit", "exit_code": 1, "last_output": "a\nb\n"}, "its last words: 'b'"),
    ],
    ids=lambda one: one["cause"] if isinstance(one, dict) else "",
)
def test_each_death_says_what_it_was(failure: dict[str, Any], text: str) -> None:
    """With whatever is known, and without what is not."""
    error = failure_error(ID, json.dumps({"kind": "died", **failure}).encode())
    assert isinstance(error, DiedError)
    assert text in str(error)
    assert str(error).endswith(f"see: forebay why {ID}")
    assert "None" not in str(error)
    assert error.cause == failure["cause"]


@pytest.mark.parametrize(
    ("failure", "kind", "delivered"),
    [
        ({"kind": "timed_out", "timeout_s": 2.5}, DeadlineError, None),
        ({"kind": "cancelled"}, CancelledError, None),
        ({"kind": "after", "id": "03f0x25q2000"}, BrokenError, "no"),
        ({"kind": "refused", "message": "too large"}, BrokenError, "no"),
        ({"kind": "outcome_unknown"}, BrokenError, "maybe"),
        ({"kind": "unkept", "message": "its file is a link"}, BrokenError, "maybe"),
        ({"kind": "of a later version"}, BrokenError, "maybe"),
    ],
    ids=lambda one: one["kind"] if isinstance(one, dict) else "",
)
def test_each_end_has_its_exception(
    failure: dict[str, Any], kind: type[Error], delivered: str | None
) -> None:
    """Split by what the caller can do."""
    error = failure_error(ID, failure)
    assert type(error) is kind
    assert getattr(error, "delivered", None) == delivered
    assert ID in str(error)


def test_what_was_raised_is_told_in_one_line() -> None:
    """For lists; its own text where the exception had one."""
    raised = {"kind": "raised", "builtin": "KeyError", "name": "KeyError", "message": "'x'"}
    assert failure_text(raised) == "raised KeyError: 'x'"
    assert failure_text({**raised, "message": ""}) == "raised KeyError"
    error = failure_error(ID, {**raised, "trace": ""})
    assert isinstance(error, RemoteError)
    assert isinstance(error, KeyError)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("limit", LimitError),
        ("draining", BrokenError),
        ("store", BrokenError),
        ("unknown", ConfigError),
        ("invalid", ConfigError),
        ("hold", ConfigError),
        ("internal", InternalError),
    ],
)
def test_a_refusal_says_its_code_and_the_next_step(code: str, kind: type[Error]) -> None:
    """Its members are attributes; numbers are numbers."""
    members = {"object": "queue", "limit": "2", "value": "3", "next": "wait"}
    error: Any = refusal_error({"code": code, "message": "full", **members})
    assert type(error) is kind
    assert str(error) == "full; wait"
    assert (error.code, error.object, error.limit, error.value) == (code, "queue", 2, 3)
    plain: Any = refusal_error({"code": code, "message": "full", "limit": ""})
    assert plain.limit is None
