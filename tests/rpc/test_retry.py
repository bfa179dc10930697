"""What a client's call names as its time when that time is over."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest

from forebay import rpc
from forebay.errors import DeadlineError
from forebay.rpc._target import Target, client_target
from forebay.rpc.client.retry import Retry
from forebay.rpc.client.task_channels import TaskChannels
from forebay.rpc.client.thread_channels import ThreadChannels

from .conftest import Run
from .handlers import Handler, Place, place

__all__ = ["place"]

OPENING_S = 0.03
"""Seconds that opening a connection takes here, of the time of each call."""

TIMEOUT_S = 0.2


class Endless(Handler):
    """Its stream gives one item and no further one."""

    async def one(self) -> Any:
        yield 1
        await asyncio.Event().wait()


@pytest.fixture
def slow_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every connection take a part of the call's time."""
    opened, opened_on_loop = Target.open, Target.open_on_loop

    def slow(self: Target, *args: Any) -> Any:
        time.sleep(OPENING_S)
        return opened(self, *args)

    async def slow_on_loop(self: Target, *args: Any) -> Any:
        await asyncio.sleep(OPENING_S)
        return await opened_on_loop(self, *args)

    monkeypatch.setattr(Target, "open", slow)
    monkeypatch.setattr(Target, "open_on_loop", slow_on_loop)


def call(client: rpc.Client) -> None:
    client.call("wait", timeout=TIMEOUT_S)


def submit(client: rpc.Client) -> None:
    client.submit("wait", timeout=TIMEOUT_S).result(10)


def stream(client: rpc.Client) -> None:
    list(client.stream("one", timeout=TIMEOUT_S))


async def call_on_loop(client: rpc.AsyncClient) -> None:
    await client.call("wait", timeout=TIMEOUT_S)


async def stream_on_loop(client: rpc.AsyncClient) -> None:
    async for _ in client.stream("one", timeout=TIMEOUT_S):
        pass


async def acted(place: Place, url: str, act: Any) -> None:
    """Run one of the above on a new client of its kind."""
    if asyncio.iscoroutinefunction(act):
        async with rpc.AsyncClient(url, **place.calling) as client:
            await act(client)
    else:
        with rpc.Client(url, **place.calling) as blocking:
            await asyncio.to_thread(act, blocking)


@pytest.mark.usefixtures("slow_opening")
@pytest.mark.parametrize("act", [call, submit, stream, call_on_loop, stream_on_loop])
def test_a_late_call_names_the_timeout_that_its_caller_gave(
    run: Run, place: Place, act: Any
) -> None:
    """Opening a connection takes a part of the time; the caller knows only the whole."""

    async def work() -> None:
        async with place.serve(Endless()) as server:
            with pytest.raises(DeadlineError) as caught:
                await acted(place, server.url, act)
            assert caught.value.timeout == TIMEOUT_S
            assert f"within {TIMEOUT_S} s" in str(caught.value)
            assert ("stream" in act.__name__) == ("the stream of" in str(caught.value))

    run(work())


def test_a_late_opening_names_the_timeout_of_the_call(run: Run) -> None:
    """Another attempt was made before it, and took a part of the call's time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        target = client_target(url, None, None, 10.0, "msgpack", 1)

        def begun() -> Retry:
            retry = Retry(target, TIMEOUT_S)
            time.sleep(OPENING_S)
            return retry

        async def work() -> None:
            await TaskChannels(target, 1, asyncio.get_running_loop()).take(begun())

        for act in (lambda: ThreadChannels(target, 1).take(begun()), lambda: run(work())):
            with pytest.raises(DeadlineError, match="asks for a token") as caught:
                act()
            assert caught.value.timeout == TIMEOUT_S
            assert f"within {TIMEOUT_S} s" in str(caught.value)


def test_a_late_opening_names_the_time_for_connecting_where_that_is_shorter() -> None:
    """It is what ran out, and what the user may raise."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        target = client_target(url, None, None, 0.1, "msgpack", 1)
        with pytest.raises(DeadlineError, match=r"within 0\.1 s") as caught:
            ThreadChannels(target, 1).take(Retry(target, 10.0))
        assert caught.value.timeout == 0.1


def test_an_error_of_another_deadline_is_left_as_it_is() -> None:
    """The body of a stream's loop may raise one of its own."""
    retry = Retry(client_target("tcp://127.0.0.1:1", None, None, 1.0, "msgpack", 1), 5.0)
    retry.left()
    for error in (DeadlineError("other", timeout=0.3), DeadlineError("other"), ValueError(), None):
        assert retry.named(error) is error
