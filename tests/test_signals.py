"""A signal that ends no sleep, as it came before or to another thread, is heard all the same."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import forebay
from forebay.pool import call_many
from forebay.tensor import TensorClient
from tests.tensor.shards import ServerProcess

LATE_S = 2.0
"""A signal after so long is heard after twice the time, and a busy machine takes its own."""

BEFORE_S = 0.3


class Slow(forebay.Service):
    """A service that is waited for."""

    def sleep(self, seconds: float) -> None:
        """Return after so long."""
        time.sleep(seconds)


@pytest.fixture
def pool() -> Iterator[forebay.ServicePool]:
    """Room for two services."""
    with forebay.ServicePool(max_size=2) as made:
        yield made


@contextmanager
def unheard() -> Iterator[None]:
    """A signal in a moment whose handler raises, and which no sleep of this thread notices.

    The kernel has another thread take it, which is what a signal between this thread's last look
    and its sleep is like.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    taker = threading.Timer(BEFORE_S, os.kill, (os.getpid(), signal.SIGUSR1))
    taker.start()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        yield
    finally:
        taker.cancel()  # a wait that has ended by itself is not taken for one that heard
        taker.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        signal.signal(signal.SIGUSR1, before)


def assert_heard(wait: Callable[[], object]) -> None:
    """The handler ends the wait."""
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), unheard():
        wait()
    assert time.monotonic() - began < LATE_S


def test_in_a_call(pool: forebay.ServicePool) -> None:
    """Its answer comes later."""
    with pool.acquire(Slow) as slow:
        assert_heard(lambda: slow.sleep(20))


def test_in_a_full_pool(pool: forebay.ServicePool) -> None:
    """Nobody gives a service back."""
    with pool.acquire(Slow), pool.acquire(Slow):
        assert_heard(lambda: pool.acquire(Slow).__enter__())


def test_in_calls_to_several_services(pool: forebay.ServicePool) -> None:
    """One thread waits for all of them."""
    with pool.acquire(Slow) as one, pool.acquire(Slow) as other:
        calls = [(slow, "sleep", (20,)) for slow in (one, other)]
        assert_heard(lambda: call_many(calls))


def test_in_a_pull(tmp_path: Path) -> None:
    """Its server is stopped, which answers each pull itself."""
    process = ServerProcess(f"unix://{tmp_path}/server.sock")
    try:
        with TensorClient(process.url, fabric="stream") as client:
            client.pull("small")
            process.stop()
            assert_heard(lambda: client.pull("small"))
    finally:
        process.kill()
