"""How requests failed, as the client raises it: as the client of the Unix socket does."""

from __future__ import annotations

from typing import Any

import pytest

from forebay._failures import failure_error
from forebay_client import Client, errors
from tests.client.scripted_server import ScriptedServer, accepted, as_json, problem

FAILURE = {"kind": "raised", "builtin": "ValueError", "name": "app.OddError", "message": "odd"}
DEATH = {"kind": "died", "cause": "memory", "signal": 9, "peak_bytes": 310, "last_output": "x\n"}


def test_failures_are_raised_as_the_other_client_raises_them(
    server: ScriptedServer, client: Client
) -> None:
    """`except ValueError` works as if it had run here."""
    failed = problem(422, "failed", failure={**FAILURE, "trace": "line 1"})
    server.answers = [accepted(), failed, as_json({"status": "failed"})]
    request = client.submit("raise")
    with pytest.raises(ValueError, match=r"app\.OddError: odd") as caught:
        request.result()
    assert isinstance(caught.value, errors.RemoteError)
    assert caught.value.traceback_text == "line 1"
    assert request.status() == "failed"
    died = problem(422, "died", failure=DEATH, detail="was ended for its memory")
    server.answers = [accepted(), died, as_json({"status": "dead"})]
    request = client.submit("die")
    with pytest.raises(errors.DiedError, match="ended for its memory") as death:
        request.result()
    assert (death.value.cause, death.value.signal, death.value.peak_bytes) == ("memory", 9, 310)
    assert death.value.stderr_tail == "x\n"
    assert request.status() == "dead"


@pytest.mark.parametrize(
    ("failure", "kind", "text"),
    [
        (
            DEATH,
            errors.DiedError,
            "was ended for its memory at 0.0 MB of private memory; its last words: 'x'",
        ),
        (
            {"kind": "died", "cause": "signal", "pid": 7, "signal": 10},
            errors.DiedError,
            "ended because its process 7 was killed by SIGUSR1",
        ),
        (
            {"kind": "timed_out", "timeout_s": 2.5},
            errors.DeadlineError,
            "ran longer than the 2.5 s that it may take",
        ),
        (
            {"kind": "after", "id": "03f0x25q2000"},
            errors.BrokenError,
            "waited for 03f0x25q2000, which did not succeed",
        ),
        (
            {"kind": "refused", "message": "too large"},
            errors.BrokenError,
            "was refused when it was to run: too large",
        ),
    ],
    ids=lambda one: one["kind"] if isinstance(one, dict) else "",
)
def test_failures_have_the_text_of_the_other_client(
    server: ScriptedServer, client: Client, failure: dict[str, Any], kind: type, text: str
) -> None:
    """Whoever changes from one to the other finds it in the log by the same words."""
    failed = problem(422, "failed", failure=failure, detail="as the gateway says it")
    server.answers = [accepted(), failed, as_json({"status": "failed"})]
    request = client.submit("some")
    error = request.exception()
    assert type(error) is kind
    assert str(error) == f"request {request.id} {text}; see: forebay why {request.id}"
    assert str(error) == str(failure_error(request.id, failure))


def test_a_call_of_exit_is_told_as_the_other_client_tells_it(
    server: ScriptedServer, client: Client
) -> None:
    """`SystemExit: 3` says nothing to a person."""
    failure = {"kind": "raised", "builtin": "SystemExit", "name": "SystemExit", "message": "3"}
    failed = problem(422, "failed", failure=failure)
    server.answers = [accepted(), failed, as_json({"status": "failed"})]
    error = client.submit("leave").exception()
    assert isinstance(error, errors.RemoteError)
    assert "the function called sys.exit(3)" in str(error)


def test_a_failure_that_the_gateway_does_not_describe_has_its_text(
    server: ScriptedServer, client: Client
) -> None:
    """The detail is all that there is."""
    failed = problem(422, "failed", detail="it is gone")
    server.answers = [accepted(), failed, as_json({"status": "failed"})]
    error = client.submit("some").exception()
    assert type(error) is errors.BrokenError
    assert str(error) == "it is gone"
