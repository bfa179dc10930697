"""The routes of the gateway as OpenAPI describes them, but for the requests of the application.

Source: OpenAPI 3.1.0; docs/concepts/gateway.md has the table.
"""

from __future__ import annotations

from typing import Any, Final

from forebay.executor._internal import LANES
from forebay.gateway.media import BYTES, JSON, MSGPACK, NPY
from forebay.gateway.openapi.answers import STATUSES
from forebay.gateway.openapi.browsers import BROWSERS
from forebay.gateway.openapi.operation import (
    ADMIN,
    SUBMIT,
    Map,
    Operation,
    described_header,
    get,
    in_header,
    json_answer,
    json_body,
    query,
    shared,
    text_answer,
)
from forebay.gateway.openapi.parameters import OPTIONS

__all__ = ["SHARED", "submission"]

EVENTS: Final = "text/event-stream"
LINES: Final = "application/x-ndjson"
PAGE_MAX: Final = 1000

_OF_ID: Final = (404, 422)
_OF_BODY: Final = (413, 415, 422)

_LINKED: Final = (
    "get_request",
    "get_result",
    "show_request",
    "why_request",
    "get_arguments",
    "get_logs",
    "get_items",
    "cancel_request",
    "retry_request",
)
"""Operations that take the id of a submission."""


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
        role=SUBMIT,
        name=f"submit_{name}",
        summary=first or f"Submit {name}",
        more={"description": doc} if rest.strip() else {},
        parameters=(*_options(), *map(shared, ("IdempotencyKey", "Prefer", "Traceparent"))),
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
        **json_answer("ForebayAccepted", "it is on disk"),
        "headers": {
            "Location": described_header("where it is", {"type": "string"}),
            "Idempotency-Replayed": described_header(
                "the first submission with this key is meant", {"type": "string", "const": "true"}
            ),
        },
        "links": {name: {"operationId": name, **followed} for name in _LINKED},
    }


def _options() -> list[Map]:
    return [query(name, schema, told) for name, (schema, told) in OPTIONS.items()]


_TIME: Final = {"type": ["string", "number"], "examples": ["2026-01-31T12:00:00Z"]}

_ID: Final = shared("Id")
_RESULT: Final[Map] = {
    "description": "its result",
    "content": {JSON: {}, MSGPACK: {}, BYTES: {}, NPY: {}},
}
_PART: Final[Map] = {
    "description": "the part that Range asks for, of bytes or an array",
    "content": {BYTES: {}, NPY: {}},
    "headers": {"Content-Range": described_header("bytes FIRST-LAST/ALL", {"type": "string"})},
}
_FOLLOWED: Final = (shared("LastEventId"), shared("Cursor"))


def _of_request(below: str, name: str, summary: str, answer: Map, **more: Any) -> Operation:
    """A GET below one request."""
    problems = (*_OF_ID, *more.pop("problems", ()))
    parameters = (_ID, *more.pop("parameters", ()))
    partial = {206: more.pop("partial")} if "partial" in more else {}
    return get(
        f"/v1/requests/{{id}}{below}",
        name,
        summary,
        {200: answer, **partial},
        problems=problems,
        parameters=parameters,
        **more,
    )


def _read(path: str, name: str, summary: str, schema: str) -> Operation:
    """A GET that has no parameters."""
    answer = json_answer(schema, summary)
    return get(path, name, summary, {200: answer})


def _order(path: str, name: str, summary: str, schema: str, **more: Any) -> Operation:
    """A POST that has the server do something."""
    status = more.pop("status", 200)
    return Operation(
        method="POST",
        path=path,
        name=name,
        summary=summary,
        answers={status: json_answer(schema, "the server does so")},
        **more,
    )


