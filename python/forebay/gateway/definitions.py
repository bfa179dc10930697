"""Which definitions of a manifest lead to something, through whatever they refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

__all__ = ["REFERENCE", "leading_to"]

REFERENCE: Final = "#/definitions/"
"""Before the name of a definition."""

Wanted = Callable[[dict[str, Any]], bool]


def leading_to(definitions: Mapping[str, Any], wanted: Wanted) -> frozenset[str]:
    """The definitions that have a wanted schema in them, or refer to one that has.

    Args:
        definitions: of the manifest, by name.
        wanted: whether a schema is such a one.
    """
    refers = {name: frozenset(_references(schema)) for name, schema in definitions.items()}
    found = {name for name, schema in definitions.items() if any(map(wanted, _within(schema)))}
    while True:
        more = {name for name, others in refers.items() if others & found} - found
        if not more:
            return frozenset(found)
        found |= more


def _references(schema: Any) -> Iterator[str]:
    for part in _within(schema):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].removeprefix(REFERENCE)


def _within(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema, and every map in it."""
    if isinstance(schema, dict):
        yield schema
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _within(part)
