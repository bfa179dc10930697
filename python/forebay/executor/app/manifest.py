"""The description of an application's requests as JSON, for servers, clients and command lines."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from forebay.errors import ConfigError
from forebay.executor.app.docs import docs_of
from forebay.executor.app.secret import is_secret
from forebay.executor.app.sources import code_of, sources_of
from forebay.executor.app.types import is_array, shown

if TYPE_CHECKING:
    from forebay.executor.app.application import App
    from forebay.executor.app.definition import Definition, Parameter

SCHEMA = 1
REFERENCE = "#/definitions/{name}"


def manifest_of(app: App | None, file: str | None, *, target: str) -> dict[str, Any]:
    """Describe an application.

    Args:
        app: None: no requests, as for workers of `forebay.Executor`.
        file: the source file with the App; None: it is in none.
        target: as the user wrote it.

    Raises:
        ConfigError: an annotation cannot be read, or has no schema.
    """
    sources = [] if file is None else sources_of(file)
    definitions = [] if app is None else list(app.requests.values())
    schemas, components = _schemas(definitions)
    return {
        "schema": SCHEMA,
        "app": "" if app is None else app.name,
        "target": target,
        "attribute": _attribute_of(app),
        "submitter": None if app is None else app.submitter,
        "code": code_of(sources),
        "sources": sources,
        "requests": [_request(definition, schemas) for definition in definitions],
        "definitions": components,
        "services": [
            {"name": service.name, "min_idle": service.min_idle, "max_size": service.max_size}
            for service in (() if app is None else app.services)
        ],
    }


def _attribute_of(app: App | None) -> str | None:
    """The name of the application in its module; None if that is not known."""
    target = None if app is None else app.target
    return None if target is None else target.rpartition(":")[2]


def to_json(manifest: Mapping[str, Any]) -> bytes:
    """The manifest in the form in which it is sent and stored."""
    return json.dumps(manifest, ensure_ascii=False, separators=(",", ":")).encode()


Schemas = dict[tuple[str, str], dict[str, Any]]
"""By request and parameter; a result by "return", an item by "yield"."""


def _schemas(definitions: list[Definition]) -> tuple[Schemas, dict[str, Any]]:
    """The schemas of all requests, with the definitions that they share."""
    from msgspec import json as msgspec_json

    wanted: dict[tuple[str, str], Any] = {}
    for definition in definitions:
        for field in definition.fields:
            wanted[definition.name, field.name] = field.annotation
        wanted[definition.name, "return"] = definition.result
        if definition.gives_items:
            wanted[definition.name, "yield"] = definition.item
    try:
        made, components = msgspec_json.schema_components(
            wanted.values(), schema_hook=_schema_of_array, ref_template=REFERENCE
        )
    except (TypeError, NotImplementedError) as error:
        raise ConfigError(f"an annotation has no schema: {error}") from error
    marked = {key: _marked(schema) for key, schema in zip(wanted, made, strict=True)}
    return marked, {name: _marked(schema) for name, schema in components.items()}


def _schema_of_array(annotation: Any) -> dict[str, Any]:
    if is_array(annotation):
        return {"x-forebay": "array"}
    raise NotImplementedError(shown(annotation))


def _marked(schema: Any) -> Any:
    """Mark the places where values are bytes, for which JSON has no form but text."""
    if isinstance(schema, list):
        return [_marked(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    marked = {key: _marked(part) for key, part in schema.items()}
    if schema.get("type") == "string" and schema.get("contentEncoding") == "base64":
        marked["x-forebay"] = "bytes"
    return marked


def _request(definition: Definition, schemas: Schemas) -> dict[str, Any]:
    docs = docs_of(definition.function)
    result = schemas[definition.name, "return"]
    return {
        "name": definition.name,
        "doc": docs.text,
        "parameters": [
            _parameter(field, docs.parameters.get(field.name, ""), schemas, definition.name)
            for field in definition.fields
        ],
        "result": result or None,
        "items": schemas.get((definition.name, "yield")),
        **asdict(definition.options),
    }


def _parameter(field: Parameter, doc: str, schemas: Schemas, request: str) -> dict[str, Any]:
    told = {
        "name": field.name,
        "doc": doc,
        "required": field.required,
        "annotation": ""
        if field.annotation is inspect.Parameter.empty
        else shown(field.annotation),
        "schema": schemas[request, field.name],
    }
    if is_secret(field.annotation):
        told["secret"] = True
    elif not field.required:
        told.update(_default(field.default))
    return told


def _default(value: Any) -> dict[str, Any]:
    """The default, if JSON has a form for it."""
    import msgspec

    if isinstance(value, bytes | bytearray | memoryview):
        return {}
    try:
        plain = msgspec.to_builtins(value, str_keys=True)
        return {"default": json.loads(json.dumps(plain, allow_nan=False))}
    except (TypeError, ValueError):
        return {}
