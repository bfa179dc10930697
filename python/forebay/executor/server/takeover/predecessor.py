"""The server that takes the place of a running one."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from forebay import _core
from forebay.errors import BrokenError
from forebay.executor.server.takeover.moved import MovedWorker, MovedWorkers
from forebay.executor.server.takeover.wire import (
    PROTOCOL,
    Channel,
    Packet,
    close_all,
    is_readable,
)
from forebay.executor.server.worker_group import Death
from forebay.executor.wire.paths import ServerPaths, StateLock

ANSWER_S: Final = 10.0
"""For an answer that waits for nothing."""

LOST: Final = Death("server", 0, None, None, None, None, "")
"""How a worker ended whose parent is gone."""

LOOK_S: Final = 0.1
"""Between two looks whether this server is to end."""


class Inherited(NamedTuple):
    """What a server listens with, whose owner takes all of them.

    Attributes:
        lock: of the state directory.
        clients: the socket of the clients and its lock.
        gateway: the process of the gateway, which goes on until the new server has its own.
        workers: those that run something; they get the first slots, in this order.
    """

    lock: int
    clients: tuple[int, int]
    gateway: int | None
    workers: list[MovedWorker]


class Predecessor:
    """The running server whose place this process is to take.

    Args:
        channel: to it; it is taken.

    Attributes:
        pid: its process.
        http: its listening socket for HTTP and its address; whoever uses it takes it.
        notify: where its service manager listens.
        watchdog_s: how often the manager wants to hear of it.
        ends: whether it has refused because it ends.

    Raises:
        BrokenError: it refuses, or ends.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.ends = False
        try:
            channel.send("begin", protocol=PROTOCOL, store=_core.StoreReader.VERSION)
            told, descriptors = channel.expect("begun", ANSWER_S)
        except BrokenError:
            channel.close()
            raise
        self.pid = channel.pid
        self._process = os.pidfd_open(channel.pid)
        self.http: tuple[int, str] | None = (descriptors[0], told["url"]) if descriptors else None
        self.notify: str | None = told["notify"]
        self.watchdog_s: float | None = told["watchdog_s"]

    def take(
        self,
        within_s: float,
        told: Callable[[str, dict[str, Any]], None],
        is_asked_to_stop: Callable[[], bool],
    ) -> Inherited | None:
        """Wait until it has given its place; None if this server is asked to stop meanwhile.

        Args:
            within_s: how long what runs there may take.
            told: gets "taking" with what it waits for.
            is_asked_to_stop: looked at ten times a second.

        Raises:
            BrokenError: it goes on to serve, for the reason in the message, or it has ended.
        """
        self._channel.send("ready", within_s=within_s)
        workers: list[MovedWorker] = []
        with contextlib.ExitStack() as unless_given:
            while (packet := self._channel.receive(LOOK_S)) is None or packet.kind != "given":
                if packet is None:
                    if is_asked_to_stop():
                        return None
                elif packet.kind == "waits":
                    told("taking", {"pid": self.pid, "text": packet.told["text"]})
                elif packet.kind == "worker":
                    unless_given.callback(close_all, packet.descriptors)
                    workers.append((packet.told["worker"], packet.descriptors))
                elif packet.kind == "runs":
                    workers[-1][0]["runs"] += packet.told["runs"]
                else:
                    self._refused(packet)
            unless_given.pop_all()
        lock, *clients = packet.descriptors
        return Inherited(lock, (clients[0], clients[1]), packet.told["gateway"], workers)

    def _refused(self, packet: Packet) -> None:
        close_all(packet.descriptors)
        self.ends = bool(packet.told.get("ends"))
        raise BrokenError(
            f"the server in process {self.pid} keeps its place: {packet.told.get('why')}",
            delivered="no",
        )

    def taken(self) -> None:
        """Tell it that this server has the store; it has left, or ended, when this returns.

        Raises:
            BrokenError: it lives and may serve again: this server must end.
        """
        try:
            self._channel.send("taken")
            self._channel.expect("left", ANSWER_S)
        except BrokenError:
            if not self.has_ended(ANSWER_S):
                raise

    def has_ended(self, within_s: float) -> bool:
        """Whether its process ends in this time, in seconds."""
        return is_readable(self._process, within_s)

    def moved(self, place: Inherited) -> MovedWorkers | None:
        """The workers that it has given, whose parent it stays; None: there are none."""
        if not place.workers:
            return None
        return MovedWorkers(place.workers, _DistantParent(self._channel))

    def close(self) -> None:
        """End the connection; without `taken` the other server serves on. Idempotent."""
        self._channel.close()
        process, self._process = self._process, -1
        if process >= 0:
            os.close(process)


class _DistantParent:
    """The server before, as the parent of the workers that it has given.

    Args:
        channel: to it; the workers do not outlive it.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def keep_until_ended(self, slots: set[int], report: Callable[[int, Death], None]) -> None:
        """Have `report` told of each end, in a thread of its own."""
        thread = threading.Thread(
            target=self._run, args=(slots, report), name="forebay-moved-workers", daemon=True
        )
        thread.start()

    def stop_kept(self, number: int) -> None:
        """One was asked to leave."""
        with contextlib.suppress(BrokenError):  # it ends with its parent
            self._channel.send("stop", slot=number)

    def close(self) -> None:
        """Let it end them: nobody serves them any more."""
        self._channel.close()

    def _run(self, slots: set[int], report: Callable[[int, Death], None]) -> None:
        living = set(slots)
        with contextlib.suppress(BrokenError):
            while living:
                packet = self._channel.receive()
                if packet is not None and packet.kind == "died":
                    living.discard(packet.told["slot"])
                    report(packet.told["slot"], Death(*packet.told["death"]))
        for slot in living:  # their parent is gone, and its keeper has ended them
            report(slot, LOST)


def find_predecessor(paths: ServerPaths) -> Predecessor | None:
    """The running server of these paths, asked for its place; None: none runs.

    Raises:
        BrokenError: it refuses; or it starts or ends, or is of a version that gives no place.
    """
    until = time.monotonic() + ANSWER_S
    while True:
        try:
            return Predecessor(Channel.to(paths.takeover_socket))
        except OSError as error:
            if not StateLock.is_held(paths.state):
                return None
            if time.monotonic() >= until:
                raise BrokenError(
                    f"the server that has {paths.state} does not answer at"
                    f" {paths.takeover_socket} ({os.strerror(error.errno or 0)}): it starts, ends,"
                    " or cannot be replaced; stop it with: forebay stop",
                    delivered="no",
                ) from None
            time.sleep(LOOK_S)
