"""The server that gives its place away: its sockets, its store, its busy workers.

| state | until | then |
|---|---|---|
| serving | a server asks (`begin`) | asked, or it is refused |
| asked | that server has loaded the application (`ready`) | waiting |
| waiting: begins nothing, accepts submissions | all that runs can go over | giving |
| giving: answers its clients, writes everything | its dispatcher has closed | given |
| given: serves nothing | the other one serves (`taken`) | keeping |
| keeping: is the parent of the workers that went over | the last of them has ended | |

Where the other one ends, or what runs takes too long, it serves again; after *given* by starting
its parts anew.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from forebay import _core
from forebay.errors import BrokenError, ClosedError, Error
from forebay.executor.server.takeover.moved import MovedWorker
from forebay.executor.server.takeover.wire import (
    PROTOCOL,
    RUNS_A_PACKET_MAX,
    Acceptor,
    Channel,
    is_readable,
)

if TYPE_CHECKING:
    from forebay._core import Dispatcher
    from forebay.executor.server.supervisor import Supervisor
    from forebay.executor.server.worker_group import Death

_log = logging.getLogger(__name__)

BEGIN_S: Final = 5.0
"""For the first packet of a server that asks."""

SECOND_S: Final = 0.2
"""The same, while another server is at it."""

REMADE_MS: Final = 10_000
"""Between two looks whether the socket was removed."""

REST_S: Final = 1.0
"""After an asker that could not be answered."""

LOOK_S: Final = 0.02
"""Between two looks whether something runs."""

GIVE_S: Final = 5.0
"""For clients that do not read their answers, and for the disk."""

TAKE_S: Final = 60.0
"""For the other one to open the store: a million requests take six seconds."""

END_S: Final = 5.0
"""For the other one to end by itself once it has failed."""

SHOWN_MAX: Final = 5
"""Requests that are named among those which run."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server has beside its sockets, for the next one.

    Attributes:
        http: its listening socket for HTTP, and its address; it stays the server's.
        notify: where its service manager listens, as in NOTIFY_SOCKET.
        watchdog_s: how often the manager wants to hear of it.
    """

    http: tuple[int, str] | None = None
    notify: str | None = None
    watchdog_s: float | None = None


class Host(Protocol):
    """The server whose place is asked for. Called in the listener's thread."""

    def offer(self) -> Offer:
        """What it has for the next one."""

    def unwilling(self) -> str | None:
        """Why it cannot be replaced now."""

    def moved(self) -> int:
        """How many workers it has that the server before it has started."""

    def keep_workers(self, keeps: bool) -> None:
        """Whether its workers live on when its dispatcher has closed."""

    def given(self, given: Handover) -> None:
        """Its dispatcher has closed, and what it listened with is to be passed on."""


