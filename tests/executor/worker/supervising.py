"""What a supervisor and a dispatcher do for a worker, for tests of the worker alone."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import msgpack

import forebay
from forebay._core import Connection
from forebay.executor.wire.codec import decode, encode
from forebay.executor.worker.forks import INTERRUPT_SIGNAL
from forebay.executor.worker.worker import Worker
from forebay.pool import ServicePool

APP = Path(__file__).with_name("worker_app.py")
HEAD = struct.Struct("<BQI")
NONCE = 0x0123_4567_89AB_CDEF
PATIENCE = 20.0
NUDGE_S = 0.1
LOG, PROGRESS, WARNING = 1, 2, 3


class Slot:
    """One worker that serves, with everything that a dispatcher has of it."""

    def __init__(self, proxy: Any, side: socket.socket, output: int) -> None:
        self.proxy = proxy
        self.pid: int = proxy.lease.pid
        self.side = side
        self.output = output
        self.connection: Connection = proxy.lease._record.channel._connection
        self.generation: int = proxy.lease._handle.tag
        self.pidfd = os.pidfd_open(self.pid)

    def begin(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        id: str = "000000000001",
        attempt: int = 1,
        timeout: float | None = None,
        traceparent: str | None = None,
        parent: str | None = None,
    ) -> int:
        """Send a run; the call's number."""
        blob = encode(arguments or {})
        segments = None if len(blob) < 65536 else [blob]
        inline = None if segments else blob
        given = [name, inline, id, attempt, timeout, traceparent, parent]
        head = msgpack.encode(["run", given, None])
        return self.connection.begin(0, head, segments, self.generation)

    def settle(self, call: int, *, nudge: int | None = None) -> tuple[str, Any]:
        """The outcome of a run: "ok" and its result, "failed" and what, or "cancelled".

        With `nudge`, that signal is sent until then, as a dispatcher does: one that comes between
        CPython's last look for signals and a system call that blocks waits for the next one.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            wait = PATIENCE if nudge is None else NUDGE_S
            try:
                reply = self.connection.settle(call, 0, wait)
                break
            except forebay.DeadlineError:
                if nudge is None or time.monotonic() > deadline:
                    raise
                signal.pidfd_send_signal(self.pidfd, nudge)
        segments = None
        if isinstance(reply, tuple):
            raised, _, reply, segments = reply
            assert not raised
        kind, *values = msgpack.decode(reply)
        if kind == 2:
            return "cancelled", None
        value = values[0] if values[0] is not None else bytes(segments[0])
        return ("ok", decode(value)) if kind == 0 else ("failed", value)

    def run(self, name: str, arguments: dict[str, Any] | None = None, **how: Any) -> Any:
        """Send a run and wait for its outcome."""
        return self.settle(self.begin(name, arguments, **how))

    def call(self, blob: bytes) -> tuple[int, bytes]:
        """Send a call by pickle; kind and blob of its answer."""
        segments = None if len(blob) < 65536 else [blob]
        head = msgpack.encode(["call", [None if segments else blob], None])
        reply = self.connection.call(0, head, segments, PATIENCE, self.generation)
        beside = None
        if isinstance(reply, tuple):
            _, _, reply, beside = reply
        kind, value = msgpack.decode(reply)
        return kind, bytes(beside[0]) if value is None else value

    def interrupt(self, number: int, attempt: int, *, signalled: bool = True) -> None:
        """Ask it to end a request, as a dispatcher does."""
        self.side.send(HEAD.pack(1, number, attempt))
        if signalled:
            signal.pidfd_send_signal(self.pidfd, INTERRUPT_SIGNAL)

    def record(self) -> tuple[int, int, int, bytes]:
        """The next record of the side socket: kind, number, attempt, payload."""
        packet = self.side.recv(1 << 17)
        return *HEAD.unpack(packet[: HEAD.size]), packet[HEAD.size :]

    def records(self) -> Iterator[tuple[int, int, int, bytes]]:
        """The records that are there already."""
        self.side.setblocking(False)
        try:
            while True:
                yield self.record()
        except BlockingIOError:
            return
        finally:
            self.side.settimeout(PATIENCE)

    def printed(self) -> str:
        """What lies in the output pipe now."""
        os.set_blocking(self.output, False)
        parts = []
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.output, 65536):
                parts.append(part)
        return b"".join(parts).decode()

    def tell_end(self) -> None:
        """Tell it to leave, which is not answered."""
        self.connection.begin(0, msgpack.encode(["end", [], None]), None, self.generation)

    def ended(self) -> int:
        """Wait for the end of its process, which is the keeper's child."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.pidfd, selectors.EVENT_READ)
            assert selector.select(PATIENCE), "the worker has not ended"
        return self.pid

    def close(self) -> None:
        """Let go of everything."""
        for descriptor in (self.output, self.pidfd):
            os.close(descriptor)
        self.side.close()


@contextlib.contextmanager
def in_slot(
    directory: Path, lane: str = "long", *, kind: str = "path", **options: Any
) -> Iterator[Slot]:
    """A worker of the test application that serves, in a pool of its own."""
    path = str(directory / "side.sock")
    given = (kind, str(APP)) if kind == "path" else (kind, "")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door,
        ServicePool(max_size=2) as pool,
        pool.acquire(Worker.spec(*given), timeout=PATIENCE) as worker,
    ):
        door.bind(path)
        door.listen()
        door.settimeout(PATIENCE)
        record = worker.lease._record
        head, segments = record.channel._codec.encode_call(
            "serve", (3, lane, path, NONCE, options), None
        )
        record.channel._connection.start(1, head, segments, None, worker.lease._handle.tag, True)
        side, _ = door.accept()
        side.settimeout(PATIENCE)
        hello, descriptors, *_ = socket.recv_fds(side, 64, 1)
        assert struct.unpack("<BIQ", hello) == (0, 3, NONCE)
        slot = Slot(worker, side, descriptors[0])
        try:
            yield slot
        finally:
            slot.close()
