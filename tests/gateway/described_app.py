"""An application as strangers reach it over HTTP: any type, and functions that fail."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import uuid
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

import forebay

app = forebay.App("described")


@dataclasses.dataclass
class Sample:
    """One measurement."""

    label: str
    weights: list[float] = dataclasses.field(default_factory=list)
    blob: bytes = b""


class Circle(msgspec.Struct, tag="circle"):
    """A shape."""

    radius: float


class Box(msgspec.Struct, tag="box"):
    """Another one."""

    width: Annotated[int, msgspec.Meta(ge=0, le=100)]
    texture: bytes | None = None


@app.request(lane="short")
def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the other one.
    """
    return max(-(2**63), min(a + b, 2**63 - 1))


@app.request(lane="short")
def divide(a: float, b: float) -> float:
    """Divide: it raises, or leaves what JSON has."""
    return a / b


@app.request(lane="short")
def echo(content: bytes) -> bytes:
    """Give bytes back."""
    return content


@app.request(lane="short")
def turn(image: np.ndarray) -> np.ndarray:
    """Turn an array."""
    return image.T


@app.request(lane="short")
def measure(sample: Sample, more: list[Sample] | None = None) -> Sample:
    """Give a measurement back."""
    return sample


@app.request(lane="short")
def draw(shape: Circle | Box, mode: Literal["thin", "thick"] = "thin") -> Circle | Box:
    """Give a shape back."""
    return shape


@app.request(lane="short")
def plan(
    at: datetime.datetime | None = None,
    price: decimal.Decimal | None = None,
    key: uuid.UUID | None = None,
    limits: dict[str, int] | None = None,
    pair: tuple[int, str] | None = None,
) -> str:
    """Take what JSON has as text."""
    return f"{at} {price} {key} {limits} {pair}"


@app.request(lane="short")
def keep(value: Any = None) -> Any:
    """Give anything back."""
    return value


@app.request(lane="short")
def fail(text: str) -> None:
    """Raise."""
    raise ValueError(text)


@app.request(lane="short")
def nothing() -> None:
    """Do nothing."""


@app.request(cron="0 0 1 1 *")
def yearly() -> None:
    """Run once a year."""
