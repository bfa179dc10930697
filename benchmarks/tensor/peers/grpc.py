"""gRPC: a unary method that answers with the tensor's bytes, without protocol buffers.

Blocking, with futures; and its asyncio face on uvloop.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.stopwatch import Figures
from benchmarks.tensor.load import IN_FLIGHT, Puller, contents, destinations
from benchmarks.tensor.round import pulls, stay
from benchmarks.transport.side import event_loop

REQUEST = struct.Struct("q")
SERVICE, METHOD = "benchmark.Tensors", "Pull"
UNLIMITED = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
THREADS = 4
READY_S = 20.0


def serve(pipe: Connection, size: int) -> None:
    """Answer from a few threads."""
    import grpc

    tensors: list[bytes] = [row.tobytes() for row in contents(size)]

    def answer(request: bytes, _: Any) -> bytes:
        number: int = REQUEST.unpack(request)[0]
        return tensors[number]

    server = grpc.server(ThreadPoolExecutor(THREADS), options=UNLIMITED)
    server.add_generic_rpc_handlers((_handler(answer),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    pipe.send(f"127.0.0.1:{port}")
    stay(pipe)


def serve_awaited(pipe: Connection, size: int) -> None:
    """Answer from a loop."""
    import grpc

    tensors: list[bytes] = [row.tobytes() for row in contents(size)]

    async def answer(request: bytes, _: Any) -> bytes:
        number: int = REQUEST.unpack(request)[0]
        return tensors[number]

    async def main() -> None:
        server = grpc.aio.server(options=UNLIMITED)
        server.add_generic_rpc_handlers((_handler(answer),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        pipe.send(f"127.0.0.1:{port}")
        await server.wait_for_termination()

    loop = event_loop("uvloop")
    asyncio.set_event_loop(loop)
    loop.run_until_complete(main())


def _handler(answer: Any) -> Any:
    import grpc

    methods = {METHOD: grpc.unary_unary_rpc_method_handler(answer)}
    return grpc.method_handlers_generic_handler(SERVICE, methods)


@contextmanager
def connect(address: str, size: int) -> Iterator[Puller]:
    """Copy each answer to its destination."""
    import grpc

    out = destinations(size)
    with grpc.insecure_channel(address, options=UNLIMITED) as channel:
        grpc.channel_ready_future(channel).result(READY_S)
        pull = channel.unary_unary(f"/{SERVICE}/{METHOD}")

        def one(number: int) -> None:
            out[number] = np.frombuffer(pull(REQUEST.pack(number)), np.uint8)

        def many() -> None:
            futures = [pull.future(REQUEST.pack(number)) for number in range(IN_FLIGHT)]
            for number, future in enumerate(futures):
                out[number] = np.frombuffer(future.result(), np.uint8)

        yield Puller(out, one, many)


@contextmanager
def connect_awaited(address: str, size: int) -> Iterator[Puller]:
    """The same in a loop, which runs for each list of pulls."""
    import grpc

    out = destinations(size)
    loop = event_loop("uvloop")
    asyncio.set_event_loop(loop)
    channel = grpc.aio.insecure_channel(address, options=UNLIMITED)
    loop.run_until_complete(asyncio.wait_for(channel.channel_ready(), READY_S))
    method = channel.unary_unary(f"/{SERVICE}/{METHOD}")

    async def pull(number: int) -> None:
        out[number] = np.frombuffer(await method(REQUEST.pack(number)), np.uint8)

    async def all_of_them() -> None:
        await asyncio.gather(*map(pull, range(IN_FLIGHT)))

    try:
        yield Puller(
            out,
            lambda number: loop.run_until_complete(pull(number)),
            lambda: loop.run_until_complete(all_of_them()),
        )
    finally:
        loop.run_until_complete(channel.close())
        loop.close()


def futures(*, wanted: list[str], seconds: float, warm_up_s: float) -> Figures:
    """The blocking face."""
    return pulls(wanted, serve, connect, seconds=seconds, warm_up_s=warm_up_s)


def awaited(*, wanted: list[str], seconds: float, warm_up_s: float) -> Figures:
    """The asyncio face."""
    return pulls(wanted, serve_awaited, connect_awaited, seconds=seconds, warm_up_s=warm_up_s)
