"""A real service in a process of its own, and the two event loops."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from forebay._core import Connection
from forebay.rpc import Channel
from forebay.transport import new_event_loop

SERVICE = "tests.rpc.service"
ROOT = Path(__file__).parents[2]


class Service:
    """A service process and the caller's end of its socket."""

    def __init__(self, module: str = SERVICE) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
            )
        self.pidfd = os.pidfd_open(self.process.pid)
        self.socket = ours

    def channel(self, **options: Any) -> Channel:
        connection = Connection(self.socket.detach(), peer="service")
        return Channel(connection, pidfd=self.pidfd, **options)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)

    def close(self) -> None:
        self.socket.close()
        self.process.send_signal(signal.SIGCONT)
        self.kill()
        os.close(self.pidfd)


@pytest.fixture
def service() -> Iterator[Service]:
    """A service process; killed at the end."""
    service = Service()
    yield service
    service.close()


@pytest.fixture
def channel(service: Service) -> Iterator[Channel]:
    """A channel to a service process."""
    with service.channel() as channel:
        assert channel.call("echo", (1,), timeout=20) == 1  # it has started
        yield channel


@pytest.fixture
def streaming() -> Iterator[Service]:
    """A process that serves streams; killed at the end."""
    service = Service("tests.rpc.streaming")
    yield service
    service.close()


@pytest.fixture
def streams(streaming: Service) -> Iterator[Channel]:
    """A channel to a process that serves streams."""
    with streaming.channel() as channel:
        assert channel.call("echo", (1,), timeout=20) == 1  # it has started
        yield channel


Run = Callable[[Coroutine[Any, Any, Any]], Any]


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
    "forebay": new_event_loop,
}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on each of the loops, in debug mode, within 20 seconds."""
    factory = LOOPS[request.param]

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(20):
                return await work

        with asyncio.Runner(debug=True, loop_factory=factory) as runner:
            return runner.run(bounded())

    return run


def wait_for(condition: Callable[[], bool]) -> None:
    """Return once `condition` holds; fail after 20 seconds."""
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        os.sched_yield()


def descriptors() -> int:
    """How many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))
