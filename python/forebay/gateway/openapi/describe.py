"""The description of the gateway in OpenAPI 3.1, made from the manifest of the application.

Each request of the application is an operation of its own, with the schema of its arguments and of
its result; the routes that all applications share are those of `operations`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import json

from forebay.gateway.definitions import REFERENCE, leading_to
from forebay.gateway.media import BYTES, JSON, MSGPACK, NPY
from forebay.gateway.openapi.answers import ARRAY, SCHEMAS, reference
from forebay.gateway.openapi.operation import PROBLEM_STATUSES, Operation, problem_response
from forebay.gateway.openapi.operations import SHARED, submission
from forebay.gateway.openapi.parameters import PARAMETERS

__all__ = ["describe"]

VERSION: Final = "3.1.0"
KEPT: Final = 4
"""Descriptions that are kept; an application that is reloaded has another one."""


def describe(manifest: Mapping[str, Any], url: str) -> bytes:
    """The description, as JSON; the same for the same code.

    Args:
        manifest: of the server.
        url: of the gateway.

    Cost: milliseconds for each code, once.
    """
    return _described(_ByCode(manifest), url)


class _ByCode:
    """A manifest, which is the same where its code is."""

    __slots__ = ("key", "manifest")

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        self.manifest = manifest
        self.key = manifest.get("target"), manifest.get("code")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByCode) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@functools.lru_cache(maxsize=KEPT)
def _described(known: _ByCode, url: str) -> bytes:
    manifest = known.manifest
    schemas = _Schemas(manifest.get("definitions") or {})
    requests = manifest.get("requests") or ()
    paths: dict[str, dict[str, Any]] = {}
    for operation in [*(_request(one, schemas) for one in requests), *SHARED]:
        paths.setdefault(operation.path, {})[operation.method.lower()] = operation.described()
    described = {
        "openapi": VERSION,
        "info": {
            "title": manifest.get("app") or "Forebay",
            "version": str(manifest.get("code") or "0"),
            "description": "Requests that are kept until they have ended.",
        },
        "servers": [{"url": url}],
        "paths": paths,
        "components": {
            "schemas": {**SCHEMAS, **schemas.own},
            "parameters": PARAMETERS,
            "responses": {str(status): problem_response(status) for status in PROBLEM_STATUSES},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }
    return json.encode(described)


def _request(request: Mapping[str, Any], schemas: _Schemas) -> Operation:
    """The operation that submits one request of the application."""
    parameters = request["parameters"]
    body = {
        "type": "object",
        "properties": {one["name"]: _parameter(one, schemas) for one in parameters},
        "required": [one["name"] for one in parameters if one["required"]],
        "additionalProperties": False,
    }
    arguments = schemas.added(f"{request['name']}_arguments", body)
    result = schemas.of_result(request.get("result") or {})
    return submission(
        request["name"],
        doc=(request.get("doc") or "").strip(),
        body={
            "required": bool(body["required"]),
            "content": {form: {"schema": arguments} for form in (JSON, MSGPACK)},
        },
        result={JSON: {"schema": result}, MSGPACK: {}, BYTES: {}, NPY: {}},
    )


def _parameter(parameter: Mapping[str, Any], schemas: _Schemas) -> Any:
    schema = schemas.moved(parameter.get("schema") or {})
    more: dict[str, Any] = {}
    if parameter.get("doc"):
        more["description"] = parameter["doc"]
    if "default" in parameter:
        more["default"] = parameter["default"]
    if parameter.get("secret"):
        more["writeOnly"] = True
    return {**schema, **more} if isinstance(schema, dict) else schema


class _Schemas:
    """The definitions of a manifest, moved to where a description has them.

    One that is called as one of ours gets another name. Of one that has numbers there are two: in a
    result a number that is not finite is null, as JSON has no form for it.
    """

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._taken = {*SCHEMAS, *definitions}
        self._names = {name: self._free(name) if name in SCHEMAS else name for name in definitions}
        self._of_results: dict[str, str] = {}
        self._numeric = leading_to(definitions, _is_number)
        self.own = {
            own: _called(own, self.moved(definitions[name])) for name, own in self._names.items()
        }

    def moved(self, schema: Any) -> Any:
        """A schema with references into the description."""
        return self._made(schema, self._argument_name)

    def added(self, name: str, schema: dict[str, Any]) -> Any:
        """A reference to a schema of ours, under that name where it is free."""
        name = self._free(name)
        self.own[name] = {**schema, "title": name}
        return reference(name)

    def of_result(self, schema: Any) -> Any:
        """The schema of a result."""
        return self._made(schema, self._result_name)

    def _made(self, schema: Any, name_of: Callable[[str], str]) -> Any:
        if isinstance(schema, list):
            return [self._made(part, name_of) for part in schema]
        if isinstance(schema, str) and schema.startswith(REFERENCE):
            pointer: str = reference(name_of(schema.removeprefix(REFERENCE)))["$ref"]
            return pointer
        if not isinstance(schema, dict):
            return schema
        if schema.get("x-forebay") == "array":
            others = {name: part for name, part in schema.items() if name != "x-forebay"}
            return {**reference(ARRAY), **others}
        made = {name: self._made(part, name_of) for name, part in schema.items()}
        if made.get("items") is False and "maxItems" in made:
            del made["items"]  # it says the same, and generators of clients cannot read it
        if name_of == self._result_name and _is_number(schema):
            made["type"] = ["number", "null"]
        return made

    def _argument_name(self, name: str) -> str:
        return self._names.get(name, name)

    def _result_name(self, name: str) -> str:
        if name not in self._numeric:
            return self._argument_name(name)
        if name not in self._of_results:
            self._of_results[name] = made = self._free(f"{name}Result")
            self.own[made] = _called(made, self.of_result(self._definitions[name]))
        return self._of_results[name]

    def _free(self, name: str) -> str:
        while name in self._taken:
            name = f"{name}_"
        self._taken.add(name)
        return name


def _called(name: str, schema: Any) -> Any:
    """A definition under its name, which generators of clients take from its title."""
    return {**schema, "title": name} if isinstance(schema, dict) and "title" in schema else schema


def _is_number(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "number"
