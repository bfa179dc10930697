"""pyzmq: a ROUTER that answers with the tensor's memory, and a DEALER."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import numpy as np

from benchmarks.stopwatch import Figures
from benchmarks.tensor.load import IN_FLIGHT, Puller, contents, destinations
from benchmarks.tensor.round import pulls

REQUEST = struct.Struct("q")
COPIED_BYTES = 64 << 10  # below it pyzmq copies faster than it keeps track of memory


def serve(pipe: Connection, size: int) -> None:
    """Answer."""
    import zmq

    tensors = contents(size)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        pipe.send(f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}")
        while True:
            client, request = router.recv_multipart()
            (number,) = REQUEST.unpack(request)
            copy = size < COPIED_BYTES
            router.send_multipart([client, request, tensors[number]], copy=copy)


@contextmanager
def connect(address: str, size: int) -> Iterator[Puller]:
    """Receive without a copy of pyzmq's, then copy to the destination."""
    import zmq

    out = destinations(size)
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.connect(address)

        def receive() -> None:
            request, tensor = dealer.recv_multipart(copy=False)
            (number,) = REQUEST.unpack(request.buffer)
            out[number] = np.frombuffer(tensor.buffer, np.uint8)

        def one(number: int) -> None:
            dealer.send(REQUEST.pack(number))
            receive()

        def many() -> None:
            for number in range(IN_FLIGHT):
                dealer.send(REQUEST.pack(number))
            for _ in range(IN_FLIGHT):
                receive()

        yield Puller(out, one, many)


def router(*, wanted: list[str], seconds: float, warm_up_s: float) -> Figures:
    """The contestant."""
    return pulls(wanted, serve, connect, seconds=seconds, warm_up_s=warm_up_s)
