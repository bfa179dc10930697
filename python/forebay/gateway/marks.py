"""Where the arguments of a request have bytes and arrays, by the marks of its schemas.

A schema becomes a tree of nodes that lead to the marks, `"x-forebay": "bytes"` and `"array"`; what
leads to none has no node. Sources: JSON Schema 2020-12, as `msgspec.json.schema` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from msgspec import msgpack

from forebay.executor._internal import ARRAY
from forebay.gateway.definitions import REFERENCE, leading_to
from forebay.gateway.msgpack_heads import array_extension_head, array_head, map_head
from forebay.gateway.reading import Body, Buffer, Format, array_form

__all__ = ["Node", "Nodes"]

Schema = Any
"""A map, or a boolean."""

MARK: Final = "x-forebay"
_CHOICES: Final = ("anyOf", "oneOf", "allOf")

_encode = msgpack.Encoder().encode
_decode = msgpack.Decoder().decode


class Node(Protocol):
    """A place of a schema at which, or below which, is a mark."""

    def takes(self, format_: Format, value: Body, path: str) -> bool:
        """Whether a value of a union may be this option's."""

    def put(self, format_: Format, value: Body, path: str, out: list[Buffer]) -> None:
        """Add a value to `out`, in MessagePack.

        Raises:
            Problem: it is not in the form that its mark asks for.
        """


class _Bytes:
    def takes(self, format_: Format, value: Body, path: str) -> bool:
        return format_.kind(value) in ("text", "bytes")

    def put(self, format_: Format, value: Body, path: str, out: list[Buffer]) -> None:
        format_.put_bytes(value, path, out)


class _Array:
    def takes(self, format_: Format, value: Body, path: str) -> bool:
        return format_.kind(value) in ("map", "extension")

    def put(self, format_: Format, value: Body, path: str, out: list[Buffer]) -> None:
        array = array_form(format_, value, path)
        if array is None:
            out.append(format_.plain(value, path))
            return
        size = len(array.content)
        out += array_extension_head(ARRAY, array.dtype, array.shape, size), array.content


class _Map:
    """Of fields with schemas of their own, and others that share one."""

    def __init__(self, fields: dict[str, Node], rest: Node | None) -> None:
        self._fields = fields
        self._rest = rest

    def takes(self, format_: Format, value: Body, path: str) -> bool:
        return format_.kind(value) == "map"

    def put(self, format_: Format, value: Body, path: str, out: list[Buffer]) -> None:
        if format_.kind(value) != "map":
            out.append(format_.plain(value, path))  # the server tells what it should be
            return
        members = format_.members(value, path)
        out.append(map_head(len(members)))
        for key, one in members.items():
            out.append(_encode(key))
            put(self._fields.get(key, self._rest), format_, one, f"{path}.{key}", out)


class _Tagged:
    """Of maps, of which a field tells which schema it has."""

    def __init__(self, tag: str, options: dict[str, Node | None]) -> None:
        self._tag = tag
        self._options = options

    def takes(self, format_: Format, value: Body, path: str) -> bool:
        return format_.kind(value) == "map"

    def put(self, format_: Format, value: Body, path: str, out: list[Buffer]) -> None:
        found = format_.members(value, path).get(self._tag)
        tag = "" if found is None else str(_decode(format_.plain(found, f"{path}.{self._tag}")))
        put(self._options.get(tag), format_, value, path, out)


class _List:
    """Of elements with schemas of their own, and others that share one."""

    def __init__(
        self, first: list[Node | None], rest: Node | None, tags: frozenset[bytes] | None
    ) -> None:
        self._first = first
        self._rest = rest
        self._tags = tags

    def takes(self, format_: Format, value: Body, path: str) -> bool:
        if format_.kind(value) != "list" or self._tags is None:
            return format_.kind(value) == "list"
        elements = format_.elements(value, path)
        return bool(elements) and bytes(format_.plain(elements[0], f"{path}[0]")) in self._tags

    def put(self, format_: Format, value: Body, path: str, out: list[Buffer]) -> None:
        if format_.kind(value) != "list":
            out.append(format_.plain(value, path))
            return
        elements = format_.elements(value, path)
        out.append(array_head(len(elements)))
        for number, one in enumerate(elements):
            node = self._first[number] if number < len(self._first) else self._rest
            put(node, format_, one, f"{path}[{number}]", out)


