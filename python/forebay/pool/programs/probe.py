"""Waiting for a program that starts, written once for threads and event loops.

A procedure yields each `Pause` that it needs, and gets back whether its descriptor was ready;
`forebay._steps` runs it.
If the program ends, the keeper's link to it hangs up, and a wait raises `ConnectionResetError` at
once; when the deadline passes, it raises `TimeoutError`.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from forebay.pool.lend.wait import Deadline

RETRY_FIRST = 0.001
"""Seconds before the second try; a program needs about that long after its exec."""

RETRY_MAX = 0.05
"""Longest time between two tries, 20 of which come in a second: readiness is noticed that late."""

RETRY_GROWTH = 1.5

TRY_MAX = 5.0
"""Seconds that one try may take, if a program accepts a connection and does not answer yet."""

STATUS_BYTES_MAX = 4096
"""Bytes of an answer that are read to find its status."""

T = TypeVar("T")
Address = str | tuple[str, int]


class Starting(NamedTuple):
    """What a procedure waits on: a program's link to the keeper, until the deadline."""

    link: socket.socket
    deadline: Deadline


class Pause(NamedTuple):
    """What a procedure waits for: a descriptor, some time, or the first of both."""

    source: socket.socket | None = None
    events: int = select.EPOLLIN
    seconds: float | None = None

    def block(self, program: Starting) -> bool:
        """Wait in this thread."""
        with _watch(self, program.link) as epoll:
            fired = dict(epoll.poll(_limit(self, program.deadline)))
        return _judge(fired, self, program)

    async def wait(self, program: Starting) -> bool:
        """Wait on the running loop."""
        with _watch(self, program.link) as epoll:
            await _readable(epoll, _limit(self, program.deadline))
            fired = dict(epoll.poll(0))
        return _judge(fired, self, program)


Pauses = Generator[Pause, bool, T]


def _watch(pause: Pause, link: socket.socket) -> select.epoll:
    """An epoll set of the descriptor and the link's hang-up; itself readable when one fires."""
    epoll = select.epoll()
    if pause.source is not link:
        epoll.register(link, select.EPOLLRDHUP)
    if pause.source is not None:
        epoll.register(pause.source, pause.events)
    return epoll


def _limit(pause: Pause, deadline: Deadline) -> float | None:
    left = deadline.left()
    if pause.seconds is None or left is None:
        return pause.seconds if left is None else left
    return min(pause.seconds, left)


def _judge(fired: dict[int, int], pause: Pause, program: Starting) -> bool:
    ready = pause.source is not None and pause.source.fileno() in fired
    if not ready and program.link.fileno() in fired:
        raise ConnectionResetError("the program ended before it was ready")
    if not fired and program.deadline.passed():
        raise TimeoutError("the program was not ready in time")
    return ready


async def _readable(epoll: select.epoll, seconds: float | None) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def fire() -> None:
        if not future.done():
            future.set_result(None)

    loop.add_reader(epoll.fileno(), fire)
    try:
        async with asyncio.timeout(seconds):
            await future
    except TimeoutError:
        pass  # the caller looks what it was
    finally:
        loop.remove_reader(epoll.fileno())


def receive(source: socket.socket, count: int, flags: int = 0) -> Pauses[bytes]:
    """The first bytes that come, at most `count`.

    Raises:
        ConnectionResetError: the other end was closed.
    """
    source.setblocking(False)
    while True:
        try:
            data = source.recv(count, flags)
        except BlockingIOError:
            yield Pause(source)
            continue
        if not data:
            raise ConnectionResetError("the program closed its socket before it was ready")
        return data


def until(probe: Callable[[], Pauses[bool]]) -> Pauses[None]:
    """Try until a probe succeeds."""
    delay = RETRY_FIRST
    while not (yield from probe()):
        yield Pause(seconds=delay)
        delay = min(delay * RETRY_GROWTH, RETRY_MAX)


def accepts(address: Address) -> Pauses[bool]:
    """Whether something accepts a connection at a Unix path or a loopback port."""
    with _socket_for(address) as connection:
        return (yield from _connected(connection, address))


def answers(address: Address, path: str) -> Pauses[bool]:
    """Whether a `GET` there is answered with status 200."""
    with _socket_for(address) as connection:
        if not (yield from _connected(connection, address)):
            return False
        # HTTP/1.0 and one small segment: a new connection has room for it.
        request = f"GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
        try:
            connection.send(request.encode("ascii"))
        except OSError:
            return False  # it went away meanwhile; the next try shows more
        answer = b""
        while b"\r\n" not in answer and len(answer) < STATUS_BYTES_MAX:
            if not (yield Pause(connection, seconds=TRY_MAX)):
                return False
            try:
                piece = connection.recv(STATUS_BYTES_MAX)
            except OSError:
                return False
            if not piece:
                return False
            answer += piece
    words = answer.split(b"\r\n", 1)[0].split()
    return len(words) > 1 and words[0].startswith(b"HTTP/") and words[1] == b"200"


def _socket_for(address: Address) -> socket.socket:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.setblocking(False)
    return connection


def _connected(connection: socket.socket, address: Address) -> Pauses[bool]:
    code = connection.connect_ex(address)
    if code == errno.EINPROGRESS:
        if not (yield Pause(connection, select.EPOLLOUT, TRY_MAX)):
            return False
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    # If nobody listens on a port, the kernel may give this socket that port, connected to itself.
    return code == 0 and (
        connection.family == socket.AF_UNIX or connection.getsockname() != connection.getpeername()
    )
