"""Submissions over HTTP: by a path, by a body, many at once, and again under their key."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import msgpack

from tests.gateway.http.http_serving import HttpServing


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServing]:
    """One server for the module: the tests do not disturb each other."""
    with HttpServing(tmp_path_factory.mktemp("serving")) as serving:
        yield serving


pytestmark = pytest.mark.leaks(reason="the server of the module is there until its last test")


def test_a_submission_is_answered_with_its_place(serving: HttpServing) -> None:
    """A client follows Location, as everywhere in HTTP."""
    answer = serving.call("POST", "/v1/requests/add", {"a": 2})
    assert answer.status == 202
    assert answer.json == {
        "schema": 1,
        "id": answer.json["id"],
        "name": "add",
        "status": "queued",
    }
    assert answer.headers["location"] == f"/v1/requests/{answer.json['id']}"
    assert serving.result(answer.json["id"]).json == 3


def test_a_body_may_name_the_request(serving: HttpServing) -> None:
    """A client that has names in its data needs no escapes in paths."""
    body = {"name": "add", "arguments": {"a": 4, "b": 5}, "options": {"priority": 3}}
    answer = serving.call("POST", "/v1/requests", body)
    assert answer.status == 202
    assert serving.call("GET", f"/v1/requests/{answer.json['id']}").json["priority"] == 3
    assert serving.result(answer.json["id"]).json == 9


def test_the_submitter_is_the_token(serving: HttpServing) -> None:
    """Fairness and quotas go by who asked, not by what a client says of itself."""
    id_ = serving.submit("add", a=1)
    assert serving.call("GET", f"/v1/requests/{id_}").json["submitter"] == "local"
    answer = serving.call("POST", "/v1/requests/add?submitter=other", {"a": 1})
    assert (answer.status, answer.json["code"]) == (422, "invalid")


def test_a_trace_is_kept_with_the_request(serving: HttpServing) -> None:
    """One id leads through all systems; what is no trace is left out and nothing else."""
    span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    path = "/v1/requests/add"
    id_ = serving.call("POST", path, {"a": 1}, traceparent=span).json["id"]
    shown = serving.call("GET", f"/v1/requests/{id_}/show").json
    assert shown["traceparent"] == span
    named = {"name": "add", "arguments": {"a": 1}}
    id_ = serving.call("POST", "/v1/requests", named, traceparent=span).json["id"]
    shown = serving.call("GET", f"/v1/requests/{id_}/show").json
    assert shown["traceparent"] == span
    for wrong in ("x", span.replace("b7ad6b7169203331", "0" * 16), f"{span}-more"):
        assert serving.call("POST", path, {"a": 1}, traceparent=wrong).status == 202


def test_arguments_may_be_messagepack(serving: HttpServing) -> None:
    """Large binary arguments need no base64."""
    body = msgpack.encode({"content": b"\0\xff"})
    answer = serving.call("POST", "/v1/requests/echo", body, Content_Type="application/msgpack")
    result = serving.result(answer.json["id"], Accept="application/octet-stream")
    assert result.body == b"\0\xff"


def test_options_are_query_parameters(serving: HttpServing) -> None:
    """All but the arguments is in the address."""
    first = serving.submit("add", a=1)
    path = f"/v1/requests/add?priority=2&timeout=30&retries=0&memory=1MB&delay=0.01&after={first}"
    answer = serving.call("POST", path, {"a": 1})
    assert answer.status == 202, answer
    shown = serving.call("GET", f"/v1/requests/{answer.json['id']}/show").json
    assert shown["priority"] == 2
    assert serving.result(answer.json["id"]).json == 2


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("colour=red", "colour"),
        ("priority=high", "priority"),
        ("priority=1&priority=2", "priority"),
        ("delay=soon", "delay"),
        ("retries=-1", "retries"),
        ("lane=fast", "lane"),
    ],
)
def test_a_wrong_option_is_named(serving: HttpServing, query: str, named: str) -> None:
    """The message says which one, so that nobody compares a long query with the page."""
    answer = serving.call("POST", f"/v1/requests/add?{query}", {"a": 1})
    assert (answer.status, answer.json["code"]) == (422, "invalid")
    assert named in answer.json["object"]
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "malformed"),
        (b'{"a": "one"}', 422, "invalid"),
        (b'{"c": 1}', 422, "invalid"),
        (b"[1]", 422, "invalid"),
    ],
)
def test_wrong_arguments_are_refused(
    serving: HttpServing, body: bytes, status: int, code: str
) -> None:
    """What does not fit is told at once, not by a request that fails later."""
    answer = serving.call("POST", "/v1/requests/add", body)
    assert (answer.status, answer.json["code"]) == (status, code), answer


def test_an_unknown_name_and_an_unknown_form_are_refused(serving: HttpServing) -> None:
    """A mistyped name is no request that waits for ever."""
    answer = serving.call("POST", "/v1/requests/nobody", {})
    assert (answer.status, answer.json["code"]) == (404, "unknown")
    answer = serving.call("POST", "/v1/requests/add", b"<a/>", Content_Type="text/xml")
    assert (answer.status, answer.json["code"]) == (415, "media_type")


def test_a_key_makes_a_repetition_harmless(serving: HttpServing) -> None:
    """A client that did not see the answer submits again, and has one request."""
    first = serving.call("POST", "/v1/requests/add", {"a": 1}, Idempotency_Key="k1")
    again = serving.call("POST", "/v1/requests/add", {"a": 1}, Idempotency_Key="k1")
    assert first.json["id"] == again.json["id"]
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    other = serving.call("POST", "/v1/requests/echo", {"content": ""}, Idempotency_Key="k1")
    assert other.json["id"] != first.json["id"]


def test_a_key_holds_for_arguments_in_another_order(serving: HttpServing) -> None:
    """A client's map may give them in another one each time."""
    first, again = (
        serving.call("POST", "/v1/requests/add", body, Idempotency_Key="k5")
        for body in (b'{"a": 1, "b": 2}', b'{"b": 2, "a": 1}')
    )
    assert again.json == first.json
    assert again.headers["idempotency-replayed"] == "true"
    other = serving.call("POST", "/v1/requests/add", {"a": 2, "b": 1}, Idempotency_Key="k5")
    assert (other.status, other.json["code"]) == (422, "idempotency_mismatch")