class Handover(NamedTuple):
    """What a closed dispatcher leaves, and who is to have it.

    Attributes:
        channel: to the other server; the host closes it.
        process: its pidfd; the host closes it.
        clients: the socket of the clients and its lock; the host closes them.
        workers: those that run something, and their descriptors; the host closes these.
    """

    channel: Channel
    process: int
    clients: tuple[int, int]
    workers: list[MovedWorker]

    def pass_on(self, lock: int, gateway: int | None, on_taken: Callable[[], None]) -> bool:
        """Give it to the other server; whether that serves now. If not, it has ended.

        Args:
            lock: of the state directory.
            gateway: the process of the gateway.
            on_taken: called before the other one is told that it is alone.
        """
        try:
            for facts, descriptors in self.workers:
                runs = facts["runs"]
                first = facts | {"runs": runs[:RUNS_A_PACKET_MAX]}
                self.channel.send("worker", tuple(descriptors), worker=first)
                for start in range(RUNS_A_PACKET_MAX, len(runs), RUNS_A_PACKET_MAX):
                    self.channel.send("runs", runs=runs[start : start + RUNS_A_PACKET_MAX])
            self.channel.send("given", (lock, *self.clients), gateway=gateway)
            self.channel.expect("taken", TAKE_S)
        except BrokenError:
            self._end()
            return False
        on_taken()
        with contextlib.suppress(BrokenError):
            self.channel.send("left")
        return True

    def close(self) -> None:
        """The other one has it."""
        workers = (descriptor for _, descriptors in self.workers for descriptor in descriptors)
        for descriptor in (self.process, *self.clients, *workers):
            os.close(descriptor)

    def keep_workers(
        self,
        supervisor: Supervisor,
        goes_on: Callable[[], bool],
        is_asked_to_stop: Callable[[], bool],
    ) -> None:
        """Be the parent of the workers that went over, until the last of them has ended.

        Where the other server ends before, they end with this one.

        Args:
            supervisor: has started them.
            goes_on: whether there is a reason to stay when they have ended.
            is_asked_to_stop: looked at ten times a second.
        """

        def report(slot: int, death: Death) -> None:
            with contextlib.suppress(BrokenError):
                self.channel.send("died", slot=slot, death=list(death))

        supervisor.keep_until_ended({facts["slot"] for facts, _ in self.workers}, report)
        with contextlib.suppress(BrokenError):
            while (supervisor.is_alive() or goes_on()) and not is_asked_to_stop():
                packet = self.channel.receive(LOOK_S * 5)
                if packet is not None and packet.kind == "stop":
                    supervisor.stop_kept(packet.told["slot"])
        supervisor.close()
        self.channel.close()

    def _end(self) -> None:
        """See the other one end: two servers never have one store."""
        self.channel.close()
        if not is_readable(self.process, END_S):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.process, signal.SIGKILL)
            is_readable(self.process, None)