class _Union:
    """Of options, of which the first that takes a value has it; else it stays as it is."""

    def __init__(self, options: list[Node]) -> None:
        self._options = options

    def takes(self, format_: Format, value: Body, path: str) -> bool:
        return any(option.takes(format_, value, path) for option in self._options)

    def put(self, format_: Format, value: Body, path: str, out: list[Buffer]) -> None:
        found = (option for option in self._options if option.takes(format_, value, path))
        put(next(found, None), format_, value, path, out)


class _Reference:
    """To a definition, which may contain itself."""

    def __init__(self, nodes: Nodes, name: str) -> None:
        self._nodes = nodes
        self._name = name

    def takes(self, format_: Format, value: Body, path: str) -> bool:
        node = self._nodes.definition(self._name)
        return node is not None and node.takes(format_, value, path)

    def put(self, format_: Format, value: Body, path: str, out: list[Buffer]) -> None:
        put(self._nodes.definition(self._name), format_, value, path, out)


def put(node: Node | None, format_: Format, value: Body, path: str, out: list[Buffer]) -> None:
    """Add a value to `out`, in MessagePack; without a node it stays as it is."""
    if node is None:
        out.append(format_.plain(value, path))
    else:
        node.put(format_, value, path, out)


class Nodes:
    """Makes the nodes of schemas that share definitions.

    Args:
        definitions: of the manifest, by name.
    """

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions
        self._marked = leading_to(definitions, lambda schema: MARK in schema)
        self._made: dict[str, Node | None] = {}

    def of_parameters(self, parameters: Iterable[Mapping[str, Any]]) -> dict[str, Node]:
        """The nodes of a request's parameters by name, of those that have one."""
        made = {one["name"]: self._node(one.get("schema") or {}) for one in parameters}
        return {name: node for name, node in made.items() if node is not None}

    def definition(self, name: str) -> Node | None:
        """The node of a definition that leads to a mark."""
        if name not in self._made:
            self._made[name] = self._node(self._definitions[name])
        return self._made[name]

    def _node(self, schema: Schema) -> Node | None:
        if not isinstance(schema, dict):
            return None
        if MARK in schema:
            return _Bytes() if schema[MARK] == "bytes" else _Array()
        if "$ref" in schema:
            name = schema["$ref"].removeprefix(REFERENCE)
            return _Reference(self, name) if name in self._marked else None
        if any(name in schema for name in _CHOICES):
            return self._choice(schema)
        return self._map(schema) or self._list(schema)

    def _choice(self, schema: dict[str, Any]) -> Node | None:
        options = [one for name in _CHOICES for one in schema.get(name, ())]
        some: list[Node] = []
        if "discriminator" in schema:
            tagged = schema["discriminator"]["mapping"]
            made = {tag: self._node({"$ref": one}) for tag, one in tagged.items()}
            if any(made.values()):
                some.append(_Tagged(schema["discriminator"]["propertyName"], made))
            options = [one for one in options if one.get("$ref") not in tagged.values()]
        some += [node for one in options if (node := self._node(one)) is not None]
        return _Union(some) if some else None

    def _map(self, schema: dict[str, Any]) -> Node | None:
        made = {name: self._node(one) for name, one in (schema.get("properties") or {}).items()}
        fields = {name: node for name, node in made.items() if node is not None}
        rest = self._node(schema.get("additionalProperties"))
        return _Map(fields, rest) if fields or rest else None

    def _list(self, schema: dict[str, Any]) -> Node | None:
        leading = schema.get("prefixItems") or []
        first = [self._node(one) for one in leading]
        rest = self._node(schema.get("items"))
        if rest is None and not any(first):
            return None
        return _List(first, rest, _tags(leading[0]) if leading else None)


def _tags(schema: Schema) -> frozenset[bytes] | None:
    """The values that the first element of a list may have, where they are told one by one."""
    if not isinstance(schema, dict) or not ({"enum", "const"} & schema.keys()):
        return None
    return frozenset(map(_encode, [schema["const"]] if "const" in schema else schema["enum"]))