def test_a_key_with_another_body_is_refused(serving: HttpServing) -> None:
    """A client that reuses a key by mistake does not take the result of something else."""
    serving.call("POST", "/v1/requests/add", {"a": 1}, Idempotency_Key="k2")
    answer = serving.call("POST", "/v1/requests/add", {"a": 2}, Idempotency_Key="k2")
    assert (answer.status, answer.json["code"]) == (422, "idempotency_mismatch")
    answer = serving.call("POST", "/v1/requests/add", {"a": 1}, Idempotency_Key="k" * 256)
    assert (answer.status, answer.json["code"]) == (422, "invalid")


def test_a_key_outlives_the_gateway(serving: HttpServing) -> None:
    """The server keeps keys; the gateway that knew the body may be gone."""
    first = serving.call("POST", "/v1/requests/add", {"a": 7}, Idempotency_Key="k3")
    serving.kill_gateway()
    again = serving.call("POST", "/v1/requests/add", {"a": 7}, Idempotency_Key="k3")
    assert again.json["id"] == first.json["id"]
    assert again.headers["idempotency-replayed"] == "true"
    other = serving.call("POST", "/v1/requests/add", {"a": 8}, Idempotency_Key="k3")
    assert (other.status, other.json["code"]) == (422, "idempotency_mismatch")


def test_one_key_at_the_same_time_makes_one_request(serving: HttpServing) -> None:
    """Whoever is not first is told to come again, or gets the first one's id."""

    def submit(_: int) -> tuple[int, str]:
        answer = serving.call("POST", "/v1/requests/add", {"a": 1}, Idempotency_Key="k4")
        return answer.status, answer.json.get("id") or answer.json["code"]

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(submit, range(24)))
    assert len({told for status, told in answers if status == 202}) == 1
    assert {told for status, told in answers if status != 202} <= {"idempotency_in_progress"}


def test_a_client_may_prefer_the_result(serving: HttpServing, tmp_path: Path) -> None:
    """One call is enough for what is quick; what is not is told where it is."""
    answer = serving.call("POST", "/v1/requests/add", {"a": 1}, Prefer="wait=20")
    assert (answer.status, answer.json) == (200, 2)
    assert answer.headers["location"].startswith("/v1/requests/")
    held = serving.call(
        "POST", "/v1/requests/hold", {"path": str(tmp_path / "go")}, Prefer="wait=0.1"
    )
    assert held.status == 202
    (tmp_path / "go").touch()
    assert serving.result(held.json["id"]).json == "held"
    failed = serving.call("POST", "/v1/requests/fail", {"text": "no"}, Prefer="wait=20")
    assert (failed.status, failed.json["code"]) == (422, "failed")
    assert failed.json["failure"]["name"].endswith("ValueError")
    assert failed.headers["location"].startswith("/v1/requests/")


def test_a_batch_answers_each(serving: HttpServing) -> None:
    """One that is wrong does not spoil the others, and the order is theirs."""
    batch = {
        "requests": [
            {"name": "add", "arguments": {"a": 1}},
            {"name": "add", "arguments": {"a": "x"}},
            {"name": "nobody"},
            {"name": "add", "arguments": {"a": 2}, "idempotency_key": "b1"},
            {"arguments": {}},
            {"name": "add", "arguments": {"a": 2}, "options": {"retries": True}},
        ]
    }
    answer = serving.call("POST", "/v1/batch", batch)
    assert answer.status == 200
    told = answer.json["requests"]
    assert [one["error"]["code"] if "error" in one else "id" for one in told] == [
        "id",
        "invalid",
        "unknown",
        "id",
        "invalid",
        "invalid",
    ]
    assert [serving.result(told[place]["id"]).json for place in (0, 3)] == [2, 3]
    big = {"requests": [{"name": "add", "arguments": {"a": n}} for n in range(1001)]}
    assert serving.call("POST", "/v1/batch", big).status == 413
    del big["requests"][1000]
    ids = [one["id"] for one in serving.call("POST", "/v1/batch", big).json["requests"]]
    assert len(set(ids)) == 1000
