"""The routes of the gateway as OpenAPI describes them, but for the requests of the application.

Source: OpenAPI 3.1.0; docs/concepts/gateway.md has the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from forebay.executor._internal import LANES, PRIORITY_MAX, RETRIES_MAX
from forebay.gateway.answers import KEY_CHARS_MAX, STATUSES, reference
from forebay.gateway.media import BYTES, JSON, MSGPACK, NPY

__all__ = [
    "OPTIONS",
    "PARAMETERS",
    "PROBLEM_STATUSES",
    "SHARED",
    "Operation",
    "problem_response",
    "submission",
]

Map = dict[str, Any]

PROBLEM: Final = "application/problem+json"
EVENTS: Final = "text/event-stream"
WAIT_S_MAX: Final = 60
PAGE_MAX: Final = 1000
OPTION_CHARS_MAX: Final = 256
CPU_MAX: Final = 1024
AT_ONCE_MAX: Final = 2**31 - 1

_LINKED: Final = (
    "get_request",
    "get_result",
    "show_request",
    "why_request",
    "get_arguments",
    "get_logs",
    "cancel_request",
    "retry_request",
)
"""Operations that take the id of a submission."""

_PROBLEMS: Final = {
    400: "it cannot be read as HTTP, JSON or MessagePack",
    401: "no token, or an unknown one",
    403: "the role of the token does not permit it",
    404: "there is no such request, name or path",
    406: "there is no such form",
    408: "the headers or the body did not come in time",
    409: "the state does not permit it",
    410: "the result was removed before it was read",
    413: "the body is too long",
    414: "the path is too long",
    415: "the form of the body is not known",
    416: "the range is behind the end of the result",
    421: "the Host is not this server's",
    422: "an argument or an option is wrong, or the request failed",
    429: "a limit was reached",
    431: "the headers are too long",
    500: "a fault of the server",
    503: "the server does not take it now, or is away",
}
PROBLEM_STATUSES: Final = tuple(_PROBLEMS)

_ALWAYS: Final = (400, 408, 414, 421, 431, 500, 503)
"""Whatever is asked, the connection and the gateway may be at fault."""
_WITH_TOKEN: Final = (401, 403, 429)
_OF_ID: Final = (404, 422)
_OF_BODY: Final = (413, 415, 422)
_RETRY_AFTER: Final = (409, 429, 503)

_SECONDS: Final = {"type": ["number", "string"], "examples": [30, "30s"]}

OPTIONS: Final[dict[str, tuple[Map, str]]] = {
    "lane": ({"type": "string", "enum": list(LANES)}, "where it runs"),
    "priority": (
        {"type": "integer", "minimum": -PRIORITY_MAX, "maximum": PRIORITY_MAX},
        "higher runs first among the requests of one lane and submitter",
    ),
    "timeout": (_SECONDS, "what one run may take"),
    "retries": (
        {"type": "integer", "minimum": 0, "maximum": RETRIES_MAX},
        "how often it may run again after it raised or its worker died",
    ),
    "backoff": (_SECONDS, "pause before the first retry; it doubles, up to max_backoff"),
    "max_backoff": (_SECONDS, "the longest such pause"),
    "key": (
        {"type": "string", "minLength": 1, "maxLength": OPTION_CHARS_MAX},
        "requests of one key run key_at_once at a time",
    ),
    "key_at_once": (
        {"type": "integer", "minimum": 1, "maximum": AT_ONCE_MAX},
        "how many of one key run at once",
    ),
    "memory": (
        {"type": ["integer", "string"], "examples": [300000000, "300MB"]},
        "bytes that it is expected to need",
    ),
    "cpu": (
        {"type": "number", "minimum": 0, "maximum": CPU_MAX},
        "cores that it is expected to use",
    ),
    "after": (
        {"type": "array", "items": {"type": "string"}},
        "it waits until these have succeeded; repeat it for several",
    ),
    "delay": (_SECONDS, "before which it does not run"),
}
"""The options of a submission: schema and meaning. `Submit` has more, which are not for clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    Attributes:
        method: in capitals.
        path: with its parameter in braces.
        name: of the operation, which generated clients call it by.
        summary: what it does, in a line.
        answers: by status; what is no problem.
        problems: statuses of the problems that it has beside those of every route.
        parameters: of the query, the path and the headers.
        body: None: it has none.
        open: whether it needs no token.
        more: further members.
    """

    method: str
    path: str
    name: str
    summary: str
    answers: dict[int, Map]
    problems: tuple[int, ...] = ()
    parameters: tuple[Map, ...] = ()
    body: Map | None = None
    open: bool = False
    more: Map = field(default_factory=dict)

    def described(self) -> Map:
        """As OpenAPI has it."""
        statuses = {*self.problems, *_ALWAYS, *(() if self.open else _WITH_TOKEN)}
        known = {str(status): {"$ref": f"#/components/responses/{status}"} for status in statuses}
        told = {str(status): answer for status, answer in self.answers.items()}
        described: Map = {"operationId": self.name, "summary": self.summary, **self.more}
        if self.parameters:
            described["parameters"] = list(self.parameters)
        if self.body is not None:
            described["requestBody"] = self.body
        described["responses"] = dict(sorted({**known, **told}.items()))
        if self.open:
            described["security"] = []
        return described


def problem_response(status: int) -> Map:
    """The answer with a problem of this status."""
    response: Map = {
        "description": _PROBLEMS[status],
        "content": {PROBLEM: {"schema": reference("ForebayProblem")}},
    }
    if status in _RETRY_AFTER:
        response["headers"] = {
            "Retry-After": {
                "description": "seconds; where waiting helps",
                "schema": {"type": "integer", "minimum": 0},
            }
        }
    return response


def submission(name: str, *, doc: str, body: Map, result: Map) -> Operation:
    """The operation that submits the request of that name.

    Args:
        name: of the request.
        doc: of its function.
        body: its arguments.
        result: what it returns, by media type.
    """
    first, _, rest = doc.partition("\n")
    return Operation(
        method="POST",
        path=f"/v1/requests/{name}",
        name=f"submit_{name}",
        summary=first or f"Submit {name}",
        more={"description": doc} if rest.strip() else {},
        parameters=(*_options(), *map(_shared, ("IdempotencyKey", "Prefer", "Traceparent"))),
        body=body,
        answers={
            200: {"description": "the result, where Prefer: wait asks for it", "content": result},
            202: _accepted(),
        },
        problems=(404, 406, 409, 410, *_OF_BODY),
    )


def _accepted() -> Map:
    """The answer to a submission, and what can be asked about the request."""
    followed = {"parameters": {"id": "$response.body#/id"}}
    return {
        **_json("ForebayAccepted", "it is on disk"),
        "headers": {
            "Location": _header("where it is", {"type": "string"}),
            "Idempotency-Replayed": _header(
                "the first submission with this key is meant", {"type": "string", "const": "true"}
            ),
        },
        "links": {name: {"operationId": name, **followed} for name in _LINKED},
    }


def _options() -> list[Map]:
    return [_query(name, schema, told) for name, (schema, told) in OPTIONS.items()]


def _query(name: str, schema: Map, told: str = "") -> Map:
    described = {"description": told} if told else {}
    return {"name": name, "in": "query", "schema": schema, **described}


def _in_header(name: str, schema: Map, told: str) -> Map:
    return {"name": name, "in": "header", "schema": schema, "description": told}


def _header(told: str, schema: Map) -> Map:
    return {"description": told, "schema": schema}


def _shared(name: str) -> Map:
    return {"$ref": f"#/components/parameters/{name}"}


def _json(schema: str, told: str) -> Map:
    return {"description": told, "content": {JSON: {"schema": reference(schema)}}}


def _body(schema: str, *, required: bool = True) -> Map:
    return {"required": required, "content": {JSON: {"schema": reference(schema)}}}


def _events(told: str) -> Map:
    return {"description": told, "content": {EVENTS: {"schema": {"type": "string"}}}}


_TIME: Final = {"type": ["string", "number"], "examples": ["2026-01-31T12:00:00Z"]}
_WAIT: Final = {"type": "number", "minimum": 0, "maximum": WAIT_S_MAX}

PARAMETERS: Final[Map] = {
    "Id": {
        "name": "id",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
        "description": "an id, a unique beginning of one, or @last",
    },
    "Schedule": {
        "name": "name",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
        "description": "the name of a request that runs by the clock",
    },
    "Wait": _query("wait", _WAIT, "seconds to wait for its end"),
    "IdempotencyKey": _in_header(
        "Idempotency-Key",
        {
            "type": "string",
            "minLength": 1,
            "maxLength": KEY_CHARS_MAX,
            "pattern": "^[\\x20-\\x7e]+$",
        },
        "a second submission with it is the first one",
    ),
    "Prefer": _in_header(
        "Prefer",
        {"type": "string", "examples": ["wait=30"]},
        "wait=SECONDS: answer with the result if it ends in time",
    ),
    "Traceparent": _in_header(
        "traceparent", {"type": "string"}, "the trace that it belongs to (W3C)"
    ),
    "LastEventId": _in_header(
        "Last-Event-ID", {"type": "string"}, "go on behind the event with this number"
    ),
    "Cursor": _query("cursor", {"type": "string"}, "as Last-Event-ID"),
}
"""Parameters that several operations share."""

_ID: Final = _shared("Id")
_RESULT: Final[Map] = {
    "description": "its result",
    "content": {JSON: {}, MSGPACK: {}, BYTES: {}, NPY: {}},
}
_PART: Final[Map] = {
    "description": "the part that Range asks for, of bytes or an array",
    "content": {BYTES: {}, NPY: {}},
    "headers": {"Content-Range": _header("bytes FIRST-LAST/ALL", {"type": "string"})},
}
_FOLLOWED: Final = (_shared("LastEventId"), _shared("Cursor"))


def _of_request(below: str, name: str, summary: str, answer: Map, **more: Any) -> Operation:
    """A GET below one request."""
    problems = (*_OF_ID, *more.pop("problems", ()))
    parameters = (_ID, *more.pop("parameters", ()))
    partial = {206: more.pop("partial")} if "partial" in more else {}
    return Operation(
        method="GET",
        path=f"/v1/requests/{{id}}{below}",
        name=name,
        summary=summary,
        answers={200: answer, **partial},
        problems=problems,
        parameters=parameters,
        **more,
    )


def _read(path: str, name: str, summary: str, schema: str) -> Operation:
    """A GET that has no parameters."""
    answer = _json(schema, summary)
    return Operation(method="GET", path=path, name=name, summary=summary, answers={200: answer})


def _order(path: str, name: str, summary: str, schema: str, **more: Any) -> Operation:
    """A POST that has the server do something."""
    status = more.pop("status", 200)
    return Operation(
        method="POST",
        path=path,
        name=name,
        summary=summary,
        answers={status: _json(schema, "the server does so")},
        **more,
    )


SHARED: Final = (
    Operation(
        method="POST",
        path="/v1/requests",
        name="submit",
        summary="Submit the request that the body names",
        answers={200: {**_RESULT, "description": "as of one request"}, 202: _accepted()},
        body=_body("ForebaySubmission"),
        parameters=tuple(map(_shared, ("IdempotencyKey", "Prefer", "Traceparent"))),
        problems=(404, 406, 409, 410, *_OF_BODY),
    ),
    _order(
        "/v1/batch",
        "batch",
        "Submit many requests",
        "ForebayBatchAnswer",
        body=_body("ForebayBatch"),
        problems=_OF_BODY,
    ),
    Operation(
        method="GET",
        path="/v1/requests",
        name="list_requests",
        summary="List requests, the newest first",
        answers={200: _json("ForebayPage", "a page")},
        problems=(404, 422),
        parameters=(
            _query(
                "status",
                {"type": "array", "items": {"type": "string", "enum": STATUSES}, "minItems": 1},
            ),
            _query("name", {"type": "string"}),
            _query("submitter", {"type": "string"}),
            _query("lane", {"type": "string", "enum": list(LANES)}),
            _query("since", _TIME, "accepted at this time or later"),
            _query("until", _TIME, "accepted before this time"),
            _query("limit", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
            _query("cursor", {"type": "string"}, "next of the page before"),
        ),
    ),
    _of_request(
        "",
        "get_request",
        "Where a request stands",
        _json("ForebayRequest", "where it stands"),
        parameters=(_shared("Wait"),),
    ),
    _of_request(
        "/show", "show_request", "All that is known of it", _json("ForebayShow", "all of it")
    ),
    _of_request(
        "/why", "why_request", "Why it waits, or ended so", _json("ForebayWhy", "the reason")
    ),
    _of_request(
        "/arguments",
        "get_arguments",
        "Its arguments as they were submitted",
        _json("ForebayArguments", "its arguments"),
        problems=(406,),
    ),
    _of_request(
        "/result",
        "get_result",
        "Its result",
        _RESULT,
        parameters=(
            _shared("Wait"),
            _in_header("Range", {"type": "string", "examples": ["bytes=0-99"]}, "a part of it"),
        ),
        problems=(406, 409, 410, 416),
        partial=_PART,
    ),
    _of_request(
        "/logs",
        "get_logs",
        "Its output",
        {
            "description": "its output",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                EVENTS: {"schema": {"type": "string"}},
            },
        },
        parameters=(
            _query("offset", {"type": "integer", "minimum": 0}, "the first byte"),
            _FOLLOWED[0],
        ),
        problems=(406,),
    ),
    _of_request(
        "/events",
        "follow_request",
        "What happens to it",
        _events("events until its end"),
        parameters=_FOLLOWED,
    ),
    _order(
        "/v1/requests/{id}/cancel",
        "cancel_request",
        "Cancel it",
        "ForebayCancelled",
        status=202,
        parameters=(_ID,),
        problems=_OF_ID,
    ),
    _order(
        "/v1/requests/{id}/retry",
        "retry_request",
        "Queue it again",
        "ForebayRetried",
        status=202,
        parameters=(_ID,),
        problems=(*_OF_ID, 409),
    ),
    Operation(
        method="GET",
        path="/v1/events",
        name="follow_events",
        summary="What happens to all requests",
        answers={200: _events("events")},
        problems=(422,),
        parameters=(
            _query("names", {"type": "array", "items": {"type": "string"}}),
            _query("ids", {"type": "array", "items": {"type": "string"}}),
            _query("submitter", {"type": "string"}),
            _query("events", {"type": "array", "items": {"type": "string"}}),
            *_FOLLOWED,
        ),
    ),
    _read("/v1/workers", "list_workers", "The workers", "ForebayWorkers"),
    _read("/v1/services", "list_services", "The services that are warm", "ForebayServices"),
    _read("/v1/schedules", "list_schedules", "What runs by the clock", "ForebaySchedules"),
    _read("/v1/manifest", "get_manifest", "The requests of the application", "ForebayManifest"),
    _read("/v1/info", "get_info", "What the server is, and how", "ForebayInfo"),
    *(
        _order(
            f"/v1/schedules/{{name}}/{word}",
            f"{word}_schedule",
            f"{word.capitalize()} a schedule",
            "ForebaySchedules",
            parameters=(_shared("Schedule"),),
            problems=(404,),
        )
        for word in ("pause", "resume")
    ),
    _order(
        "/v1/prune",
        "prune",
        "Remove ended requests",
        "ForebayPruned",
        body=_body("ForebayRule", required=False),
        problems=(404, *_OF_BODY),
    ),
    _order("/v1/reload", "reload", "Load the application anew", "ForebayReloading"),
    _order(
        "/v1/stop",
        "stop",
        "End the server",
        "ForebayStopping",
        body=_body("ForebayStop", required=False),
        problems=_OF_BODY,
    ),
    Operation(
        method="GET",
        path="/openapi.json",
        name="get_description",
        summary="This description",
        answers={200: {"description": "it", "content": {JSON: {"schema": {"type": "object"}}}}},
    ),
    Operation(
        method="GET",
        path="/metrics",
        name="get_metrics",
        summary="Counters for Prometheus",
        answers={
            200: {
                "description": "Prometheus text",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            }
        },
    ),
    Operation(
        method="GET",
        path="/healthz",
        name="get_health",
        summary="Whether the gateway answers",
        answers={200: _json("ForebayHealth", "it does")},
        open=True,
    ),
    Operation(
        method="GET",
        path="/readyz",
        name="get_readiness",
        summary="Whether requests can run",
        answers={
            200: _json("ForebayReady", "they can"),
            503: _json("ForebayReady", "they cannot"),
        },
        open=True,
    ),
)
"""All routes but the submission of each request."""
