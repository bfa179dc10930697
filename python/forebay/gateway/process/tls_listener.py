"""Accepting under TLS, where a connection counts before its handshake.

The listener of an event loop tells its protocol of a connection once it is encrypted: peers that
say nothing would be outside every limit until their handshake has run out of time.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from forebay.gateway.http import limits
from forebay.gateway.http.census import Census

__all__ = ["TlsListener"]

PAUSE_S: Final = 0.1
"""Where the kernel has no descriptor for a connection that waits."""

_log = logging.getLogger(__name__)


class TlsListener:
    """Hands encrypted connections to protocols, and turns away what exceeds the census.

    What is turned away has no answer, since an answer would need the handshake.

    Loop affinity: the gateway's.

    Args:
        listener: non-blocking; it listens already.
        context: the certificate of new connections.
        census: counts the connections.
        make: a protocol of a connection that is counted by this address, and leaves the census when
            it is lost.
    """

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        census: Census,
        make: Callable[[str], asyncio.Protocol],
    ) -> None:
        self._listener = listener
        self._context = context
        self._census = census
        self._make = make
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.ensure_future(self._accept())

    def close(self) -> None:
        """Accept nothing more, and end the handshakes that are under way."""
        self._accepting.cancel()
        for handshake in self._handshakes:
            handshake.cancel()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        with self._listener:
            while True:
                try:
                    connection, address = await loop.sock_accept(self._listener)
                except OSError:
                    await asyncio.sleep(PAUSE_S)
                    continue
                host = address[0]
                if self._census.enter(host) is not None:
                    self._census.leave(host)
                    connection.close()
                    continue
                handshake = asyncio.ensure_future(self._shake_hands(connection, host))
                self._handshakes.add(handshake)
                handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, connection: socket.socket, host: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: self._make(host),
                connection,
                ssl=self._context,
                ssl_handshake_timeout=limits.HANDSHAKE_S,
                ssl_shutdown_timeout=limits.LINGER_S,
            )
        except Exception as error:
            self._census.leave(host)
            if not isinstance(error, OSError):  # TLS's errors are; an alert tells the peer
                _log.exception("a handshake with %s failed", host)
