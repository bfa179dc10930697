"""The timeout of a call: it holds for connecting, looking names up and the answer together."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from forebay.errors import ClosedError, DeadlineError, Error
from forebay.tensor import TensorClient
from forebay.tensor.client.handshake import _InTime
from tests.tensor.conftest import TABLE
from tests.tensor.contents import same
from tests.tensor.faces import FACES, face_of
from tests.tensor.shards import PATIENCE_S, ServerProcess, serving, until, url_in

LONG_S = 300.0
"""No test waits so long: what ends earlier ended by its own timeout."""


@pytest.fixture
def mute(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """A socket that lets clients in and says nothing; they wait for its welcome."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{tmp_path}/mute.sock")
        listening.listen()
        yield f"unix://{tmp_path}/mute.sock", listening


def calls(client: Any) -> list[Callable[[], Any]]:
    """Each kind of call, with a short timeout."""
    return [
        lambda: client.pull("table", timeout=0.05),
        lambda: client.push("table", 0, 1, timeout=0.05),
        lambda: client.tensor("table", timeout=0.05),
        lambda: client.plan(["table"], timeout=0.05),
        lambda: list(client.pull_each(["table"], timeout=0.05)),
        lambda: client.submit("pull", "table", timeout=0.05),
    ]


def test_a_call_waits_no_longer_while_another_thread_connects(
    mute: tuple[str, socket.socket],
) -> None:
    """A thread that is patient holds nobody who is not."""
    url, listening = mute
    with (
        ThreadPoolExecutor() as threads,
        TensorClient(url, connect_timeout=LONG_S) as client,
    ):
        patient = threads.submit(client.pull, "table")
        there, _ = listening.accept()
        begun = time.monotonic()
        for call in calls(client):
            with pytest.raises(DeadlineError, match=r"mute\.sock"):
                call()
        assert time.monotonic() - begun < LONG_S / 10
        assert not patient.done()
        there.close()
        assert isinstance(patient.exception(PATIENCE_S), Error)


def test_a_task_waits_no_longer_while_another_connects(mute: tuple[str, socket.socket]) -> None:
    """The same for tasks of a loop, and the one that connects may be cancelled."""
    url, listening = mute
    listening.setblocking(False)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with TensorClient(url, connect_timeout=LONG_S) as client:
            patient = asyncio.create_task(client.pull("table"))
            first, _ = await loop.sock_accept(listening)
            with pytest.raises(DeadlineError, match=r"mute\.sock"):
                await client.pull("table", timeout=0.05)
            assert not patient.done()
            next_one = asyncio.create_task(client.pull("table"))
            await asyncio.sleep(0)
            patient.cancel()
            second, _ = await loop.sock_accept(listening)  # it has taken over
            await client.aclose()
            second.close()
            with pytest.raises(Error):
                await next_one
            first.close()

    asyncio.run(main())


def test_who_waits_for_a_connection_connects_itself_then(
    tmp_path: Path, mute: tuple[str, socket.socket]
) -> None:
    """A connection that fails for one thread is tried by the next, and serves all."""
    url, listening = mute
    with (
        ThreadPoolExecutor() as threads,
        TensorClient(url, connect_timeout=LONG_S) as client,
    ):
        pulls = [threads.submit(client.pull, "table") for _ in range(4)]
        there, _ = listening.accept()
        listening.close()
        Path(f"{tmp_path}/mute.sock").rename(f"{tmp_path}/gone.sock")
        with serving(tmp_path, {"table": TABLE}) as [server]:
            Path(f"{tmp_path}/0.sock").rename(f"{tmp_path}/mute.sock")
            there.close()
            ended = [pull.exception(PATIENCE_S) for pull in pulls]
            assert sum(error is None for error in ended) == 3, ended
            assert server.metrics()["peers"] == 1
            assert same(client.pull("table"), TABLE)


def test_close_ends_who_waits_for_a_connection(mute: tuple[str, socket.socket]) -> None:
    """Both the thread that connects and the one behind it; that one at once."""
    url, listening = mute
    with ThreadPoolExecutor() as threads:
        client = TensorClient(url, connect_timeout=LONG_S)
        first = threads.submit(client.pull, "table")
        there, _ = listening.accept()
        behind = threads.submit(client.pull, "table")
        threads.submit(client.tensor, "table")
        client.close()
        assert isinstance(behind.exception(PATIENCE_S), ClosedError)
        there.close()
        assert isinstance(first.exception(PATIENCE_S), Error)


@pytest.mark.parametrize("face_name", FACES)
def test_the_time_is_not_counted_anew_for_each_step(tmp_path: Path, face_name: str) -> None:
    """Connecting, the look-up and the pull share what there is."""
    process = ServerProcess(f"unix://{tmp_path}/server.sock")
    try:
        with face_of(face_name, process.url, liveness=LONG_S) as face:
            assert face.call("pull", "small", timeout=PATIENCE_S).shape == (10, 4)
            process.stop()
            for name in ("small", "large"):  # the second has to be looked up
                begun = time.monotonic()
                with pytest.raises(DeadlineError, match=r"within 0\.\d+ s") as late:
                    face.call("pull", name, timeout=0.2)
                assert late.value.timeout is not None
                assert 0 < late.value.timeout <= 0.2
                assert 0.15 < time.monotonic() - begun < LONG_S / 10
            process.go_on()
            assert face.call("pull", "large", timeout=PATIENCE_S).shape == (64, 16_384)
    finally:
        process.kill()


def test_threads_that_begin_at_once_share_a_connection(tmp_path: Path, shards: int) -> None:
    """However many threads begin, each shard has one connection."""
    with serving(tmp_path, {"table": TABLE}, shards) as servers:
        for _ in range(10):
            together = threading.Barrier(6)

            def pull(client: TensorClient, together: threading.Barrier = together) -> Any:
                together.wait()
                return client.pull("table")

            with (
                TensorClient(url_in(tmp_path), shards=shards) as client,
                ThreadPoolExecutor(6) as threads,
            ):
                found = [threads.submit(pull, client) for _ in range(6)]
                assert all(same(each.result(PATIENCE_S), TABLE) for each in found)
                assert client.metrics()["connections"] == shards
                assert [server.metrics()["peers"] for server in servers] == [1] * shards
            until(lambda: all(server.metrics()["peers"] == 0 for server in servers))


class _OwnTime:
    """In place of the attempts: there is time, and what raises says itself why."""

    left = 5.0


def test_an_error_of_the_connections_own_time_keeps_its_words_on_a_loop() -> None:
    """It is a TimeoutError, as the end of the time for all attempts is, which says less."""

    async def late() -> None:
        raise DeadlineError("the other side sent half of a frame", timeout=1.0)

    step = _InTime(cast("Any", _OwnTime()), late)
    with pytest.raises(DeadlineError, match="half of a frame"):
        asyncio.run(step.wait(None))