class HandoverListener:
    """Answers servers that ask for this one's place, in a thread of its own.

    Args:
        path: of the socket.
        dispatcher: of the server.
        host: the server.
    """

    def __init__(self, path: Path, dispatcher: Dispatcher, host: Host) -> None:
        self._path = path
        self._acceptor = Acceptor(path)
        self._dispatcher = dispatcher
        self._host = host
        self._ending = False
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC)
        self._poll = select.poll()
        for descriptor in (self._acceptor.fileno(), self._wake):
            self._poll.register(descriptor, select.POLLIN)
        self._thread = threading.Thread(target=self._run, name="forebay-takeover", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; a server that asks is left. Idempotent."""
        if self._ending:
            return
        self._ending = True
        os.close(self._woken)
        self._thread.join()
        os.close(self._wake)
        self._acceptor.close()

    def _run(self) -> None:
        with contextlib.suppress(ClosedError, _Ending):  # the server ends by itself
            while not self._serve_one():
                pass

    def _serve_one(self) -> bool:
        """Wait for a server that asks, and answer it; whether it was given the place."""
        self._poll.poll(REMADE_MS)
        self._check_ending()
        try:
            if self._acceptor.is_gone():
                self._listen_again()
            channel = self._acceptor.accept()
            with contextlib.ExitStack() as unless_given:
                unless_given.callback(channel.close)
                process = os.pidfd_open(channel.pid)
                unless_given.callback(os.close, process)
                left = self._serve(channel)
                if left is not None:
                    unless_given.pop_all()
                    self._host.given(Handover(channel, process, *left))
                    return True
        except BlockingIOError:
            pass  # nobody asks
        except ClosedError:
            raise
        except (OSError, Error) as error:
            _log.warning("another server was to take the place of this one: %s", error)
            # Without a descriptor the next try would fail at once.
            is_readable(self._wake, REST_S)
        return False

    def _listen_again(self) -> None:
        """A clean-up of the runtime directory has removed the socket."""
        self._poll.unregister(self._acceptor.fileno())
        self._acceptor.close()
        self._acceptor = Acceptor(self._path)
        self._poll.register(self._acceptor.fileno(), select.POLLIN)

    def _serve(self, channel: Channel) -> tuple[tuple[int, int], list[MovedWorker]] | None:
        """Give the place to who asks; None if it is refused."""
        begin = channel.expect("begin", BEGIN_S).told
        why = self._host.unwilling() or _unfit(begin)
        if why is not None:
            channel.send("refused", why=why, ends=self._host.unwilling() is not None)
            return None
        offer = self._host.offer()
        http = () if offer.http is None else (offer.http[0],)
        url = None if offer.http is None else offer.http[1]
        channel.send("begun", http, url=url, notify=offer.notify, watchdog_s=offer.watchdog_s)
        within = None
        while within is None:
            within = self._heard(channel, None)
        try:
            self._dispatcher.pause(f"another server, process {channel.pid}, takes this one's place")
            return self._give(channel, float(within.get("within_s", 0.0)))
        except BaseException as error:
            with contextlib.suppress(ClosedError):
                self._dispatcher.pause(None)
            with contextlib.suppress(BrokenError):
                ends = self._host.unwilling()
                channel.send("refused", why=ends or str(error), ends=ends is not None)
            raise

    def _give(self, channel: Channel, within_s: float) -> tuple[tuple[int, int], list[MovedWorker]]:
        until = time.monotonic() + within_s
        told: dict[str, Any] = {}
        while waits := self._waits():
            if why := self._host.unwilling():
                raise BrokenError(why, delivered="no")
            if waits != told:
                channel.send("waits", **waits)
                told = waits
            if time.monotonic() >= until:
                raise BrokenError(
                    f"it has waited {within_s:g} s for {waits['text']}; try again with a longer"
                    " --drain-grace, or cancel what runs",
                    delivered="no",
                )
            self._heard(channel, LOOK_S)
        if self._dispatcher.figures()["store_kept"]:
            raise BrokenError(
                "its disk takes nothing, and ends of requests wait for it; make room first",
                delivered="no",
            )
        self._host.keep_workers(True)
        try:
            return self._dispatcher.give(GIVE_S)
        except BaseException:
            self._host.keep_workers(False)
            raise

    def _heard(self, channel: Channel, timeout: float | None) -> dict[str, Any] | None:
        """What the other server says in this time; meanwhile further ones are refused.

        Raises:
            BrokenError: it has ended.
        """
        self._poll.register(channel, select.POLLIN)
        try:
            ready = [at for at, _ in self._poll.poll(None if timeout is None else timeout * 1000)]
        finally:
            self._poll.unregister(channel)
        self._check_ending()
        if self._acceptor.fileno() in ready:
            self._refuse_another(channel.pid)
        packet = channel.receive(0)
        return None if packet is None else packet.told

    def _refuse_another(self, pid: int) -> None:
        with contextlib.suppress(OSError, BrokenError):
            other = self._acceptor.accept()
            with contextlib.closing(other):
                # Read first: a close with something unread would lose the answer.
                other.expect("begin", SECOND_S)
                other.send("refused", why=f"process {pid} takes its place already")

    def _waits(self) -> dict[str, Any]:
        """What cannot go over now; empty if there is nothing."""
        counts = (
            (self._dispatcher.unmovable(), "runs that are being ended or have lent memory"),
            (self._host.moved(), "workers of the server before"),
        )
        text = ", ".join(f"{count} {what}" for count, what in counts if count)
        return {"text": text} if text else {}

    def _check_ending(self) -> None:
        if self._ending:
            raise _Ending


class _Ending(Exception):
    """The server ends."""


def _unfit(begin: dict[str, Any]) -> str | None:
    """Why a server of these numbers cannot go on where this one stops."""
    version = _core.StoreReader.VERSION
    if begin.get("protocol") != PROTOCOL:
        return (
            f"it speaks protocol {PROTOCOL} of take-overs and the new server"
            f" {begin.get('protocol')}; stop it, and start the new one"
        )
    if begin.get("store") != version:
        return (
            f"its store has version {version} and that of the new server {begin.get('store')};"
            " stop it, and start the new one"
        )
    return None
