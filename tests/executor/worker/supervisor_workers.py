"""A worker that does nothing, and a dispatcher that records: for tests of the supervisor."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import time
from pathlib import Path
from typing import Any

import forebay
from forebay.executor.app.sources import code_of


class IdleWorker(forebay.Service):
    """Imports an application by reading a file, and serves by waiting for a signal."""

    resets = forebay.Reset.FORK

    def __init__(self, file: str) -> None:
        self.file = file
        text = Path(file).read_text()
        if text.startswith("wait"):
            while not Path(text.split()[1]).exists():
                time.sleep(0.01)
        if "raise" in text:
            raise RuntimeError(f"cannot import {text}")
        self.text = text

    def manifest(self) -> bytes:
        """What the application is; with "die" its first four workers are killed before they say."""
        if self.text.startswith("die"):
            with Path(self.text.split()[1]).open("a+") as deaths:
                deaths.write("x")
                if deaths.tell() < 5:
                    deaths.flush()
                    os.kill(os.getpid(), signal.SIGKILL)
        told = {"text": self.text, "code": code_of([self.file]), "sources": [self.file]}
        return json.dumps(told).encode()

    def warm(self, pool: str) -> list[tuple[str, list[int]]]:
        """Services that would be ready."""
        return [(pool, [os.getpid()])]

    def serve(
        self, slot: int, lane: str, side_path: str, nonce: int, options: dict[str, Any]
    ) -> None:
        """Say so and wait to be killed; in the lane "hasty" end at once."""
        said = f"serving {slot} {lane} {nonce} of {self.text}".encode()
        os.write(1, said)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as side:
            side.sendto(said, side_path)
        if lane == "hasty":
            os._exit(7)
        while True:
            signal.pause()


class Scribe:
    """Stands in for the dispatcher and for the server: hands out orders, notes what it is told."""

    def __init__(self, side_path: Path) -> None:
        self.side_path = str(side_path)
        self._side = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._side.bind(self.side_path)
        self._side.settimeout(20.0)
        self._pending: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.told: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.kept: list[Any] = []

    def order(self, *order: Any) -> None:
        """Give an order to the supervisor."""
        self._pending.put(order)
        os.eventfd_write(self._event, 1)

    def hear(self, kind: str, timeout: float = 20.0) -> tuple[Any, ...]:
        """The next report of a kind from the supervisor; those before it are passed over."""
        deadline = time.monotonic() + timeout
        while True:
            told = self.told.get(timeout=max(0.0, deadline - time.monotonic()))
            if told[0] == kind:
                return told[1:]

    def hear_worker(self) -> str:
        """What the next worker says that serves."""
        return self._side.recv(1000).decode()

    def close(self) -> None:
        """Let go of what was handed over."""
        self._side.close()
        os.close(self._event)
        for connection, pidfd in self.kept:
            connection.close()
            os.close(pidfd)

    # As the dispatcher.

    def orders_fileno(self) -> int:
        """Readable while there are orders."""
        return self._event

    def orders(self, timeout: float | None) -> list[tuple[Any, ...]] | None:
        """What was ordered."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return []
        orders = []
        while not self._pending.empty():
            orders.append(self._pending.get())
        return orders  # type: ignore[return-value]

    def worker_ready(
        self, slot: int, connection: Any, pid: int, pidfd: int, generation: int, is_measured: bool
    ) -> None:
        """Note it, and keep what is given away."""
        self.kept.append((connection, pidfd))
        self.told.put(("worker_ready", slot, pid, time.monotonic()))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **more: self.told.put((name, *args, *more.values()))
