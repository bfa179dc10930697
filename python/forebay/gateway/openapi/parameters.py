"""The parameters of operations: of paths, queries and headers."""

from __future__ import annotations

from typing import Final

from forebay.executor._internal import LANES, PRIORITY_MAX, RETRIES_MAX
from forebay.gateway.openapi.answers import KEY_CHARS_MAX
from forebay.gateway.openapi.operation import Map, in_header, query

__all__ = ["OPTIONS", "PARAMETERS"]

WAIT_S_MAX: Final = 60
OPTION_CHARS_MAX: Final = 256
CPU_MAX: Final = 1024
AT_ONCE_MAX: Final = 2**31 - 1

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
    "Wait": query("wait", _WAIT, "seconds to wait for its end"),
    "IdempotencyKey": in_header(
        "Idempotency-Key",
        {
            "type": "string",
            "minLength": 1,
            "maxLength": KEY_CHARS_MAX,
            "pattern": "^[\\x20-\\x7e]+$",
        },
        "a second submission with it is the first one",
    ),
    "Prefer": in_header(
        "Prefer",
        {"type": "string", "examples": ["wait=2"]},
        "wait=SECONDS: answer with the result if it ends in time",
    ),
    "Traceparent": in_header(
        "traceparent", {"type": "string"}, "the trace that it belongs to (W3C)"
    ),
    "LastEventId": in_header(
        "Last-Event-ID", {"type": "string"}, "go on behind the event with this number"
    ),
    "Cursor": query("cursor", {"type": "string"}, "as Last-Event-ID"),
}
"""Parameters that several operations share."""
