"""An application with every form of an argument, and what a client writes of each."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any, Literal

import msgspec
import numpy as np

import forebay
from forebay.executor.app.manifest import manifest_of, to_json

app = forebay.App("forms", submitter="tests")


@dataclasses.dataclass
class Sample:
    label: str
    blob: bytes = b""
    image: np.ndarray | None = None


@dataclasses.dataclass
class Tree:
    blob: bytes
    children: list[Tree] = dataclasses.field(default_factory=list)


class Sound(msgspec.Struct, tag="sound"):
    data: bytes


class Note(msgspec.Struct, tag="note"):
    data: str


class Move(msgspec.Struct, tag="move", array_like=True):
    data: bytes


class Say(msgspec.Struct, tag="say", array_like=True):
    data: str


@app.request()
def plain(
    count: int,
    name: str = "",
    weights: list[float] | None = None,
    mode: Literal["slow", "quick"] = "slow",
    anything: Any = None,
) -> dict[str, float]:
    """Take what JSON has."""
    return {}


@app.request()
def raw(
    data: bytes,
    pieces: list[bytes] | None = None,
    by_name: dict[str, bytes] | None = None,
    pair: tuple[int, bytes] | None = None,
) -> bytes:
    """Take bytes."""
    return data


@app.request()
def image(
    image: np.ndarray, mask: np.ndarray | None = None, stack: list[np.ndarray] | None = None
) -> np.ndarray:
    """Take arrays."""
    return image


@app.request()
def nested(
    sample: Sample | None = None,
    samples: list[Sample] | None = None,
    tree: Tree | None = None,
    what: Sound | Note | None = None,
    step: Move | Say | None = None,
) -> Sample | None:
    """Take classes that have bytes and arrays."""
    return sample


def manifest() -> dict[str, Any]:
    """As a server reads it."""
    made: dict[str, Any] = json.loads(to_json(manifest_of(app, __file__, target="forms.py:app")))
    return made


def as_json(value: Any) -> Any:
    """What a client writes of a value."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"dtype": value.dtype.str, "shape": list(value.shape), "data": data}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    if isinstance(value, dict):
        return {key: as_json(one) for key, one in value.items()}
    return value


def as_maps(value: Any) -> Any:
    """What a client writes of a value in MessagePack that has no extension for arrays."""
    if isinstance(value, np.ndarray):
        content = np.ascontiguousarray(value).tobytes()
        return {"dtype": value.dtype.str, "shape": list(value.shape), "data": content}
    if isinstance(value, list | tuple):
        return [as_maps(one) for one in value]
    if isinstance(value, dict):
        return {key: as_maps(one) for key, one in value.items()}
    return value


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, arrays by their type, their shape and their bytes."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        alike = type(one) is type(other) and one.dtype == other.dtype and one.shape == other.shape
        return alike and one.tobytes() == other.tobytes()
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
