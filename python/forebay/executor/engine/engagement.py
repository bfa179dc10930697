"""How a stand-in finds a node: it listens, has the agent submit its order, and takes one node."""

from __future__ import annotations

import contextlib
import json
import secrets
import select
import socket
import ssl
import time
from dataclasses import replace
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

HANDSHAKE_S: Final = 10.0
"""For a node that connects to prove itself."""

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
        self.asking = self._ask()

    def wait(self) -> tuple[Link, dict[str, Any]]:
        """The link to the first node whose worker is ready, and what it says of it."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while True:
            poll.register(self.asking, select.POLLIN)
            ready = dict(poll.poll())
            if self.asking.fileno() in ready:
                poll.unregister(self.asking)
                self._hear()
            if self._listener.fileno() in ready:
                link = self._accept()
                told = None if link is None else self._started(link)
                if link is not None and told is not None:
                    with contextlib.suppress(OSError):  # the agent has ended
                        self.asking.sendall(b"placed\n")
                    return link, told

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

    def _accept(self) -> Link | None:
        """The node that connects; None: it is none of ours, or is gone."""
        try:
            connected, address = self._listener.accept()
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.settimeout(HANDSHAKE_S)
            if self._tls is not None:
                connected = self._tls.wrap_socket(connected, server_side=True)
        except (OSError, ssl.SSLError):
            return None
        if not prove_server(connected, bytes.fromhex(self._order.secret), HANDSHAKE_S):
            connected.close()
            return None
        return Link(connected, f"the node at {address[0]}", self._place.silence)

    def _started(self, link: Link) -> dict[str, Any] | None:
        """What a node says of a worker that is ready; None: it was lost before that.

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
            return None
