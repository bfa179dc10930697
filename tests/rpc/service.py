"""The process that the tests call: `python -m tests.rpc.service DESCRIPTOR`."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from forebay import rpc
from forebay._core import Connection


class Trouble(ValueError):
    """An exception that only this process knows."""


class Handler:
    """Methods that a test can tell apart."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def echo(self, *args: Any, **kwargs: Any) -> Any:
        return (args, kwargs) if kwargs or len(args) != 1 else args[0]

    def decode(self, value: bytes) -> str:
        return value.decode()

    def lookup(self, key: str) -> Any:
        return {}[key]

    async def later(self) -> int:
        return 1

    def zeros(self, size: int) -> Any:
        import numpy as np

        return np.zeros(size, np.uint8)

    def large(self, size: int) -> bytes:
        return bytes(size)

    def touch(self, array: Any) -> float:
        array += 1
        return float(array.sum())

    def note(self, value: Any) -> None:
        self.seen.append(value)

    def noted(self) -> list[Any]:
        return self.seen

    def fail(self, text: str) -> None:
        raise Trouble(text)

    def unpicklable(self) -> Any:
        return threading.Lock()

    def wait(self, seconds: float, begun: str = "") -> str:
        """Wait for a cancel, at most `seconds`; make the file `begun` first."""
        if begun:
            Path(begun).touch()
        until = time.monotonic() + seconds
        call = rpc.current()
        while time.monotonic() < until:
            if call.cancelled():
                self.seen.append("cancelled")
                return "cancelled"
            time.sleep(0.001)
        return "not cancelled"

    def remaining(self) -> float | None:
        return rpc.current().remaining

    def die(self) -> None:
        os.kill(os.getpid(), 9)

    def leave_orphan(self) -> int:
        """Fork a child that keeps the socket open."""
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        return child

    def _secret(self) -> None:
        self.seen.append("secret")


def main() -> None:
    handler = Handler()

    def on_control(name: str, args: tuple[Any, ...]) -> Any:
        return [name, *args]

    connection = Connection(int(sys.argv[1]), server=True, peer="test")
    rpc.serve_connection(connection, handler, on_control=on_control)


if __name__ == "__main__":
    main()
