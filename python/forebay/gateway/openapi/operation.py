"""One operation of the description, and the parts that operations are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from forebay.gateway.media import JSON
from forebay.gateway.openapi.answers import reference

__all__ = [
    "ADMIN",
    "PROBLEM_STATUSES",
    "READ",
    "SUBMIT",
    "Map",
    "Operation",
    "described_header",
    "get",
    "in_header",
    "json_answer",
    "json_body",
    "problem_response",
    "query",
    "shared",
    "text_answer",
]

Map = dict[str, Any]

PROBLEM: Final = "application/problem+json"
READ: Final = "read"
SUBMIT: Final = "submit"
ADMIN: Final = "admin"
"""Roles of tokens."""

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
_RETRY_AFTER: Final = (409, 429, 503)


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
        role: what a token must have; None: no token is needed.
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
    role: str | None = READ
    more: Map = field(default_factory=dict)

    def described(self) -> Map:
        """As OpenAPI has it."""
        statuses = {*self.problems, *_ALWAYS, *(() if self.role is None else _WITH_TOKEN)}
        known = {str(status): {"$ref": f"#/components/responses/{status}"} for status in statuses}
        told = {str(status): answer for status, answer in self.answers.items()}
        described: Map = {"operationId": self.name, "summary": self.summary, **self.more}
        if self.parameters:
            described["parameters"] = list(self.parameters)
        if self.body is not None:
            described["requestBody"] = self.body
        described["responses"] = dict(sorted({**known, **told}.items()))
        described["security"] = [] if self.role is None else [{"bearer": [self.role]}]
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


def query(name: str, schema: Map, told: str = "") -> Map:
    """A parameter of the query."""
    described = {"description": told} if told else {}
    return {"name": name, "in": "query", "schema": schema, **described}


def in_header(name: str, schema: Map, told: str) -> Map:
    """A parameter in a header."""
    return {"name": name, "in": "header", "schema": schema, "description": told}


def described_header(told: str, schema: Map) -> Map:
    """A header of an answer."""
    return {"description": told, "schema": schema}


def shared(name: str) -> Map:
    """A reference to a parameter that several operations share."""
    return {"$ref": f"#/components/parameters/{name}"}


def json_answer(schema: str, told: str) -> Map:
    """An answer in JSON, of a schema of the description."""
    return {"description": told, "content": {JSON: {"schema": reference(schema)}}}


def text_answer(told: str, *media: str) -> Map:
    """An answer in text of one of these types."""
    return {
        "description": told,
        "content": {kind: {"schema": {"type": "string"}} for kind in media},
    }


def get(path: str, name: str, summary: str, answers: dict[int, Map], **more: Any) -> Operation:
    """A GET; `more` as of `Operation`."""
    return Operation(method="GET", path=path, name=name, summary=summary, answers=answers, **more)


def json_body(schema: str, *, required: bool = True) -> Map:
    """A body in JSON, of a schema of the description."""
    return {"required": required, "content": {JSON: {"schema": reference(schema)}}}
