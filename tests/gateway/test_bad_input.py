"""Bad input gets a problem document that names the field: a running gateway, field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.http.http_serving import HttpServing

APP = Path(__file__).with_name("described_app.py")
FIELDS = {
    "type",
    "title",
    "status",
    "detail",
    "code",
    "message",
    "object",
    "limit",
    "value",
    "next",
}

pytestmark = pytest.mark.leaks("the processes of the server come and go between the tests")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServing]:
    with HttpServing(tmp_path_factory.mktemp("bad"), APP.read_text()) as serving:
        yield serving


def array(**fields: Any) -> dict[str, Any]:
    return {"dtype": "<f8", "shape": [1], "data": "AAAAAAAAAAA=", **fields}


ARGUMENTS = [
    ("add", {}, "arguments.a"),
    ("add", {"a": "1"}, "arguments.a"),
    ("add", {"a": 1, "b": None}, "arguments.b"),
    ("add", {"a": 1, "c": 2}, "arguments.c"),
    ("add", {"a": 2**70}, "arguments.a"),
    ("add", [], "arguments"),
    ("echo", {"content": 1}, "arguments.content"),
    ("echo", {"content": "not base64"}, "arguments.content"),
    ("turn", {"image": [1]}, "arguments.image"),
    ("turn", {"image": array(dtype="|O")}, "arguments.image.dtype"),
    ("turn", {"image": array(shape=[-1])}, "arguments.image.shape[0]"),
    ("turn", {"image": array(shape=[3])}, "arguments.image.data"),
    ("turn", {"image": array(data="A")}, "arguments.image.data"),
    ("turn", {"image": array(more=1)}, "arguments.image.more"),
    ("turn", {"image": {"dtype": "<f8", "shape": [1]}}, "arguments.image.data"),
    ("measure", {"sample": {"label": 1}}, "arguments.sample.label"),
    ("measure", {"sample": {}}, "arguments.sample.label"),
    ("measure", {"sample": {"label": "", "weights": [1, "2"]}}, "arguments.sample.weights[1]"),
    ("measure", {"sample": {"label": "", "blob": "?"}}, "arguments.sample.blob"),
    (
        "measure",
        {"sample": {"label": ""}, "more": [{"label": ""}, {"label": "", "blob": 1}]},
        "arguments.more[1].blob",
    ),
    ("draw", {"shape": {"type": "box", "width": 101}}, "arguments.shape.width"),
    ("draw", {"shape": {"type": "box", "width": 1, "texture": 1}}, "arguments.shape.texture"),
    ("draw", {"shape": {"type": "star"}}, "arguments.shape.type"),
    ("draw", {"shape": {"type": "circle", "radius": 1}, "mode": "x"}, "arguments.mode"),
    ("plan", {"pair": [1]}, "arguments.pair"),
    ("plan", {"limits": {"a": "b"}}, "arguments.limits.a"),
]


@pytest.mark.parametrize(("name", "arguments", "field"), ARGUMENTS)
def test_a_wrong_argument_is_named(serving: HttpServing, name: str, arguments: Any, field: str):
    """Whoever wrote the body finds the field in it."""
    answer = serving.call("POST", f"/v1/requests/{name}", arguments)
    assert problem(answer, 422, "invalid")["object"] == field


@pytest.mark.parametrize(("name", "arguments", "field"), ARGUMENTS)
def test_a_wrong_argument_is_named_in_a_body_that_names_the_request(
    serving: HttpServing, name: str, arguments: Any, field: str
):
    """The same names, so that a client needs one way to show them."""
    answer = serving.call("POST", "/v1/requests", {"name": name, "arguments": arguments})
    assert problem(answer, 422, "invalid")["object"] == field


OPTIONS = [
    ("priority", "high"),
    ("priority", "1000001"),
    ("timeout", "soon"),
    ("timeout", "-1"),
    ("timeout", "nan"),
    ("timeout", "inf"),
    ("timeout", "1e300"),
    ("retries", "1.5"),
    ("retries", "1001"),
    ("backoff", "x"),
    ("max_backoff", "x"),
    ("key", ""),
    ("key", "k" * 300),
    ("key_at_once", "0"),
    ("memory", "lots"),
    ("memory", "-5"),
    ("cpu", "nan"),
    ("cpu", "-1"),
    ("cpu", "many"),
    ("after", "what"),
    ("after", "000000000000"),
    ("delay", "-1"),
    ("lane", "async"),
    ("lane", "fast"),
    ("submitter", "root"),
    ("idempotency", "x"),
    ("color", "red"),
]


@pytest.mark.parametrize(("option", "value"), OPTIONS)
def test_a_wrong_option_is_named(serving: HttpServing, option: str, value: str):
    """An option that cannot be had is not left out in silence."""
    answer = serving.call("POST", f"/v1/requests/nothing?{option}={value}")
    assert problem(answer, 422, "invalid")["object"] == option


OBJECTS = [
    ("priority", "1"),
    ("priority", True),
    ("priority", 1.5),
    ("timeout", []),
    ("retries", -1),
    ("key", 1),
    ("memory", {}),
    ("cpu", "1"),
    ("after", "x"),
    ("after", [1]),
    ("lane", 1),
    ("color", 1),
]


@pytest.mark.parametrize(("option", "value"), OBJECTS)
def test_a_wrong_option_in_a_body_is_named(serving: HttpServing, option: str, value: Any):
    """The options of a batch are checked as those of a query."""
    body = {"requests": [{"name": "nothing", "options": {option: value}}, {"name": "nothing"}]}
    answer = serving.call("POST", "/v1/batch", body)
    assert answer.status == 200
    refused, accepted = answer.json["requests"]
    assert refused["error"].keys() >= FIELDS
    assert refused["error"]["status"] == 422
    assert refused["error"]["object"] == option
    assert refused["error"]["limit"] or refused["error"]["next"]
    assert accepted.keys() == {"id"}


BODIES = [
    ("/v1/requests", {}, "name"),
    ("/v1/requests", {"name": 1}, "name"),
    ("/v1/requests", {"name": "add", "more": 1}, "more"),
    ("/v1/requests", {"name": "nothing", "idempotency_key": 1}, "idempotency_key"),
    ("/v1/requests", {"name": "nothing", "idempotency_key": ""}, "Idempotency-Key"),
    ("/v1/requests", [], "body"),
    ("/v1/batch", {}, "requests"),
    ("/v1/batch", {"requests": 1}, "requests"),
    ("/v1/prune", {"status": ["running"]}, "status"),
    ("/v1/prune", {"older_than": "old"}, "older_than"),
    ("/v1/prune", {"ids": ["what!"]}, "id"),
    ("/v1/prune", {"dry_run": 1}, "dry_run"),
    ("/v1/prune", {"all": True}, "all"),
    ("/v1/cordon", {"reason": 5}, "reason"),
    ("/v1/cordon", {"reason": "x" * 501}, "reason"),
    ("/v1/cordon", {"dispatch": False}, "dispatch"),
    ("/v1/stop", {"grace": "soon"}, "grace"),
    ("/v1/stop", {"grace": []}, "grace"),
]


@pytest.mark.parametrize(("path", "body", "field"), BODIES)
def test_a_wrong_field_of_a_body_is_named(serving: HttpServing, path: str, body: Any, field: str):
    """Also where the body is not that of an application."""
    assert problem(serving.call("POST", path, body), 422, "invalid")["object"] == field


QUERIES = [
    ("/v1/requests?limit=0", "limit"),
    ("/v1/requests?limit=1001", "limit"),
    ("/v1/requests?limit=x", "limit"),
    ("/v1/requests?limit=1&limit=2", "limit"),
    ("/v1/requests?status=lost", "status"),
    ("/v1/requests?since=yesterday", "since"),
    ("/v1/requests?until=x", "until"),
    ("/v1/requests?cursor=!", "cursor"),
    ("/v1/requests?color=red", "color"),
    ("/v1/requests?lane=fast", "lane"),
    ("/v1/requests/@last?wait=x", "wait"),
    ("/v1/requests/@last?wait=-1", "wait"),
    ("/v1/requests/@last/result?wait=nan", "wait"),
    ("/v1/requests/@last/logs?offset=-1", "offset"),
    ("/v1/requests/@last/events?cursor=x", "cursor"),
    ("/v1/events?cursor=-1", "cursor"),
    ("/v1/events?color=red", "color"),
]


@pytest.mark.parametrize(("path", "field"), QUERIES)
def test_a_wrong_query_is_named(serving: HttpServing, path: str, field: str):
    """A filter that is misspelled lists nothing by mistake."""
    serving.submit("nothing")
    assert problem(serving.call("GET", path), 422, "invalid")["object"] == field


HEADERS = [
    ({"Idempotency_Key": "k" * 256}, 422, "invalid", "Idempotency-Key"),
    ({"Idempotency_Key": "a\tb"}, 422, "invalid", "Idempotency-Key"),
    ({"Content_Type": "text/plain"}, 415, "media_type", "Content-Type"),
    ({"Content_Encoding": "gzip"}, 415, "media_type", "Content-Encoding"),
]


@pytest.mark.parametrize(("headers", "status", "code", "field"), HEADERS)
def test_a_wrong_header_is_named(
    serving: HttpServing, headers: dict[str, str], status: int, code: str, field: str
):
    """By the name that it has in HTTP."""
    answer = serving.call("POST", "/v1/requests/nothing", {}, **headers)
    assert problem(answer, status, code)["object"] == field


def test_a_wrong_last_event_is_named(serving: HttpServing):
    """A reader that lost its place learns that, and does not begin anew in silence."""
    answer = serving.call("GET", "/v1/events", None, Last_Event_ID="x")
    assert problem(answer, 422, "invalid")["object"] == "Last-Event-ID"


def test_a_form_that_there_is_not_is_refused_with_those_there_are(serving: HttpServing):
    """The next request can name one of them."""
    id_ = serving.submit("add", a=1)
    serving.result(id_)
    told = problem(serving.result(id_, Accept="image/png"), 406, "not_acceptable")
    assert told["object"] == "Accept"
    assert told["limit"] == "application/json, application/msgpack"


@pytest.mark.parametrize(
    ("body", "told"), [(b"{", "truncated"), (b'{"a": 1,}', "byte 8"), (b"\xff", "byte 0")]
)
def test_what_is_no_json_is_told_with_its_byte(serving: HttpServing, body: bytes, told: str):
    """The offset is where an editor can go to."""
    answer = serving.call("POST", "/v1/requests/add", body)
    assert told in problem(answer, 400, "malformed")["message"]


UNKNOWN = [
    ("POST", "/v1/requests/ad", "request"),
    ("GET", "/v1/requests/000000000000", "request"),
    ("GET", "/v1/requests/what!", "request"),
    ("GET", "/v1/requests/000000000000/result", "request"),
    ("POST", "/v1/requests/000000000000/cancel", "request"),
    ("POST", "/v1/schedules/weekly/pause", "schedule"),
    ("GET", "/v1/events?ids=what!", "request"),
    ("GET", "/v1/nothing", "path"),
]


@pytest.mark.parametrize(("method", "path", "what"), UNKNOWN)
def test_what_is_not_there_is_named(serving: HttpServing, method: str, path: str, what: str):
    """A name, an id or a path: the client learns which."""
    assert problem(serving.call(method, path), 404, "unknown")["object"] == what


def test_a_name_that_is_nearly_one_is_told(serving: HttpServing):
    """A misspelled name costs one look."""
    told = problem(serving.call("POST", "/v1/requests/ad", {}), 404, "unknown")
    assert "add" in told["next"]


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    """The problem document of an answer, which is whole."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = json.loads(answer.body)
    assert told.keys() >= FIELDS
    assert (told["status"], told["code"]) == (status, code)
    assert told["type"] == f"/problems/{code}"
    assert told["message"]
    assert told["limit"] not in (None, "") or told["next"], "what is allowed, or what to do"
    return told
