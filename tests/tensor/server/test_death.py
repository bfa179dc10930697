"""Servers that die, stop or come back while something is outstanding."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.errors import BrokenError, DeadlineError
from forebay.tensor import AsyncTensorClient, TensorClient
from tests.tensor.contents import same
from tests.tensor.shards import PATIENCE_S, ServerProcess, state_of, until

NEVER_S = 1000
"""A liveness that no test waits for: what ends earlier ended for another reason."""

SILENCE_S = 1.0

LARGE = np.ones((64, 16_384), "f4")
SMALL = np.ones((10, 4), "f4")


def outstanding(client: TensorClient | AsyncTensorClient) -> bool:
    """Whether something is with the server."""
    return client.metrics().get("outstanding", 0) > 0


def calls(client: TensorClient) -> list[Callable[[], Any]]:
    """One of each kind, none of which a stopped server answers."""
    return [
        lambda: client.pull("large"),
        lambda: client.push("small", None, 2),
        lambda: client.pull_many(["small", ("large", [3, 1])]),
        lambda: list(client.pull_each(["large", "small"])),
    ]


def assert_told(error: BaseException | None, process: ServerProcess) -> None:
    """It says that the server is gone, and which."""
    assert isinstance(error, BrokenError), error
    assert process.url.partition("://")[2] in str(error)


def warmed(client: TensorClient, process: ServerProcess) -> None:
    """Look the names up, then have the server answer no more."""
    assert same(client.pull("small"), SMALL)
    client.tensor("large")
    process.stop()


def test_a_kill_ends_blocking_calls_at_once(process: ServerProcess) -> None:
    """End of file tells every thread, the one that waits on the socket and those behind it."""
    with (
        TensorClient(process.url, liveness=NEVER_S) as client,
        ThreadPoolExecutor() as threads,
    ):
        warmed(client, process)
        waiting = [threads.submit(call) for call in calls(client)]
        until(lambda: outstanding(client))
        process.kill()
        for call in waiting:
            assert_told(call.exception(PATIENCE_S), process)


def test_a_kill_ends_futures_at_once(process: ServerProcess) -> None:
    """The one thread that completes futures hears of it too."""
    with TensorClient(process.url, liveness=NEVER_S) as client:
        warmed(client, process)
        futures: list[Future[Any]] = [
            client.submit("pull", "large"),
            client.submit("push", "small", None, 2),
            client.submit("pull_many", ["small", ("large", [3, 1])]),
        ]
        until(lambda: outstanding(client))
        assert not any(future.done() for future in futures)
        process.kill()
        for future in futures:
            assert_told(future.exception(PATIENCE_S), process)


def test_a_kill_ends_tasks_at_once(process: ServerProcess) -> None:
    """And so does an event loop, for everything that it awaits."""

    async def each(client: AsyncTensorClient) -> None:
        async for _ in client.pull_each(["large", "small"]):
            pass

    async def main() -> None:
        async with TensorClient(process.url, liveness=NEVER_S) as client:
            assert same(await client.pull("small"), SMALL)
            await client.tensor("large")
            process.stop()
            tasks = [
                asyncio.create_task(client.pull("large")),
                asyncio.create_task(client.push("small", None, 2)),
                asyncio.create_task(each(client)),
            ]
            await asyncio.sleep(0)
            process.kill()
            async with asyncio.timeout(PATIENCE_S):
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            for error in ended:
                assert_told(error, process)

    asyncio.run(main())


def test_a_kill_in_the_middle_of_an_answer(process: ServerProcess) -> None:
    """A row that was cut off is not taken for one that came."""
    with TensorClient(process.url, liveness=NEVER_S) as client:
        client.tensor("large")
        for _ in range(20):
            futures = [client.submit("pull", "large") for _ in range(8)]
        process.kill()
        for future in futures:
            error = future.exception(PATIENCE_S)
            if error is None:
                assert same(future.result(), LARGE)
            else:
                assert_told(error, process)


@pytest.mark.parametrize("how", ["blocking", "futures", "asyncio"])
def test_a_stopped_server_is_given_up_when_it_was_silent_for_long(
    process: ServerProcess, how: str
) -> None:
    """A network that is gone tells nobody; silence does."""

    async def awaited() -> None:
        async with TensorClient(process.url, liveness=SILENCE_S) as client:
            await client.pull("small")
            await client.tensor("large")
            process.stop()
            with pytest.raises(BrokenError) as caught:
                await client.pull("large")
            assert_told(caught.value, process)

    if how == "asyncio":
        asyncio.run(awaited())
        return
    with TensorClient(process.url, liveness=SILENCE_S) as client:
        warmed(client, process)
        pull = client.pull if how == "blocking" else partial(submitted, client)
        with pytest.raises(BrokenError) as caught:
            pull("large")
        assert_told(caught.value, process)
        process.go_on()
        until(lambda: _answers(client))


def submitted(client: TensorClient, name: str) -> Any:
    """A pull by a future."""
    return client.submit("pull", name).result(PATIENCE_S)


def _answers(client: TensorClient) -> bool:
    try:
        return same(client.pull("small", timeout=PATIENCE_S), SMALL)
    except BrokenError:
        return False


def test_a_deadline_ends_the_call_and_not_the_connection(process: ServerProcess) -> None:
    """What comes late lands in nobody's memory, and the next call is answered."""
    out = np.zeros((64, 16_384), "f4")
    with TensorClient(process.url, liveness=NEVER_S) as client:
        warmed(client, process)
        for method, arguments in (
            ("pull", ("large", None, out)),
            ("pull_many", (["small", "large"],)),
            ("push", ("small", 3, 1)),
        ):
            with pytest.raises(DeadlineError):
                getattr(client, method)(*arguments, timeout=0.05)
            with pytest.raises(DeadlineError):
                client.submit(method, *arguments, timeout=0.05).result(PATIENCE_S)  # type: ignore[arg-type]
        with pytest.raises(DeadlineError):
            list(client.pull_each(["large"], timeout=0.05))
        process.go_on()
        out[...] = 0
        assert same(client.pull("large", None, out), LARGE)
        assert client.metrics()["connections"] == 1


