"""Servers and clients of a round of the transport benchmarks, each a process of its own.

They are forked from the contestant's process, which has imported what they need and runs no loop,
so that a round with ten servers costs one import.
A pipe to each carries its orders; nobody reads it while something is measured.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from benchmarks.transport.side import Handler, Link, Side

REPLY_TIMEOUT_S = 60.0
_fork = multiprocessing.get_context("fork")


class Child:
    """A process of a round.

    Attributes:
        pid: its process id.
    """

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self._pipe, theirs = _fork.Pipe()
        self._process = _fork.Process(target=_run, args=(target, theirs, arguments), daemon=True)
        self._process.start()
        theirs.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def order(self, *order: Any) -> None:
        """Send it something."""
        self._pipe.send(order)

    def reply(self, timeout_s: float = REPLY_TIMEOUT_S) -> Any:
        """Wait for what it sends.

        Raises:
            RuntimeError: it failed, and the message says how; or it was silent for so long.
        """
        if not wait([self._pipe], timeout=timeout_s):
            raise RuntimeError(f"no reply after {timeout_s:.0f} s")
        try:
            reply = self._pipe.recv()
        except EOFError:
            raise RuntimeError("a server or client ended without a word") from None
        if isinstance(reply, Failed):
            sys.stderr.write(reply.text)
            raise RuntimeError(reply.line)
        return reply

    def kill(self) -> None:
        """End it before it can do anything more."""
        self._process.kill()
        self._process.join()


class Children:
    """The processes of a round; they end with it, servers first, and say nothing at the end."""

    def __init__(self) -> None:
        self._started: list[Child] = []

    def start(self, target: Callable[..., None], *arguments: Any) -> Child:
        """Fork one that calls the target with its pipe and the arguments."""
        child = Child(target, *arguments)
        self._started.append(child)
        return child

    def pids(self) -> list[int]:
        """Process ids of all."""
        return [child.pid for child in self._started]

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._started:
            child.kill()


class Failed:
    """What a child sends in place of a reply."""

    def __init__(self, error: BaseException) -> None:
        self.line = f"{type(error).__name__}: {error}"
        self.text = "".join(traceback.format_exception(error))


def _run(target: Callable[..., None], pipe: Connection, arguments: tuple[Any, ...]) -> None:
    try:
        target(pipe, *arguments)
    except BaseException as error:
        pipe.send(Failed(error))
    os._exit(0)  # without the end of interpreters and libraries, which nobody measures


def serve(
    pipe: Connection, side: Side, handler: Handler, before: Callable[[Connection], None]
) -> None:
    """Serve until the round ends; the first reply is the address.

    A handler that fails ends the process with what it raised: no connection is closed in a round.
    """
    loop = side.new_event_loop()
    asyncio.set_event_loop(loop)
    failure: asyncio.Future[None] = loop.create_future()

    async def handle(link: Link) -> None:
        try:
            await handler(link)
        except BaseException as error:
            if not failure.done():
                failure.set_exception(error)
            raise

    async def main() -> None:
        pipe.send(await side.listen(handle))
        before(pipe)
        await failure

    loop.run_until_complete(main())


def call(pipe: Connection, side: Side, addresses: list[str]) -> None:
    """Connect to the addresses, then do what is ordered: a coroutine of the links, its arguments.

    The first reply is the number of links.
    """
    loop = side.new_event_loop()
    asyncio.set_event_loop(loop)

    async def connect() -> list[Link]:
        return [await side.connect(address) for address in addresses]

    links = loop.run_until_complete(connect())
    pipe.send(len(links))
    while True:
        work: Callable[..., Awaitable[Any]]
        work, *arguments = pipe.recv()
        pipe.send(loop.run_until_complete(_awaited(work, links, arguments)))


async def _awaited(
    work: Callable[..., Awaitable[Any]], links: list[Link], arguments: list[Any]
) -> Any:
    return await work(links, *arguments)
