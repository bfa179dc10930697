from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

import forebay
from examples.grpc_backend.__main__ import WORDS
from examples.grpc_backend.words import WordsStub
from forebay.contrib.grpc import Grpc
from forebay.pool import Line
from tests.pool.processes import alive, eventually

pytestmark = pytest.mark.leaks(reason="grpcio keeps its threads and descriptors for good")


@pytest.fixture(scope="module")
def warm() -> Iterator[forebay.ServicePool]:
    """A pool for all tests: the server takes a while to start, which is why one pools it."""
    with forebay.ServicePool(max_size=2, name="grpc") as made:
        yield made


def lent(pool: forebay.ServicePool) -> int:
    """The process that the next caller gets."""
    with pool.acquire(WORDS) as backend:
        return backend.lease.pid


def test_a_grpc_server_is_pooled_unchanged(warm: forebay.ServicePool) -> None:
    """The example: a server as it is, its stub as generated, one channel kept with it."""
    starts = warm.stats()["starts"]
    stubs = set()
    for _ in range(3):
        with warm.acquire(WORDS) as backend:
            assert backend.client.Count("import") > 100
            assert len(list(backend.client.Top("4"))) == 4
            stubs.add(id(backend.client._stub))
    assert len(stubs) == 1
    assert warm.stats()["starts"] <= starts + 1


def test_an_answer_with_an_error_leaves_the_server_as_it_is(warm: forebay.ServicePool) -> None:
    """The server's own refusal is an answer."""
    with warm.acquire(WORDS) as backend:
        with pytest.raises(grpc.RpcError) as caught:
            backend.client.Count("no word")
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        pid = backend.lease.pid
    assert lent(warm) == pid


def test_an_exception_in_the_block_leaves_the_server_as_it_is(warm: forebay.ServicePool) -> None:
    """The connector knows that nothing is under way."""
    pid = lent(warm)

    def hold() -> None:
        with warm.acquire(WORDS):
            raise KeyError

    with pytest.raises(KeyError):
        hold()
    assert lent(warm) == pid


def test_a_call_that_timed_out_ends_the_server(warm: forebay.ServicePool) -> None:
    """It may still be at work for a caller who is gone."""
    with warm.acquire(WORDS) as backend:
        with pytest.raises(grpc.RpcError) as caught:
            backend.client.Count("wait", timeout=0.1)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        victim = backend.lease.pid
    assert eventually(lambda: not alive(victim))
    assert lent(warm) != victim


def test_a_call_that_goes_on_ends_the_server(warm: forebay.ServicePool) -> None:
    """A future that nobody waited for is not left to the next holder."""
    with warm.acquire(WORDS) as backend:
        future = backend.client.Count.future("wait")
        victim = backend.lease.pid
    assert lent(warm) != victim
    with pytest.raises(grpc.RpcError):
        future.result()


def test_a_stub_ends_with_its_lease(warm: forebay.ServicePool) -> None:
    """A former holder does not reach the next one's server."""
    with warm.acquire(WORDS) as backend:
        stub = backend.client
    with pytest.raises(forebay.StaleError):
        stub.Count("import")


def test_a_grpc_server_serves_an_event_loop(warm: forebay.ServicePool) -> None:
    """By a channel of `grpc.aio`, kept for the loop; the program is the same."""

    async def main() -> None:
        async with warm.acquire(WORDS) as backend:
            first = backend.lease.pid
            counts = await asyncio.gather(*(backend.client.Count("import") for _ in range(10)))
            assert min(counts) > 100
            assert len([word async for word in backend.client.Top("4")]) == 4
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await backend.client.Count("no word")
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        async with warm.acquire(WORDS) as backend:
            assert backend.lease.pid == first
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(backend.client.Count("wait"), 0.1)
        async with warm.acquire(WORDS) as backend:
            second = backend.lease.pid
            assert second != first
            assert await backend.client.Top("1000").read() == "self"
        async with warm.acquire(WORDS) as backend:
            assert backend.lease.pid != second  # the stream was left half read

    asyncio.run(main())


def server(*arguments: str, **options: Any) -> forebay.Command:
    """A program that is no gRPC server."""
    return forebay.Command([sys.executable, "-I", "-c", *arguments], **options)


def test_a_server_that_ends_before_its_channel_is_ready_is_told(
    pool: forebay.ServicePool,
) -> None:
    """Not after the timeout of the channel, and with its last words."""
    dying = "import sys; print('ready', flush=True); sys.stdin.read(); sys.exit('no port left')"
    command = server(dying, "{socket}", ready=Line("ready"), connect=Grpc(WordsStub))
    raising = pytest.raises(forebay.DiedError, match="no port left")
    with raising, pool.acquire(command, timeout=20):
        pass


def test_a_server_that_never_serves_is_ended() -> None:
    """A line that says ready is not enough; `start_timeout` holds until the socket accepts."""
    mute = "import signal; print('ready', flush=True); signal.pause()"
    command = server(mute, "{socket}", ready=Line("ready"), connect=Grpc(WordsStub))
    with forebay.ServicePool(max_size=1, start_timeout=0.5) as pool:
        raising = pytest.raises(forebay.DiedError, match="not ready in time")
        with raising, pool.acquire(command, timeout=20):
            pass
        assert pool.stats()["live"] == 0


def test_a_server_whose_place_is_unknown_is_refused(pool: forebay.ServicePool) -> None:
    """The error says what to add."""
    command = server(
        "import signal; print('ready', flush=True); signal.pause()",
        ready=Line("ready"),
        connect=Grpc(WordsStub),
    )
    with (
        pytest.raises(forebay.ConfigError, match="where the server listens"),
        pool.acquire(command),
    ):
        pass
