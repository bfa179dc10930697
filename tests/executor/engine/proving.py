"""The server's side of a proof, for tests that are the server."""

from __future__ import annotations

import select
import socket

from forebay.executor.engine.link import prove_server

LIMIT_MS = 20_000
"""For each word of the node."""


def proved(connected: socket.socket, secret: bytes) -> bool:
    """Whether it is the node that was ordered; the socket is blocking again."""
    steps, poll = prove_server(connected, secret), select.poll()
    try:
        while True:
            poll.register(connected, next(steps))
            assert poll.poll(LIMIT_MS), "the node says nothing"
    except StopIteration as end:
        return bool(end.value)
    finally:
        connected.setblocking(True)
