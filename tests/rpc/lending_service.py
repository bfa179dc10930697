"""A service that keeps arrays: `python -m tests.rpc.lending_service DESCRIPTOR`."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from forebay import rpc
from forebay._core import Connection


class Handler:
    """What may be done with an array that lies in its sender's memory."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.child: tuple[int, int] | None = None

    def echo(self, array: Any) -> Any:
        return array

    def sum(self, array: Any) -> int:
        return int(array.sum(dtype="int64"))

    def keep(self, array: Any) -> None:
        self.kept.append(array)

    def kept_sums(self) -> list[int]:
        return [int(array.sum(dtype="int64")) for array in self.kept]

    def forget(self) -> None:
        self.kept.clear()

    def fill(self, array: Any, value: int) -> int:
        array[:] = value
        return int(array.sum(dtype="int64"))

    def give(self, size: int, value: int) -> Any:
        return np.full(size, value, np.uint8)

    def fork(self) -> int:
        """Fork a child that keeps what is kept here; it tells of it later."""
        wakes, wake = os.pipe()
        tells, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(wakes, 1)
            os.write(tell, ",".join(map(str, self.kept_sums())).encode())
            os._exit(0)
        os.close(wakes)
        os.close(tell)
        self.child = (wake, tells)
        return child

    def sums_of_child(self) -> str:
        assert self.child is not None
        os.write(self.child[0], b".")
        told = os.read(self.child[1], 1000).decode()
        os.wait()
        for end in self.child:
            os.close(end)
        return told


if __name__ == "__main__":
    rpc.serve_connection(Connection(int(sys.argv[1]), server=True, peer="test"), Handler())
