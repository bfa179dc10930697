"""Write cases.json: schemas as msgspec writes them, and values as it encodes and decodes them.

Each value is held against each annotation; `fits` says whether msgspec decodes it as that.
Run it with the environment that has msgspec: python crates/executor/tests/msgspec/cases.py
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import uuid
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Required, TypedDict

import msgspec
from msgspec import Meta, msgpack

ARRAY = 1
"""The extension of numpy arrays."""


class Letter(enum.Enum):
    """An enum of text."""

    A = "a"
    B = "b"


class Digit(enum.IntEnum):
    """An enum of integers."""

    ONE = 1
    TWO = 2


class Node(msgspec.Struct, tag=True):
    """A tagged struct that holds others."""

    x: int
    y: float | None = None
    below: list[Node] = []


class Closed(msgspec.Struct, tag="closed", forbid_unknown_fields=True):
    """A struct without further fields."""

    x: int


class Row(msgspec.Struct, tag=True, array_like=True):
    """A struct that travels as a list."""

    x: int
    y: float | None = None


class Pair(NamedTuple):
    """A named tuple with a default."""

    a: int
    b: str = "x"


class Loose(TypedDict, total=False):
    """A dict whose fields may be missing."""

    a: Required[int]
    b: str


@dataclasses.dataclass
class Plain:
    """A dataclass that holds others."""

    a: int
    b: list[Plain] | None = None


class Array:
    """Stands for a numpy array: a type of our own, by a schema hook and an extension."""


NOW = datetime.datetime(2026, 11, 21, 21, 4, 5, 678)
CASES: list[tuple[Any, list[Any]]] = [
    (int, [1, -(2**63), 2**64 - 1]),
    (float, [1, 0.5, float("inf")]),
    (str, ["ä"]),
    (bytes, [b"x", b""]),
    (bool, [True]),
    (None, [None]),
    (datetime.datetime, [NOW, NOW.replace(tzinfo=datetime.UTC)]),
    (datetime.date, [NOW.date()]),
    (datetime.time, [NOW.time()]),
    (datetime.timedelta, [datetime.timedelta(1.5)]),
    (uuid.UUID, [uuid.UUID(int=5)]),
    (decimal.Decimal, [decimal.Decimal("1.5")]),
    (Letter, [Letter.A]),
    (Digit, [Digit.TWO]),
    (list[int], [[], [1]]),
    (dict[str, int], [{"a": 1}]),
    (dict[int, str], [{1: "a"}]),
    (set[int], [{1, 2}]),
    (tuple[int, str], [(1, "a")]),
    (tuple[int, ...], [(1, 2, 3)]),
    (tuple[()], [()]),
    (Literal["a", 3, None], ["a", 3, None]),
    (Any, [{"a": [1]}]),
    (Pair, [Pair(1), Pair(1, "q")]),
    (Loose, [{"a": 1}, {"a": 1, "b": "c"}]),
    (Node, [Node(1), Node(1, 2.0, [Node(2)])]),
    (Node | Closed | int | None, [Closed(2), {"type": "closed", "x": 1, "z": 2}]),
    (Row, [Row(1), Row(1, 2.0)]),
    (Plain, [Plain(1), Plain(1, [Plain(2)])]),
    (Annotated[int, Meta(ge=1, lt=9)], [8, 9]),
    (Annotated[str, Meta(pattern="^a+$", min_length=1, max_length=5)], ["aaa", "aaaaaa"]),
    (Annotated[bytes, Meta(min_length=1, max_length=3)], [b"abc"]),
    (Annotated[list[int], Meta(max_length=3)], [[1, 2, 3, 4]]),
    (Array, [msgpack.Ext(ARRAY, b"...")]),
]


def schema_of_array(annotation: Any) -> dict[str, Any]:
    """Our mark for arrays."""
    return {"x-forebay": "array"}


def array_of(code: int, payload: memoryview) -> Array:
    """Any extension, as an array."""
    return Array()


def fits(annotation: Any, encoded: bytes) -> bool:
    """Whether msgspec decodes it as that."""
    try:
        msgpack.decode(encoded, type=annotation, ext_hook=array_of)
    except (msgspec.MsgspecError, ValueError):
        return False
    return True


def main() -> None:
    """Hold each value against each annotation."""
    annotations = [annotation for annotation, _ in CASES]
    schemas, definitions = msgspec.json.schema_components(
        annotations, schema_hook=schema_of_array, ref_template="#/definitions/{name}"
    )
    values = [msgpack.encode(value) for _, values in CASES for value in values]
    requests = [
        {"name": f"r{number}", "parameters": [{"name": "v", "required": True, "schema": schema}]}
        for number, schema in enumerate(schemas)
    ]
    manifest = {
        "schema": 1,
        "app": "msgspec",
        "target": "cases.py",
        "code": msgspec.__version__,
        "sources": [],
        "requests": requests,
        "definitions": definitions,
    }
    decoded = [[int(fits(annotation, value)) for value in values] for annotation in annotations]
    told = {
        "manifest": manifest,
        "annotations": [str(annotation) for annotation in annotations],
        "values": [value.hex() for value in values],
        "fits": decoded,
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
