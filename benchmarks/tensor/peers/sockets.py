"""Plain Python sockets: a request of 8 bytes, and the tensor straight into its destination.

As it is written by hand: `sendall` of a tensor, `recv_into` of a tensor. The vectored way hands all
tensors that are asked for to one `sendmsg`, and receives them by `recvmsg_into`.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

from benchmarks.stopwatch import Figures
from benchmarks.tensor.load import IN_FLIGHT, Bytes, Puller, contents, destinations
from benchmarks.tensor.round import pulls

REQUEST = struct.Struct("q")
REQUESTS_BYTES = REQUEST.size * 64


def serve(pipe: Connection, size: int, vectored: bool) -> None:
    """Answer one client."""
    tensors = contents(size)
    listener = socket.create_server(("127.0.0.1", 0))
    pipe.send(listener.getsockname())
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while received := connection.recv(REQUESTS_BYTES):
        while len(received) % REQUEST.size:
            received += connection.recv(REQUEST.size - len(received) % REQUEST.size)
        asked = [tensors[number] for (number,) in REQUEST.iter_unpack(received)]
        if vectored:
            _send_all(connection, asked)
        else:
            for tensor in asked:
                connection.sendall(tensor)


def _send_all(connection: socket.socket, tensors: Sequence[Bytes]) -> None:
    left = [tensor.data for tensor in tensors]
    while left:
        sent = connection.sendmsg(left)
        _skip(left, sent)


def _skip(views: list[memoryview], count: int) -> None:
    """Drop so many bytes from the front."""
    whole = 0
    while whole < len(views) and count >= len(views[whole]):
        count -= len(views[whole])
        whole += 1
    del views[:whole]
    if count:
        views[0] = views[0][count:]


@contextmanager
def connect(address: tuple[str, int], size: int) -> Iterator[Puller]:
    """Receive tensor by tensor."""
    out = destinations(size)
    views = [memoryview(row) for row in out]
    all_requests = b"".join(map(REQUEST.pack, range(IN_FLIGHT)))
    with _connected(address) as connection:

        def receive(number: int) -> None:
            view, count = views[number], 0
            while count < size:
                count += connection.recv_into(view[count:])

        def one(number: int) -> None:
            connection.sendall(REQUEST.pack(number))
            receive(number)

        def many() -> None:
            connection.sendall(all_requests)
            for number in range(IN_FLIGHT):
                receive(number)

        yield Puller(out, one, many)


@contextmanager
def connect_vectored(address: tuple[str, int], size: int) -> Iterator[Puller]:
    """Receive as many tensors as are there at once."""
    out = destinations(size)
    views = [memoryview(row) for row in out]
    all_requests = b"".join(map(REQUEST.pack, range(IN_FLIGHT)))
    with _connected(address) as connection:

        def receive(left: list[memoryview]) -> None:
            while left:
                _skip(left, connection.recvmsg_into(left)[0])

        def one(number: int) -> None:
            connection.sendall(REQUEST.pack(number))
            receive([views[number]])

        def many() -> None:
            connection.sendall(all_requests)
            receive(views[:IN_FLIGHT])

        yield Puller(out, one, many)


@contextmanager
def _connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def plain(*, wanted: list[str], seconds: float, warm_up_s: float) -> Figures:
    """Tensor by tensor."""
    return pulls(wanted, serve, connect, False, seconds=seconds, warm_up_s=warm_up_s)


def vectored(*, wanted: list[str], seconds: float, warm_up_s: float) -> Figures:
    """All at once."""
    return pulls(wanted, serve, connect_vectored, True, seconds=seconds, warm_up_s=warm_up_s)
