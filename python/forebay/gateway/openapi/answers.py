"""The schemas of what the gateway answers, and of the bodies that all applications share.

They are open: a later version may add fields. Source: JSON Schema 2020-12.
"""

from __future__ import annotations

from typing import Any, Final

from forebay.gateway.arrays import DIMENSIONS_MAX, DTYPE_PATTERN
from forebay.gateway.dashboard.history import FIGURES
from forebay.gateway.problems import TITLES
from forebay.gateway.token import Role

__all__ = ["ARRAY", "SCHEMAS", "reference"]

Schema = dict[str, Any]

STATUSES: Final = ["queued", "running", "succeeded", "failed", "cancelled", "dead"]
LANES: Final = ["short", "long", "async"]
ROLES: Final = [role.word for role in Role]
BATCH_MAX: Final = 1000
KEY_CHARS_MAX: Final = 255
REASON_CHARS_MAX: Final = 500

ARRAY: Final = "ForebayArray"
"""The schema that stands for `"x-forebay": "array"`."""


def reference(name: str) -> Schema:
    """To a schema of the description."""
    return {"$ref": f"#/components/schemas/{name}"}


def _map(properties: dict[str, Schema], optional: frozenset[str] = frozenset()) -> Schema:
    """A map whose fields are there, but for some."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


_TEXT: Final[Schema] = {"type": "string"}
_WHOLE: Final[Schema] = {"type": "integer"}
_NUMBER: Final[Schema] = {"type": "number"}
_FLAG: Final[Schema] = {"type": "boolean"}
_ANY_MAP: Final[Schema] = {"type": "object"}
_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_FORM: Final[Schema] = {"type": "integer", "const": 1}
"""The form of an answer, which a client checks."""
_ID: Final[Schema] = {"type": "string", "description": "12 characters, which sort by time"}
_STATUS: Final[Schema] = {"type": "string", "enum": STATUSES}
_LANE: Final[Schema] = {"type": "string", "enum": LANES}

_PROBLEM: Final = _map(
    {
        "type": {"type": "string", "description": "/problems/ and the code"},
        "title": _TEXT,
        "status": _WHOLE,
        "detail": {"type": "string", "description": "the message, and what to do"},
        "code": {"type": "string", "enum": sorted(TITLES)},
        "message": _TEXT,
        "object": {"type": "string", "description": "what it is about, such as arguments.image"},
        "limit": {
            "type": ["string", "number", "null"],
            "description": "what is allowed, or the limit's name or value",
        },
        "value": {"type": ["string", "number", "null"], "description": "what was asked for"},
        "next": {"type": "string", "description": "what to do"},
        "delivered": {
            "type": "string",
            "enum": ["no", "maybe"],
            "description": "whether the server may have had it",
        },
        "failure": _ANY_MAP,
    },
    frozenset({"delivered", "failure"}),
)

_REQUEST: Final = {
    "schema": _FORM,
    "id": _ID,
    "name": _TEXT,
    "status": _STATUS,
    "lane": _LANE,
    "submitter": _TEXT,
    "priority": _WHOLE,
    "attempts": _WHOLE,
    "deaths": _WHOLE,
    "retried": _WHOLE,
    "code": _TEXT,
    "accepted_at": _TIME,
    "started_at": _or_null(_TIME),
    "ended_at": _or_null(_TIME),
    "wake_at": _or_null(_TIME),
    "queue_s": _NUMBER,
    "run_s": _or_null(_NUMBER),
    "peak_bytes": _or_null(_WHOLE),
    "result_bytes": _or_null(_WHOLE),
    "yielded": _or_null(_WHOLE),
    "failure": _or_null(_ANY_MAP),
    "reason": _or_null(_TEXT),
}
_OPTIONAL: Final = frozenset(_REQUEST) - {"id", "name", "status"}
"""What `ps` shows may change; what it is and where it stands does not."""

_WHY: Final = {
    "schema": _FORM,
    "id": _ID,
    "status": _STATUS,
    "reason": _or_null(_TEXT),
    "next": _or_null(_TEXT),
    "decisions": _list(_map({"at": _or_null(_TIME), "text": _TEXT})),
}

_OPTIONS: Final[Schema] = {
    "type": "object",
    "description": "as the query parameters of the submission of one request",
}
_SUBMISSION: Final = _map(
    {
        "name": _TEXT,
        "arguments": {"type": "object", "description": "by the names of the parameters"},
        "options": _OPTIONS,
        "idempotency_key": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX},
    },
    frozenset({"arguments", "options", "idempotency_key"}),
)

_WORKER: Final = {
    "slot": _WHOLE,
    "lane": _LANE,
    "state": _TEXT,
    "running": _list(_TEXT),
    "age_ms": _WHOLE,
    "pid": _or_null(_WHOLE),
}
_SCHEDULE: Final = {
    "name": _TEXT,
    "cron": _TEXT,
    "next_at": _or_null(_TIME),
    "fired_at": _or_null(_TIME),
    "paused": _FLAG,
}


def _listing(name: str, item: Schema) -> Schema:
    return _map({"schema": _FORM, name: _list(item)})


SCHEMAS: Final[dict[str, Schema]] = {
    "ForebayProblem": _PROBLEM,
    ARRAY: {
        "type": "object",
        "description": "an array, as numpy has it; data is its bytes in C order",
        "properties": {
            "dtype": {"type": "string", "pattern": DTYPE_PATTERN, "examples": ["<f8"]},
            "shape": {
                "type": "array",
                "items": {"type": "integer", "minimum": 0},
                "maxItems": DIMENSIONS_MAX,
            },
            "data": {"type": "string", "contentEncoding": "base64"},
        },
        "required": ["dtype", "shape", "data"],
        "additionalProperties": False,
        "examples": [{"dtype": "<f8", "shape": [1], "data": "AAAAAAAA8D8="}],
        "x-forebay": "array",
    },
    "ForebayAccepted": _map({"schema": _FORM, "id": _ID, "name": _TEXT, "status": _STATUS}),
    "ForebaySubmission": _SUBMISSION,
    "ForebayBatch": _map(
        {"requests": {**_list(reference("ForebaySubmission")), "maxItems": BATCH_MAX}}
    ),
    "ForebayBatchAnswer": _listing(
        "requests",
        {
            "description": "either the id, or the problem",
            **_map({"id": _ID, "error": reference("ForebayProblem")}, frozenset({"id", "error"})),
        },
    ),
    "ForebayRequest": _map(_REQUEST, _OPTIONAL),
    "ForebayPage": _map(
        {
            "schema": _FORM,
            "requests": _list(reference("ForebayRequest")),
            "next": {
                "type": ["string", "null"],
                "description": "the cursor of the page behind this one",
            },
        }
    ),
    "ForebayShow": _map(
        {
            **_REQUEST,
            "arguments": _ANY_MAP,
            "options": _ANY_MAP,
            "parent": _or_null(_ID),
            "traceparent": _or_null(_TEXT),
            "items": _or_null(_map({"epoch": _WHOLE, "count": _WHOLE, "bytes": _WHOLE})),
            "retention_s": _or_null(_NUMBER),
            "runs": _list(_ANY_MAP),
            "next": _or_null(_TEXT),
            "decisions": _WHY["decisions"],
        },
        _OPTIONAL | {"next", "decisions", "items", "parent", "retention_s", "traceparent"},
    ),
    "ForebayWhy": _map(_WHY),
    "ForebayArguments": _map(
        {"schema": _FORM, "id": _ID, "name": _TEXT, "arguments": _ANY_MAP},
    ),
    "ForebayCancelled": _map(
        {
            "schema": _FORM,
            "id": _ID,
            "cancelled": {"type": "string", "enum": ["now", "asked", "ended"]},
        },
        frozenset({"id"}),
    ),
    "ForebayRetried": _map({"schema": _FORM, "id": _ID, "status": _STATUS}, frozenset({"status"})),
    "ForebayWorkers": _listing("workers", _map(_WORKER)),
    "ForebayServices": _listing("services", _ANY_MAP),
    "ForebaySchedules": _listing("schedules", _map(_SCHEDULE)),
    "ForebayManifest": _map(
        {
            "schema": _FORM,
            "app": _TEXT,
            "code": _TEXT,
            "requests": _list(_ANY_MAP),
            "definitions": _ANY_MAP,
        }
    ),
    "ForebayInfo": _map({"schema": _FORM, "version": _or_null(_TEXT), "figures": _ANY_MAP}),
    "ForebayOverview": _map(
        {
            "schema": _FORM,
            "at": _TIME,
            "info": _ANY_MAP,
            "figures": _ANY_MAP,
            "waits": _ANY_MAP,
            "workers": _list(_map(_WORKER)),
            "services": _list(_ANY_MAP),
            "me": _map({"name": _TEXT, "role": {"type": "string", "enum": ROLES}}),
            "history": _map(
                {
                    "every_s": _WHOLE,
                    "first": _WHOLE,
                    "next": {"type": "integer", "description": "since of the next question"},
                    "until": _or_null(_TIME),
                    **{name: _list(_or_null(_WHOLE)) for name in FIGURES},
                    "workers": _ANY_MAP,
                }
            ),
        }
    ),
    "ForebayLogin": {**_map({"token": _TEXT}), "additionalProperties": False},
    "ForebayRule": {
        **_map(
            {
                "older_than": {"type": ["string", "number", "null"]},
                "status": _list({"type": "string", "enum": STATUSES[2:]}),
                "ids": _list(_TEXT),
                "dry_run": _FLAG,
            },
            frozenset({"older_than", "status", "ids", "dry_run"}),
        ),
        "additionalProperties": False,
    },
    "ForebayPruned": _map({"schema": _FORM, "pruned": _WHOLE, "bytes": _WHOLE}),
    "ForebayCordon": {
        **_map(
            {
                "undo": _FLAG,
                "reason": {"type": "string", "maxLength": REASON_CHARS_MAX},
                "dispatches": _FLAG,
            },
            frozenset({"undo", "reason", "dispatches"}),
        ),
        "additionalProperties": False,
    },
    "ForebayCordoned": _map(
        {
            "schema": _FORM,
            "cordon": {
                **_map({"by": _TEXT, "reason": _TEXT, "at": _TIME, "dispatches": _FLAG}),
                "type": ["object", "null"],
            },
            "undone": _FLAG,
        },
        frozenset({"undone"}),
    ),
    "ForebayReloading": _map({"schema": _FORM, "reloading": _FLAG}),
    "ForebayStop": {
        **_map({"grace": {"type": ["string", "number", "null"]}}, frozenset({"grace"})),
        "additionalProperties": False,
    },
    "ForebayStopping": _map({"schema": _FORM, "stopping": _FLAG}),
    "ForebayHealth": _map({"healthy": _FLAG}),
    "ForebayReady": _map({"ready": _FLAG}),
}
"""By the names under which the description has them."""