def test_a_deadline_on_an_event_loop(process: ServerProcess) -> None:
    """The same, awaited, with looking up names among it."""

    async def main() -> None:
        async with TensorClient(process.url, liveness=NEVER_S) as client:
            await client.pull("small")
            process.stop()
            with pytest.raises(DeadlineError):
                await client.pull("small", timeout=0.05)
            with pytest.raises(DeadlineError):
                await client.pull("large", timeout=0.05)  # whose name is not known yet
            process.go_on()
            assert same(await client.pull("large"), LARGE)

    asyncio.run(main())


def test_a_cancelled_future_frees_its_caller(process: ServerProcess) -> None:
    """Memory of what was cancelled is kept until no server writes it; the rest goes on."""
    with TensorClient(process.url, liveness=NEVER_S) as client:
        warmed(client, process)
        futures = [client.submit("pull", "large") for _ in range(4)]
        until(lambda: outstanding(client))
        assert all(future.cancel() for future in futures[:3])
        assert all(future.cancelled() for future in futures[:3])
        process.go_on()
        assert same(futures[3].result(PATIENCE_S), LARGE)
        assert not futures[3].cancel()
        assert same(client.pull("small"), SMALL)


def test_a_cancelled_task_frees_its_loop(process: ServerProcess) -> None:
    """The same for tasks: cancelled while waiting, in the middle of each kind of call."""

    async def main() -> None:
        async with TensorClient(process.url, liveness=NEVER_S) as client:
            await client.pull("small")
            await client.tensor("large")
            process.stop()
            for method, arguments in (
                ("pull", ("large",)),
                ("push", ("small", None, 5)),
                ("pull_many", (["small", "large"],)),
            ):
                task = asyncio.create_task(getattr(client, method)(*arguments))
                await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            process.go_on()
            assert same(await client.pull("large"), LARGE)

    asyncio.run(main())


def test_close_ends_what_is_outstanding(process: ServerProcess) -> None:
    """Nobody waits for a client that was closed."""
    from forebay.errors import ClosedError

    with ThreadPoolExecutor() as threads:
        client = TensorClient(process.url, liveness=NEVER_S)
        warmed(client, process)
        waiting = [threads.submit(call) for call in calls(client)]
        futures = [client.submit("pull", "large") for _ in range(3)]
        until(lambda: outstanding(client))
        client.close()
        for call in [*waiting, *futures]:
            assert isinstance(call.exception(PATIENCE_S), ClosedError)
        with pytest.raises(ClosedError):
            client.pull("small")
        with pytest.raises(ClosedError):
            client.submit("pull", "small")
        client.close()


def test_a_restart_between_calls_is_not_noticed(tmp_path: Path) -> None:
    """A server that came back at the same place is asked for its names again."""
    url = f"unix://{tmp_path}/server.sock"
    first = ServerProcess(url, 1.0)
    with TensorClient(url, connect_timeout=2.0) as client:
        assert same(client.pull("small"), SMALL)
        first.kill()
        second = ServerProcess(url, 2.0)
        try:
            assert same(client.pull("small"), SMALL * 2)
            assert same(client.submit("pull", "small").result(PATIENCE_S), SMALL * 2)
        finally:
            second.kill()
        with pytest.raises(BrokenError) as caught:
            client.pull("small")
        assert caught.value.delivered == "no"


def test_ctrl_c_ends_a_pull(process: ServerProcess) -> None:
    """Whoever waits at a terminal is not held by a server that says nothing."""
    program = (
        "import sys\n"
        "from forebay.tensor import TensorClient\n"
        f"with TensorClient({process.url!r}, liveness={NEVER_S}) as client:\n"
        "    client.tensor('large')\n"
        "    sys.stdout.write('ready'); sys.stdout.flush(); sys.stdin.readline()\n"
        "    sys.stderr.write('pulling'); sys.stderr.flush()\n"
        "    try:\n"
        "        client.pull('large')\n"
        "    except KeyboardInterrupt:\n"
        "        sys.stdout.write('interrupted')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stderr is not None
        assert client.stdout.read(5) == "ready"
        process.stop()
        client.stdin.write("\n")
        client.stdin.flush()
        assert client.stderr.read(7) == "pulling"
        until(lambda: state_of(client.pid) == "S")
        client.send_signal(signal.SIGINT)
        out, _ = client.communicate(timeout=PATIENCE_S)
        assert (client.returncode, out) == (0, "interrupted")
