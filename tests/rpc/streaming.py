"""The process whose streams the tests read: `python -m tests.rpc.streaming DESCRIPTOR`."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forebay import rpc
from forebay._core import Connection


class Trouble(ValueError):
    """An exception that only this process knows."""


class Handler:
    """Streams that a test can tell apart."""

    def __init__(self) -> None:
        self.made = 0
        """How many items were made."""
        self.log: list[str] = []

    def echo(self, value: Any) -> Any:
        return value

    def progress(self) -> int:
        return self.made

    def logged(self) -> list[str]:
        return self.log

    def peak_bytes(self) -> int:
        """The most memory that this process has had."""
        text = Path("/proc/self/status").read_text()
        return int(text.split("VmHWM:")[1].split()[0]) * 1024

    def count(self, stop: int | None = None) -> Iterator[int]:
        try:
            for number in itertools.count() if stop is None else range(stop):
                self.made += 1
                yield number
        except GeneratorExit:
            self.log.append("left")
            raise
        finally:
            self.log.append("closed")

    def blocks(self, count: int, size: int) -> Iterator[bytes]:
        for number in range(count):
            self.made += 1
            yield number.to_bytes(8, "little") + bytes(size - 8)

    def arrays(self, count: int, size: int) -> Iterator[Any]:
        import numpy as np

        for number in range(count):
            self.made += 1
            yield np.full(size, number)

    def fail_after(self, count: int) -> Iterator[int]:
        yield from range(count)
        raise Trouble(f"after {count}")

    def unsendable_after(self, count: int) -> Iterator[Any]:
        try:
            yield from range(count)
            yield (lambda: None)
        finally:
            self.log.append("closed")

    def die_after(self, count: int) -> Iterator[int]:
        yield from range(count)
        os.kill(os.getpid(), 9)

    def listed(self, count: int) -> Iterator[int]:
        return iter(range(count))

    def whole(self) -> list[int]:
        return [1, 2]

    def stuck(self, begun: str) -> Iterator[int]:
        """Never yields; looks whether its caller has left."""
        Path(begun).touch()
        call = rpc.current()
        while not call.cancelled():
            time.sleep(0.001)
        self.log.append("cancelled")
        return
        yield

    def slow(self, seconds: float) -> Iterator[int]:
        try:
            for number in itertools.count():
                yield number
                time.sleep(seconds)
        finally:
            self.log.append("closed")

    def remaining(self) -> Iterator[float | None]:
        while True:
            yield rpc.current().remaining

    def bad_close(self) -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            self.log.append("closed")
            raise ValueError("nobody waits for this")


def main() -> None:
    connection = Connection(int(sys.argv[1]), server=True, peer="test")
    rpc.serve_connection(connection, Handler())


if __name__ == "__main__":
    main()
