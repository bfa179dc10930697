"""The client of event loops."""

from __future__ import annotations

import asyncio
import socketserver
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import BrokenError, CancelledError, ConfigError, DeadlineError, LimitError
from forebay.executor.client import accepting
from forebay.executor.client.async_client import AsyncClient
from forebay.executor.client.options import Submit
from tests.executor.client.conftest import ConnectAsync
from tests.executor.small_server import SmallServer
from tests.loops import Run, run

__all__ = ["run"]

Play = Callable[[Callable[[AsyncClient], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def play(run: Run, connect_async: ConnectAsync) -> Play:
    """Runs a test with a client, on each of the loops."""

    def play(test: Callable[[AsyncClient], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with connect_async() as client:
                await test(client)

        run(main())

    return play


async def pieces_of(logs: AsyncIterator[str]) -> str:
    return "".join([piece async for piece in logs])


def test_results_come_back(play: Play) -> None:
    """Many at once, on one connection."""

    async def test(client: AsyncClient) -> None:
        requests = await client.submit_many("echo", [{"index": at} for at in range(20)])
        assert sorted(one.id for one in requests) == [f"{at:012d}" for at in range(1, 21)]
        assert [(await one.result())["index"] for one in requests] == list(range(20))
        assert await client.run("echo", 1, second=2) == {"first": 1, "second": 2}
        assert await client.run("echo", text="x" * 100_000) == {"text": "x" * 100_000}
        assert await requests[0].status() == "succeeded"

    play(test)


def test_failures_and_refusals_are_raised(play: Play) -> None:
    """As of the other client."""

    async def test(client: AsyncClient) -> None:
        with pytest.raises(ValueError, match="odd"):
            await client.run("raise")
        with pytest.raises(LimitError):
            await client.submit("refuse")
        with pytest.raises(ConfigError, match="takes 1 positional"):
            await client.submit("need", 1, 2)
        request = await client.submit("hold")
        with pytest.raises(DeadlineError, match="it goes on"):
            await request.result(timeout=0.05)
        assert await request.cancel() == "asked"
        with pytest.raises(CancelledError):
            await request.result()
        done = await client.submit("echo")
        await done.result()
        with pytest.raises(ConfigError, match="not queued again"):
            await client.retry([done.id])

    play(test)


def test_submitting_without_waiting(play: Play) -> None:
    """The id comes later, and a refusal with the first thing that asks."""

    async def test(client: AsyncClient) -> None:
        request = await client.submit_nowait("echo", index=1)
        with pytest.raises(ConfigError, match=r"await accepted\(\) first"):
            _ = request.id
        assert await request.result() == {"index": 1}
        assert await request.accepted() == request.id == f"{1:012d}"
        refused = await client.submit_nowait("refuse")
        assert isinstance(await refused.exception(), LimitError)
        assert await refused.status() == "refused"
        with pytest.raises(LimitError):
            await refused.accepted()

    play(test)


def test_submitting_many_raises_the_first_refusal(play: Play) -> None:
    """As of the other client: one error, not a group of them."""

    async def test(client: AsyncClient) -> None:
        with pytest.raises(LimitError) as caught:
            await client.submit_many("refuse", [{}] * 3)
        assert caught.value.__notes__ == ["2 other submissions failed too"]

    play(test)


def test_so_many_that_the_next_one_waits(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is under way is bounded."""
    monkeypatch.setattr(accepting, "UNACCEPTED_MAX", 4)

    async def test(client: AsyncClient) -> None:
        requests = [await client.submit_nowait("echo", index=at) for at in range(20)]
        assert len(client._accepting._tasks) <= 4
        assert [(await one.result())["index"] for one in requests] == list(range(20))

    play(test)


def test_leaving_waits_until_everything_is_on_disk(
    connect_async: ConnectAsync, run: Run, server: SmallServer
) -> None:
    """And raises for what was refused and never looked at, or notes it on the program's error."""

    async def fail_after_a_refusal() -> None:
        async with connect_async() as client:
            await client.submit_nowait("refuse")
            raise KeyError("own")

    async def main() -> None:
        async with connect_async() as client:
            await client.submit_nowait("hold")
        async with connect_async() as client:
            assert [one["name"] for one in await client.list()] == ["hold"]
            await asyncio.to_thread(server.release)
            for _ in range(2):
                await client.submit_nowait("refuse")
            with pytest.raises(LimitError) as caught:
                await client.aclose()
            assert caught.value.__notes__ == ["1 other submissions failed too"]
        with pytest.raises(KeyError) as own:
            await fail_after_a_refusal()
        assert own.value.__notes__ == ["and a submission failed: limit it is; do otherwise"]

    run(main())


def test_leaving_a_server_that_hangs_says_what_is_not_known(
    connect_async: ConnectAsync, run: Run, server: SmallServer
) -> None:
    """And does not wait for ever, neither for an acceptance nor on leaving."""

    async def main() -> None:
        client = connect_async(timeout=0.5)
        await client.info()
        with server.stopped():
            requests = [await client.submit_nowait("echo") for _ in range(3)]
            with pytest.raises(DeadlineError, match=r"within 0\.05 s whether it has accepted"):
                await requests[0].accepted(timeout=0.05)
            with pytest.raises(DeadlineError, match="whether it has accepted 3 requests"):
                await client.aclose()

    run(main())


def test_waiting_for_many_tells_who_has_ended(server: SmallServer, play: Play) -> None:
    """And a task that is cancelled while it waits leaves the request alone."""

    async def test(client: AsyncClient) -> None:
        requests = [await client.submit(name) for name in ("echo", "raise", "hold")]
        assert await client.wait(requests[:2]) == (requests[:2], [])
        assert await client.wait(requests, timeout=0.2) == (requests[:2], requests[2:])
        await asyncio.to_thread(server.release)
        assert await client.wait(requests) == (requests, [])
        assert (await client.get("@last")).id == requests[2].id
        assert [one["id"] for one in await client.list(status="failed")] == [requests[1].id]

    play(test)


def test_logs_and_progress_are_pushed(server: SmallServer, play: Play) -> None:
    """Nobody has to ask again and again."""

    async def test(client: AsyncClient) -> None:
        request = await client.submit("hold")
        logs = request.logs()
        assert await anext(logs) == "gr"
        progress = request.progress()
        assert (await anext(progress)).done == 1
        await asyncio.to_thread(server.release)
        assert await pieces_of(logs) == "ün\nand blue\n"
        assert [one async for one in progress] == []

    play(test)


def test_ended_requests_are_queued_again_or_removed(play: Play) -> None:
    """As by the other client."""

    async def test(client: AsyncClient) -> None:
        request = await client.submit("echo")
        await request.result()
        with pytest.raises(ConfigError, match=f"not queued again: {request.id}: request"):
            await client.retry(request.id)
        assert (await client.prune(ids=request.id, dry_run=True))["pruned"] == 1
        assert len(await client.list(status="succeeded")) == 1
        await client.prune(status="succeeded")
        assert await client.list() == []

    play(test)


def test_a_handle_tells_what_the_server_knows_of_its_request(
    server: SmallServer, play: Play
) -> None:
    """Before its end, and after one that can be tried again."""

    async def test(client: AsyncClient) -> None:
        request = await client.submit("hold")
        assert await request.status() in ("queued", "running")
        assert (await request.show())["name"] == "hold"
        assert (await request.why())["status"] in ("queued", "running")
        await asyncio.to_thread(server.release)
        await request.result()
        assert repr(request) == f"<AsyncRequest {request.id} hold succeeded>"
        failing = await client.submit("raise")
        assert isinstance(await failing.exception(), Exception)
        await failing.retry()
        assert repr(failing) == f"<AsyncRequest {failing.id} raise>"
        assert isinstance(await failing.exception(), Exception)

    play(test)


def test_waiting_for_what_is_not_there_raises_its_own_error(play: Play) -> None:
    """Not a group of errors."""

    async def test(client: AsyncClient) -> None:
        with pytest.raises(ConfigError):
            await client.wait([await client.get("0" * 12), await client.submit("hold")], 20.0)

    play(test)


def test_waiting_goes_on_after_a_restart(play: Play, server: SmallServer) -> None:
    """An accepted request is not lost, and neither are those who wait for it."""

    async def test(client: AsyncClient) -> None:
        request = await client.submit("hold")
        waiting = [asyncio.ensure_future(request.result()) for _ in range(3)]
        await client.info()
        server.kill()
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(server.release)
        assert await asyncio.gather(*waiting) == [{}, {}, {}]

    play(test)


def test_one_with_an_idempotency_key_is_sent_again(play: Play, server: SmallServer) -> None:
    """The server knows it by the key."""

    async def test(client: AsyncClient) -> None:
        options = Submit(idempotency="once")
        submitting = asyncio.ensure_future(client.submit("accept_and_vanish", options=options))
        await asyncio.to_thread(server.wait_gone)
        await asyncio.to_thread(server.start, STAYS="1")
        request = await submitting
        assert await request.result() == {}
        assert len(await client.list()) == 1

    play(test)


def test_who_waits_behind_anothers_attempt_has_his_own_time(
    play: Play, server: SmallServer
) -> None:
    """One task at a time tries to reach a server that is gone, here for twenty seconds."""

    async def test(client: AsyncClient) -> None:
        request = await client.submit("hold")
        waiting = [asyncio.ensure_future(request.result()) for _ in range(3)]
        await client.info()
        server.kill()
        await asyncio.wait(waiting, timeout=0.5)
        began = time.monotonic()
        with pytest.raises(BrokenError):
            await client.ask("info", timeout=0.5)
        again = await client.get(request.id)
        for timeout in (0.0104, 0.0204, 0.0304, 0.5):  # uvloop rounds them to milliseconds
            with pytest.raises(DeadlineError, match=rf"has not ended within {timeout} s"):
                await again.result(timeout=timeout)
        assert time.monotonic() - began < 10
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(server.release)
        assert await asyncio.gather(*waiting) == [{}, {}, {}]

    play(test)


def test_all_who_wait_for_a_server_that_stays_away_are_told_at_once(
    connect_async: ConnectAsync, run: Run, server: SmallServer
) -> None:
    """Each had the client's time behind the one before."""

    async def main() -> None:
        async with connect_async(timeout=1.0) as client:
            request = await client.submit("hold")
            waiting = [asyncio.ensure_future(request.result()) for _ in range(20)]
            await client.info()
            server.kill()
            began = time.monotonic()
            for one in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(one, BrokenError)
            assert time.monotonic() - began < 10

    run(main())


class HangsUp(socketserver.BaseRequestHandler):
    """Answers nothing, and closes."""

    def handle(self) -> None:
        time.sleep(0.3)


def test_a_timeout_is_one_however_often_the_connection_breaks(run: Run, tmp_path: Path) -> None:
    """Each new connection had the whole time again, and so the call never ended."""
    path = tmp_path / "s"

    async def main() -> None:
        async with AsyncClient(f"unix://{path}", timeout=20.0) as client:
            began = time.monotonic()
            with pytest.raises(DeadlineError, match=r"within 1.0 s"):
                await client.ask("info", timeout=1.0)
            assert 0.9 < time.monotonic() - began < 5

    with socketserver.UnixStreamServer(str(path), HangsUp) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            run(main())
        finally:
            server.shutdown()
            thread.join()
