"""How a stand-in finds a node: it listens, has the agent submit its order, and takes one node."""

from __future__ import annotations

import contextlib
import json
import secrets
import select
import socket
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Final

from forebay.errors import BrokenError, ConfigError
from forebay.executor.engine.link import (
    FAILED,
    PING_MS,
    READY,
    SECRET_BYTES,
    Link,
    prove_server,
)
from forebay.executor.engine.order import Order, Place
from forebay.executor.engine.watched import Watched

__all__ = ["engage"]

PROOF_S: Final = 10.0
"""For a node to prove itself, TLS and all; the start of a worker fails with one that is slower."""

PROVING_MAX: Final = 32
"""Who has connected and not proved itself yet; the oldest one makes room for another.

Strangers who say nothing keep no node out: they would have to come so many at a time while a node
proves itself.
"""

AGAIN_S: Final = 0.2
"""Before the agent is asked again, which has ended."""


def engage(order: Order, place: Place) -> tuple[Link, socket.socket, dict[str, Any]]:
    """Have the cluster find a node, and its worker started; waits for as long as it takes.

    Returns:
        The link to the node; the connection to the agent, which keeps the order while it is open;
        what the node says of the worker.

    Raises:
        ConfigError: the node cannot run the application, or the cluster refuses the task.
    """
    with _listen(place.host) as listener:
        asked = replace(
            order,
            host=place.host,
            port=int(listener.getsockname()[1]),
            secret=secrets.token_hex(SECRET_BYTES),
            is_encrypted=place.certificates is not None,
            silence=place.silence,
        )
        engagement = _Engagement(asked, place, listener)
        link, told = engagement.wait()
        return link, engagement.asking, told


def _listen(host: str) -> socket.socket:
    try:
        return socket.create_server((host, 0), backlog=8)
    except OSError as error:
        raise ConfigError(
            f"nobody can listen for nodes at {host}: {error}; give an address of this machine that"
            " the nodes reach: FOREBAY_EXECUTOR_ENGINE_HOST"
        ) from error


class _Engagement:
    """The wait of a stand-in for a node.

    Args:
        order: what it is to start.
        place: where it is asked for.
        listener: where it connects.

    Attributes:
        asking: the connection to the agent; while it is open, the worker is wanted.
    """

    def __init__(self, order: Order, place: Place, listener: socket.socket) -> None:
        self._order = order
        self._place = place
        self._listener = listener
        self._tls = None if place.certificates is None else place.certificates.context()
        self._input = b""
        self._proving: list[_Proving] = []
        """The oldest first."""
        self.asking = self._ask()

    def wait(self) -> tuple[Link, dict[str, Any]]:
        """The link to the first node whose worker is ready, and what it says of it."""
        try:
            while True:
                ready = self._sleep()
                if self.asking.fileno() in ready:
                    self._hear()
                link = self._proved(ready)
                told = None if link is None else self._started(link)
                if link is not None and told is not None:
                    with contextlib.suppress(OSError):  # the agent has ended
                        self.asking.sendall(b"placed\n")
                    return link, told
                if self._listener.fileno() in ready:
                    self._accept()
        finally:
            for proving in self._proving:
                proving.connected.close()

    def _sleep(self) -> dict[int, int]:
        """Wait until something is ready, or the time of one that proves itself is over."""
        poll = select.poll()
        for source in (self.asking, self._listener):
            poll.register(source, select.POLLIN)
        for proving in self._proving:
            poll.register(proving.connected, proving.events)
        until = min((proving.until for proving in self._proving), default=None)
        timeout = None if until is None else 1000 * max(0.0, until - time.monotonic())
        return dict(poll.poll(timeout))

    def _ask(self) -> socket.socket:
        """Have the agent submit the order; again, if it is about to be started."""
        line = json.dumps(self._order.told()).encode() + b"\n"
        while True:
            asking = socket.socket(socket.AF_UNIX)
            try:
                asking.connect(self._place.agent)
                asking.sendall(line)
            except OSError:
                asking.close()
                time.sleep(AGAIN_S)
            else:
                return asking

    def _hear(self) -> None:
        """The agent says why there is no node, or has ended."""
        try:
            data = self.asking.recv(1 << 16)
        except OSError:
            data = b""
        self._input += data
        if not data:
            self.asking.close()
            self._input = b""
            time.sleep(AGAIN_S)
            self.asking = self._ask()
        elif self._input.endswith(b"\n"):
            raise ConfigError(json.loads(self._input)["error"])

    def _accept(self) -> None:
        """Let who connects prove that it is the node."""
        try:
            connected, address = self._listener.accept()
        except OSError:  # it has left; or there are no descriptors, and the listener stays ready
            time.sleep(AGAIN_S)
            return
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connected = self._tls.wrap_socket(
                    connected, server_side=True, do_handshake_on_connect=False
                )
        except OSError:
            connected.close()
            return
        if len(self._proving) == PROVING_MAX:
            self._proving.pop(0).connected.close()
        steps = prove_server(connected, bytes.fromhex(self._order.secret))
        until = time.monotonic() + PROOF_S
        self._proving.append(_Proving(connected, f"the node at {address[0]}", steps, until))

    def _proved(self, ready: dict[int, int]) -> Link | None:
        """The node, if one of those that prove themselves now has; others are let go of."""
        for proving in list(self._proving):
            is_node = proving.advance(ready)
            if is_node is None and time.monotonic() < proving.until:
                continue
            self._proving.remove(proving)
            if is_node:
                return Link(proving.connected, proving.peer, self._place.silence)
            proving.connected.close()
        return None

    def _started(self, link: Link) -> dict[str, Any] | None:
        """What a node says of a worker that is ready; None: it was lost before that.

        Others wait meanwhile, and then have all of their time.

        Raises:
            ConfigError: it cannot be started.
        """
        watched = Watched()
        try:
            while True:
                watched.wait({link.fileno(): link.events}, PING_MS)
                for kind, _, body in link.take():
                    if kind == READY:
                        told: dict[str, Any] = json.loads(body)
                        return told
                    if kind == FAILED:
                        raise ConfigError(body.decode())
                link.keep_alive()
        except BrokenError:
            link.close()
            for proving in self._proving:
                proving.until = time.monotonic() + PROOF_S
            return None


@dataclass(slots=True)
class _Proving:
    """Who has connected, and has not proved itself yet.

    Attributes:
        connected: its socket.
        peer: stands in messages.
        steps: of its proof.
        until: when it is let go of.
        events: what the next step waits for.
    """

    connected: socket.socket
    peer: str
    steps: Generator[int, None, bool]
    until: float
    events: int = select.POLLIN

    def advance(self, ready: dict[int, int]) -> bool | None:
        """Go on with the proof; whether it is the node, None: nobody knows yet."""
        if self.connected.fileno() not in ready:
            return None
        try:
            self.events = next(self.steps)
        except StopIteration as proved:
            return bool(proved.value)
        return None
