"""The event loop: what asyncio promises, and callbacks from inside its wait."""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from forebay.errors import ConfigError
from forebay.transport import EventLoop, new_event_loop


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    """A loop that runs nothing yet."""
    made = new_event_loop()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        yield near, far


def test_a_runner_takes_it_as_its_factory():
    """One argument to asyncio's own Runner is all that a program changes."""

    async def main() -> type:
        await asyncio.sleep(0)
        return type(asyncio.get_running_loop())

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert issubclass(runner.run(main()), EventLoop)
    with asyncio.Runner(loop_factory=functools.partial(new_event_loop, spin_us=10)) as runner:
        runner.run(main())


def test_a_spin_above_its_limit_is_refused():
    """A loop that held the GIL for longer would stop every other thread of the program."""
    with pytest.raises(ConfigError, match="spin_us is 501, the limit is 500"):
        new_event_loop(spin_us=501)


def test_a_future_completed_in_a_callback_wakes_its_task_in_the_same_turn(
    loop: EventLoop, pair: tuple[socket.socket, socket.socket]
):
    """A message costs one wait of the loop, not two."""
    near, far = pair
    selector = loop.forebay_selector
    waits = []

    async def main() -> None:
        came = loop.create_future()

        def on_ready(events: int) -> None:
            assert events == 1
            near.recv(1)
            waits.append(selector.metrics()["waits"])
            came.set_result(None)

        selector.attach(near.fileno(), 1, on_ready)
        far.send(b"x")
        await came
        waits.append(selector.metrics()["waits"])
        assert selector.detach(near.fileno())

    loop.run_until_complete(main())
    assert waits[0] == waits[1]


def test_a_callback_that_raises_is_told_and_stays(
    loop: EventLoop, pair: tuple[socket.socket, socket.socket]
):
    """One bad message does not silence a connection, nor end the loop."""
    near, far = pair
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))

    def on_ready(events: int) -> None:
        near.recv(1)
        if len(told) == 2:
            loop.stop()
        raise ValueError(len(told))

    loop.forebay_selector.attach(near.fileno(), 1, on_ready)
    far.send(b"abc")
    loop.run_forever()
    assert [str(context["exception"]) for context in told] == ["0", "1", "2"]
    assert "on_ready" in told[0]["message"]


def test_ctrl_c_in_a_callback_ends_the_loop(
    loop: EventLoop, pair: tuple[socket.socket, socket.socket]
):
    """An interruption is not swallowed as an error of a connection."""
    near, far = pair

    def on_ready(events: int) -> None:
        raise KeyboardInterrupt

    loop.forebay_selector.attach(near.fileno(), 1, on_ready)
    far.send(b"x")
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()


def test_a_timer_is_never_early(loop: EventLoop):
    """A deadline is not reached before its time, though the kernel counts in milliseconds."""

    async def main() -> list[float]:
        early = []
        for delay in (0.0001, 0.0013, 0.0107):
            start = loop.time()
            await asyncio.sleep(delay)
            early.append(loop.time() - start - delay)
        return early

    assert all(late >= 0 for late in loop.run_until_complete(main()))


def test_cancelled_timers_are_cleared_away(loop: EventLoop):
    """A program that sets a timeout per message does not keep them all."""

    async def main() -> int:
        for _ in range(10):
            for _ in range(100):
                loop.call_later(1000, print).cancel()
            await asyncio.sleep(0)
        return len(loop._scheduled)  # type: ignore[attr-defined]

    assert loop.run_until_complete(main()) < 250


@pytest.mark.parametrize("debug", [False, True])
def test_a_closed_loop_refuses_work(debug: bool):
    """What is scheduled too late is an error, not lost."""
    loop = new_event_loop()
    loop.set_debug(debug)
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.call_soon(print)


def test_another_thread_wakes_a_sleeping_loop(loop: EventLoop):
    """`call_soon_threadsafe` reaches a loop that waits without the GIL."""
    selector = loop.forebay_selector

    def wake() -> None:
        deadline = time.monotonic() + 10
        while not selector.metrics()["sleeps"] and time.monotonic() < deadline:
            time.sleep(0.001)  # until the loop sleeps
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=wake)
    thread.start()
    loop.run_forever()
    thread.join()
    assert selector.metrics()["sleeps"] >= 1
