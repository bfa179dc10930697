"""What the echo benchmarks send, and how an answer is checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

MARKS = 2


@dataclass(frozen=True)
class Shape:
    """A message of `count` frames of `frame_bytes` bytes each."""

    count: int
    frame_bytes: int

    @classmethod
    def parse(cls, name: str) -> Shape:
        """Read a name such as "1e3" or "1000x100": frames in front of the x, bytes behind it."""
        count, _, size = name.rpartition("x")
        return cls(int(count or 1), int(float(size)))

    def messages(self) -> list[list[bytes]]:
        """`MARKS` messages of random bytes; the first and the last byte tell which one it is."""
        body = os.urandom(self.frame_bytes - 2)
        return [
            [bytes([mark]) + body + bytes([mark]) for _ in range(self.count)]
            for mark in range(MARKS)
        ]

    def check(self, frames: Sequence[Buffer], mark: int) -> None:
        """Raise ValueError unless these are the frames of message `mark`, by length and ends."""
        first, last = memoryview(frames[0]), memoryview(frames[-1])
        if (
            len(frames) != self.count
            or first.nbytes != self.frame_bytes
            or last.nbytes != self.frame_bytes
            or first[0] != mark
            or last[-1] != mark
        ):
            raise ValueError(
                f"asked for {self.count} frames of {self.frame_bytes} bytes marked {mark}, got "
                f"{len(frames)}, the first of {first.nbytes} bytes marked {first[0]}"
            )
