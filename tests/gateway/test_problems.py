"""Errors and refusals as problem documents."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from forebay.errors import (
    BrokenError,
    BusyError,
    CancelledError,
    ClosedError,
    ConfigError,
    DeadlineError,
    DiedError,
    InternalError,
    LimitError,
    remote_error,
)
from forebay.executor.wire.errors import refusal_error
from forebay.executor.wire.refused import Refused
from forebay.gateway.problems import (
    TITLES,
    Problem,
    problem_of,
    problem_of_failure,
    problem_of_refusal,
)

FIELDS = [
    "type", "title", "status", "detail", "code", "message", "object", "limit", "value", "next",
]  # fmt: skip


def test_a_document_has_the_fields_of_the_page():
    """A client that knows RFC 9457 alone understands it; ours reads the rest."""
    problem = Problem(422, "invalid", "a: b", object="a", limit=1, value=2, next="do c")
    told = json.loads(problem.body())
    assert list(told) == FIELDS
    assert told["type"] == "/problems/invalid"
    assert told["title"] == TITLES["invalid"]
    assert told["detail"] == str(problem) == "a: b; do c"
    assert (told["status"], told["limit"], told["value"]) == (422, 1, 2)


def refusal(code: str, **members: str) -> dict[str, Any]:
    told = {"message": "m", "object": "", "limit": "", "value": "", "next": "n"}
    return {"code": code, **told, **members}


REFUSALS = [
    (refusal("unknown", object="request", value="ad"), 404, "unknown", "request", None),
    (refusal("unknown", object="request to come after"), 422, "invalid", "after", None),
    (refusal("unknown", object="option", value="delay_s"), 422, "invalid", "delay", None),
    (refusal("invalid", object="add: parameter a.b[0]"), 422, "invalid", "arguments.a.b[0]", None),
    (
        refusal("invalid", object="add", message='add: there is no parameter "c"'),
        422,
        "invalid",
        "arguments.c",
        None,
    ),
    (refusal("invalid", object="option timeout_s"), 422, "invalid", "timeout", None),
    (refusal("invalid", object="limit"), 422, "invalid", "limit", None),
    (refusal("limit", limit="max_queued", value="11"), 429, "limit", "", b"1"),
    (refusal("limit", limit="max_argument_bytes"), 413, "limit", "", None),
    (refusal("limit", limit="retention_bytes"), 410, "limit", "", None),
    (refusal("forbidden"), 403, "forbidden", "", None),
    (refusal("draining"), 503, "draining", "", b"5"),
    (refusal("store"), 503, "store", "", b"5"),
    (refusal("hold"), 503, "hold", "", b"5"),
    (refusal("of a later version"), 422, "invalid", "", None),
]


@pytest.mark.parametrize(("told", "status", "code", "object", "retry"), REFUSALS)
def test_a_refusal_keeps_its_fields(
    told: dict[str, Any], status: int, code: str, object: str, retry: bytes | None
):
    """The same whether it is a map or has become an exception on its way."""
    straight = problem_of_refusal(told)
    assert (straight.status, straight.code, straight.object) == (status, code, object)
    assert dict(straight.headers).get(b"retry-after") == retry
    assert (straight.message, straight.next) == (told["message"], "n")
    if told["code"] != "of a later version":
        raised = problem_of(refusal_error(told))
        assert raised.as_map() == straight.as_map()
        assert list(raised.headers) == list(straight.headers)


def test_another_protocol_is_a_server_that_is_not_there():
    """While a gateway outlives the server that it was started by."""
    problem = problem_of_refusal(refusal("protocol"))
    assert (problem.status, problem.code) == (503, "server")
    assert problem.as_map()["delivered"] == "no"


def test_a_refusal_of_python_is_one():
    """The server's own, which is raised in its process."""
    problem = problem_of(Refused("unknown", "there is no x", object="schedule", next="look"))
    assert (problem.status, problem.message, problem.next) == (404, "there is no x", "look")


ERRORS: list[tuple[Exception, int, str, Any]] = [
    (ConfigError("c"), 422, "invalid", None),
    (LimitError("l", limit=5, value=6), 413, "limit", None),
    (BusyError("b"), 409, "invalid_state", None),
    (ClosedError("c"), 503, "server", "no"),
    (BrokenError("b", delivered="no"), 503, "server", "no"),
    (BrokenError("b"), 503, "server", "maybe"),
    (DeadlineError("d"), 503, "server", "maybe"),
    (DiedError("d"), 422, "died", None),
    (CancelledError("c"), 422, "cancelled", None),
    (remote_error("ValueError", "ValueError", "r", ""), 422, "failed", None),
]


@pytest.mark.parametrize(("error", "status", "code", "delivered"), ERRORS)
def test_an_error_is_a_problem_by_what_its_caller_can_do(
    error: Exception, status: int, code: str, delivered: Any
):
    """A client learns whether trying again can help, and whether it was heard."""
    problem = problem_of(error)
    assert (problem.status, problem.code) == (status, code)
    assert problem.as_map().get("delivered") == delivered
    assert (b"retry-after" in dict(problem.headers)) == (status == 503)


FAULTS = [
    KeyError("secret"),
    InternalError("secret"),
    refusal_error(refusal("internal", message="m failed: KeyError('secret')")),
]


@pytest.mark.parametrize("error", FAULTS)
def test_a_fault_tells_nothing_and_is_logged(error: Exception, caplog: pytest.LogCaptureFixture):
    """What went wrong inside is for the log."""
    with caplog.at_level(logging.ERROR, "forebay.gateway.problems"):
        problem = problem_of(error)
    assert (problem.status, problem.code) == (500, "internal")
    assert b"secret" not in problem.body()
    assert "secret" in caplog.text


FAILURES = [
    ({"kind": "raised", "name": "ValueError", "message": "odd"}, "failed"),
    ({"kind": "died", "cause": "memory"}, "died"),
    ({"kind": "timed_out", "timeout_s": 2}, "timeout"),
    ({"kind": "cancelled"}, "cancelled"),
    ({"kind": "after", "id": "x"}, "failed"),
    ({"kind": "of a later version"}, "failed"),
]


@pytest.mark.parametrize(("failure", "code"), FAILURES)
def test_a_failure_is_a_problem_that_has_it(failure: dict[str, Any], code: str):
    """The result of a request that failed says how, in words and in fields."""
    problem = problem_of_failure("0abc", failure)
    assert (problem.status, problem.code, problem.object) == (422, code, "0abc")
    assert json.loads(problem.body())["failure"] == failure


def test_a_number_stays_a_number():
    """Refusals travel as text; programs want the limit as a number."""
    problem = problem_of_refusal(refusal("limit", limit="1000", value="1001"))
    assert (problem.limit, problem.value) == (1000, 1001)
    assert problem_of_refusal(refusal("limit", limit="9" * 20)).limit == "9" * 20
    assert problem_of_refusal(refusal("limit", limit="²")).limit == "²"
