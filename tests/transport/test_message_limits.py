"""What stops a sender whose peer does not read, and limits that contradict each other."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from forebay.errors import BusyError, ConfigError, LimitError
from forebay.testing import connection_pair
from forebay.transport import AsyncConnection, ConnectionLimits, connect, listen
from forebay.transport._accept import Acceptor
from tests.loops import Run
from tests.transport.loops import echo, until


def test_senders_that_nobody_waits_for_are_stopped(run: Run) -> None:
    """A message that is not awaited is queued all the same, up to a limit that says its name."""
    limits = ConnectionLimits(max_outbox_bytes=1 << 20)

    async def main() -> None:
        async with connection_pair(limits=limits) as (near, far):
            await near.send(b"first")
            assert await far.recv() == [b"first"]
            waiting = 0

            def send() -> None:
                nonlocal waiting
                while waiting < 1_000:
                    near.send(bytes(50_000))
                    waiting += 1

            with pytest.raises(LimitError, match="max_outbox_bytes") as caught:
                send()
            assert caught.value.limit == 1 << 20
            assert near.metrics()["outbox_bytes"] < (1 << 20) + 60_000
            for _ in range(waiting):
                assert await far.recv() == [bytes(50_000)]
            await near.send(b"goes on")
            assert await far.recv() == [b"goes on"]

    run(main())


def test_a_fast_peer_does_not_keep_a_receiver_from_its_loop(run: Run) -> None:
    """A task that only receives lets timers and other tasks run between two turns."""

    async def main() -> None:
        flooding = asyncio.Event()

        async def flood(connection: AsyncConnection) -> None:
            flooding.set()
            message = [bytes(60_000)] * 8
            while True:
                await connection.send(message)

        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with (
            listen("tcp://127.0.0.1:0", flood) as listener,
            connect(listener.url) as connection,
        ):
            await flooding.wait()
            turning = asyncio.create_task(turn())
            received = 0
            while received < 64 << 20:
                message = await connection.recv()
                received += sum(map(len, message))
            turning.cancel()
            assert turns >= 8, "64 MiB are at least eight turns of the inbox and what comes between"

    run(main())


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"outbox_bytes_low": 2 << 20}, "outbox_bytes_low is 2097152, above outbox_bytes_high"),
        ({"outbox_bytes_high": 64 << 10}, "above outbox_bytes_high, which is 65536"),
        ({"max_inbox_bytes": 0}, "max_inbox_bytes is 0; it is 1 or more"),
        ({"max_message_bytes": -1}, "max_message_bytes is -1"),
        ({"max_frames": 65_536}, "max_frames is 65536; it is 65535 or less"),
    ],
)
def test_limits_that_cannot_hold_are_refused(wrong: dict[str, int], named: str) -> None:
    """A mistake is told where it is made, rather than as a sender that waits for ever."""
    with pytest.raises(ConfigError, match=named):
        ConnectionLimits(**wrong)


def test_another_thread_may_not_abort(run: Run) -> None:
    """Whoever waits would sleep on: only the loop's own thread wakes its tasks."""

    async def main() -> None:
        async with connection_pair() as (near, far):
            receiving = asyncio.ensure_future(far.recv())
            await asyncio.sleep(0)
            with pytest.raises(BusyError, match="another thread"):
                await asyncio.to_thread(far.abort)
            await near.send(b"still open")
            assert await receiving == [b"still open"]

    run(main())


class Exhausted:
    """A listening socket of a kernel that has no memory left, for a while."""

    def __init__(self) -> None:
        self.wanted, self._peer = os.pipe()
        os.write(self._peer, b"somebody waits")
        self.asked = 0

    def fileno(self) -> int:
        return self.wanted

    def accept(self) -> int | None:
        self.asked += 1
        raise OSError(errno.ENOBUFS, "No buffer space available")

    def close(self) -> None:
        os.close(self.wanted)
        os.close(self._peer)


def test_a_kernel_without_memory_is_asked_now_and_then(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """A door that stays ready does not keep the loop busy with errors."""

    async def main() -> None:
        door = Exhausted()
        acceptor = Acceptor("unix:///full", [door], lambda _: None)
        await until(lambda: door.asked == 2)
        acceptor.stop()
        assert caplog.text.count("accepts no connection") == 2

    run(main())


def test_an_aborted_end_leaves_no_descriptor(run: Run, tmp_path: Path) -> None:
    """Closing from the loop's thread takes the number away at once."""

    async def main() -> None:
        async with listen(f"unix://{tmp_path}/a.sock", echo) as listener:
            connection = await connect(listener.url)
            number = connection._core.fileno()
            connection.abort()
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(number)

    run(main())
