"""What happens to the bytes of one direction on their way: decided from a seed, no socket."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

from forebay.errors import ConfigError

End = Literal["truncate", "cut", "reset", "hold"]


@dataclass(frozen=True, slots=True)
class Wire:
    """One direction of a connection, and where it fails.

    Bytes are counted from the end of the handshake: byte 0 is the first of the first message's
    header. At most one of the four points may be given; no byte after it arrives.

    Attributes:
        truncate_at: the receiver sees the end of the stream here; the other direction goes on.
        cut_at: both directions end here, in order.
        reset_at: both directions end here by a reset (RST).
        hold_at: nothing more passes, without an error: a peer that hangs.
        piece_bytes: the bytes pass in pieces of 1 to so many, at random.
        delay: seconds that a piece waits at most, at random.
        seed: of both.

    Raises:
        ConfigError: two points, or a negative number.
    """

    truncate_at: int | None = None
    cut_at: int | None = None
    reset_at: int | None = None
    hold_at: int | None = None
    piece_bytes: int | None = None
    delay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        points = [name for name in _POINTS if getattr(self, name) is not None]
        if len(points) > 1:
            raise ConfigError(f"Wire: {' and '.join(points)} exclude each other")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "seed" and value is not None and value < 0:
                raise ConfigError(f"Wire: {field.name}={value} must not be negative")
        if self.piece_bytes == 0:
            raise ConfigError("Wire: piece_bytes=0 would never pass; give 1 or more")

    def end(self) -> tuple[int, End] | None:
        """Where it fails, and how."""
        for name, end in _POINTS.items():
            point = getattr(self, name)
            if point is not None:
                return point, end
        return None


_POINTS: dict[str, End] = {
    "truncate_at": "truncate",
    "cut_at": "cut",
    "reset_at": "reset",
    "hold_at": "hold",
}


class Step(NamedTuple):
    """Bytes to pass on, after a wait in seconds."""

    wait: float
    piece: memoryview


class Passage:
    """The bytes that a wire lets pass, in the order in which they come.

    Attributes:
        over: how it has failed, once it has.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._draw = random.Random(wire.seed)
        end = wire.end()
        self._left = None if end is None else end[0]
        self._end = None if end is None else end[1]
        self.over: End | None = None
        self._look()

    def steps(self, received: bytes) -> Iterator[Step]:
        """What becomes of bytes that were sent."""
        rest = memoryview(received)
        if self._left is not None:
            rest = rest[: self._left]
            self._left -= len(rest)
        while rest:
            most = self._wire.piece_bytes
            count = len(rest) if most is None else self._draw.randint(1, most)
            wait = self._draw.uniform(0, self._wire.delay) if self._wire.delay else 0.0
            yield Step(wait, rest[:count])
            rest = rest[count:]
        self._look()

    def _look(self) -> None:
        if self._left == 0:
            self.over = self._end
