"""The I/O of a client that threads use: sockets that block until a time."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from typing import Any, Final

from forebay_client.errors import BrokenError, ClosedError, DeadlineError
from forebay_client.http.hidden import Payload
from forebay_client.http.limits import CONNECTIONS_MAX, READ_BYTES

__all__ = ["ThreadIO"]

LEAST_S: Final = 0.001
"""A timeout of 0 would make a socket that never waits."""


class SocketWire:
    """A connected socket; `used` is the set of those that are open."""

    __slots__ = ("_used", "name", "socket")

    def __init__(self, connected: socket.socket, name: str, used: set[SocketWire]) -> None:
        self.socket = connected
        self.name = name
        self._used = used
        used.add(self)

    def close(self) -> None:
        """Close it at once."""
        self._used.discard(self)
        with contextlib.suppress(OSError):
            self.socket.close()

    def interrupt(self) -> None:
        """Have a thread that waits for it find it at its end."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Permit:
    """One of a bounded number of connections; given back once."""

    __slots__ = ("_semaphore",)

    def __init__(self, semaphore: Any) -> None:
        self._semaphore = semaphore

    def release(self) -> None:
        """Let the next one have it. Idempotent."""
        semaphore, self._semaphore = self._semaphore, None
        if semaphore is not None:
            semaphore.release()


class ThreadIO:
    """What steps do in a thread. Any number of threads may use one.

    Every method raises DeadlineError once `until` has come, on the monotonic clock.
    """

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._used: set[SocketWire] = set()
        self._permits = {
            kind: threading.BoundedSemaphore(count) for kind, count in CONNECTIONS_MAX.items()
        }

    def close(self) -> None:
        """End every pause, and every wait for a connection."""
        self._closed.set()
        for wire in list(self._used):
            wire.interrupt()

    def enter(self, kind: str, until: float) -> Permit:
        """Wait until one more connection may be in use."""
        semaphore = self._permits[kind]
        if not semaphore.acquire(timeout=max(0.0, until - time.monotonic())):
            raise DeadlineError("every connection of this client is in use")
        return Permit(semaphore)

    def pause(self, seconds: float) -> None:
        """Wait."""
        if self._closed.wait(seconds):
            raise ClosedError("the client was closed meanwhile")

    def connect(self, host: str, port: int, name: str, until: float) -> SocketWire:
        """Open a TCP connection."""
        try:
            connected = socket.create_connection((host, port), _left(until))
        except TimeoutError:
            raise DeadlineError(f"{name} took no connection in time") from None
        except OSError as error:
            raise BrokenError(
                f"{name} cannot be reached: {error.strerror or error}", delivered="no"
            ) from None
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return SocketWire(connected, name, self._used)

    def secure(
        self, wire: SocketWire, context: ssl.SSLContext, host: str, name: str, until: float
    ) -> None:
        """Begin TLS, and verify the certificate."""
        try:
            wire.socket.settimeout(_left(until))
            wire.socket = context.wrap_socket(wire.socket, server_hostname=host)
        except TimeoutError:
            raise DeadlineError(f"{name} did not begin TLS in time") from None
        except (OSError, ValueError) as error:
            raise not_secure(name, error) from None

    def write(self, wire: SocketWire, payload: Payload, until: float) -> None:
        """Send everything."""
        try:
            wire.socket.settimeout(_left(until))
            wire.socket.sendall(payload.reveal())
        except TimeoutError:
            raise DeadlineError(f"{wire.name} did not take the request in time") from None
        except OSError as error:
            raise broke(wire.name, error) from None

    def read(self, wire: SocketWire, until: float) -> bytes:
        """Receive something; nothing at the end."""
        try:
            wire.socket.settimeout(_left(until))
            return wire.socket.recv(READ_BYTES)
        except TimeoutError:
            raise DeadlineError(f"{wire.name} has not answered in time") from None
        except OSError as error:
            raise broke(wire.name, error) from None


def broke(name: str, error: OSError) -> BrokenError:
    """For a connection that ended within an exchange."""
    return BrokenError(f"the connection to {name} broke: {error.strerror or error}")


def not_secure(name: str, error: Exception) -> BrokenError:
    """For a peer that is not who it should be, or speaks no TLS; nothing was sent to it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"{name}: its certificate is not accepted: {error.verify_message}; give ca_file= of"
        return BrokenError(f"{text} the authority that signed it", delivered="no")
    told = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return BrokenError(f"{name} does not speak TLS as it must: {told}", delivered="no")


def _left(until: float) -> float:
    return max(LEAST_S, until - time.monotonic())