SHARED: Final = (
    Operation(
        method="POST",
        path="/v1/requests",
        role=SUBMIT,
        name="submit",
        summary="Submit the request that the body names",
        answers={200: {**_RESULT, "description": "as of one request"}, 202: _accepted()},
        body=json_body("ForebaySubmission"),
        parameters=tuple(map(shared, ("IdempotencyKey", "Prefer", "Traceparent"))),
        problems=(404, 406, 409, 410, *_OF_BODY),
    ),
    _order(
        "/v1/batch",
        "batch",
        "Submit many requests",
        "ForebayBatchAnswer",
        role=SUBMIT,
        body=json_body("ForebayBatch"),
        problems=_OF_BODY,
    ),
    get(
        "/v1/requests",
        "list_requests",
        "List requests, the newest first",
        {200: json_answer("ForebayPage", "a page")},
        problems=(404, 422),
        parameters=(
            query(
                "status",
                {"type": "array", "items": {"type": "string", "enum": STATUSES}, "minItems": 1},
            ),
            query("name", {"type": "string"}),
            query("submitter", {"type": "string"}),
            query("lane", {"type": "string", "enum": list(LANES)}),
            query("since", _TIME, "accepted at this time or later"),
            query("until", _TIME, "accepted before this time"),
            query("parent", {"type": "string"}, "submitted by the request of this id"),
            query("limit", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
            query("cursor", {"type": "string"}, "next of the page before"),
        ),
    ),
    _of_request(
        "",
        "get_request",
        "Where a request stands",
        json_answer("ForebayRequest", "where it stands"),
        parameters=(shared("Wait"),),
    ),
    _of_request(
        "/show", "show_request", "All that is known of it", json_answer("ForebayShow", "all of it")
    ),
    _of_request(
        "/why", "why_request", "Why it waits, or ended so", json_answer("ForebayWhy", "the reason")
    ),
    _of_request(
        "/arguments",
        "get_arguments",
        "Its arguments as they were submitted",
        json_answer("ForebayArguments", "its arguments"),
        problems=(406,),
    ),
    _of_request(
        "/result",
        "get_result",
        "Its result",
        _RESULT,
        parameters=(
            shared("Wait"),
            in_header("Range", {"type": "string", "examples": ["bytes=0-99"]}, "a part of it"),
        ),
        problems=(406, 409, 410, 416),
        partial=_PART,
    ),
    _of_request(
        "/logs",
        "get_logs",
        "Its output",
        text_answer("its output", "text/plain", EVENTS),
        parameters=(
            query("offset", {"type": "integer", "minimum": 0}, "the first byte"),
            _FOLLOWED[0],
        ),
        problems=(406,),
    ),
    _of_request(
        "/items",
        "get_items",
        "What it has yielded, where it is a generator",
        text_answer("items, an object a line", LINES, EVENTS),
        parameters=(
            query("after", {"type": "integer", "minimum": 0}, "the number of the last one had"),
            query("epoch", {"type": "integer", "minimum": 1}, "whose number that is"),
            query(
                "form",
                {"type": "string", "enum": ["json", "msgpack"]},
                "in which an item is told: as JSON, or as MessagePack in base64",
            ),
            query("max_bytes", {"type": "integer", "minimum": 0}, "a larger item: its size alone"),
            query("limit", {"type": "integer", "minimum": 1}, "so many lines at most"),
            query(
                "follow",
                {"type": "string", "enum": ["true", "false"]},
                "false: the events of what there is, and no more",
            ),
            in_header(
                "Last-Event-ID",
                {"type": "string", "examples": ["1-57"]},
                "epoch and number of the last one had",
            ),
        ),
        problems=(406,),
    ),
    _of_request(
        "/events",
        "follow_request",
        "What happens to it",
        text_answer("events until its end", EVENTS),
        parameters=_FOLLOWED,
    ),
    _order(
        "/v1/requests/{id}/cancel",
        "cancel_request",
        "Cancel it",
        "ForebayCancelled",
        role=SUBMIT,
        status=202,
        parameters=(_ID,),
        problems=_OF_ID,
    ),
    _order(
        "/v1/requests/{id}/retry",
        "retry_request",
        "Queue it again",
        "ForebayRetried",
        role=SUBMIT,
        status=202,
        parameters=(_ID,),
        problems=(*_OF_ID, 409),
    ),
    get(
        "/v1/events",
        "follow_events",
        "What happens to all requests",
        {200: text_answer("events", EVENTS)},
        problems=_OF_ID,
        parameters=(
            query("names", {"type": "array", "items": {"type": "string"}}),
            query("ids", {"type": "array", "items": {"type": "string"}}),
            query("submitter", {"type": "string"}),
            query("events", {"type": "array", "items": {"type": "string"}}),
            *_FOLLOWED,
        ),
    ),
    get(
        "/v1/overview",
        "get_overview",
        "The figures of the dashboard, now and in the last hour",
        {200: json_answer("ForebayOverview", "the figures")},
        problems=(422,),
        parameters=(
            query(
                "since",
                {"type": "integer", "minimum": 0, "maximum": 2**53},
                "history.next of the answer before: the history begins there",
            ),
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
            role=ADMIN,
            parameters=(shared("Schedule"),),
            problems=(404,),
        )
        for word in ("pause", "resume")
    ),
    _order(
        "/v1/prune",
        "prune",
        "Remove ended requests",
        "ForebayPruned",
        role=ADMIN,
        body=json_body("ForebayRule", required=False),
        problems=(404, *_OF_BODY),
    ),
    _order(
        "/v1/cordon",
        "cordon",
        "Take no submissions, or again",
        "ForebayCordoned",
        role=ADMIN,
        body=json_body("ForebayCordon", required=False),
        problems=_OF_BODY,
    ),
    _order("/v1/reload", "reload", "Load the application anew", "ForebayReloading", role=ADMIN),
    _order(
        "/v1/stop",
        "stop",
        "End the server",
        "ForebayStopping",
        role=ADMIN,
        body=json_body("ForebayStop", required=False),
        problems=_OF_BODY,
    ),
    get(
        "/openapi.json",
        "get_description",
        "This description",
        {200: {"description": "it", "content": {JSON: {"schema": {"type": "object"}}}}},
    ),
    get(
        "/metrics",
        "get_metrics",
        "Counters for Prometheus",
        {200: text_answer("Prometheus text", "text/plain", "application/openmetrics-text")},
    ),
    *BROWSERS,
    get(
        "/healthz",
        "get_health",
        "Whether the gateway answers",
        {200: json_answer("ForebayHealth", "it does")},
        role=None,
    ),
    get(
        "/readyz",
        "get_readiness",
        "Whether requests can run",
        {
            200: json_answer("ForebayReady", "they can"),
            503: json_answer("ForebayReady", "they cannot"),
        },
        role=None,
    ),
)
"""All routes but the submission of each request."""
