"""Large arguments and results by reference, with a service in a process of its own."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay._core import Connection, sweep_lent
from forebay.errors import BrokenError
from forebay.rpc import Channel, serve_connection
from forebay.testing import chaos

from .conftest import Service
from .lending_service import Handler

THRESHOLD = 128 << 10
MEGABYTE = 1 << 20
DEADLINE_S = 20.0


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service("tests.rpc.lending_service")
    yield service
    service.close()


def lent(channel: Channel) -> int:
    return channel.metrics()["lent_segments"]


def full(size: int, value: int) -> Any:
    return np.full(size, value, np.uint8)


@pytest.fixture
def channel(service: Service) -> Iterator[Channel]:
    """A channel over which both ends have agreed to lend."""
    with service.channel() as channel:
        for _ in range(2):
            channel.call("echo", (full(THRESHOLD, 1),))
        yield channel


@pytest.mark.parametrize("size", [THRESHOLD - 1, THRESHOLD, THRESHOLD + 1, MEGABYTE, 20 * MEGABYTE])
def test_arrays_of_all_sizes_arrive_as_they_were_sent(channel: Channel, size: int) -> None:
    """Values are right on both sides of the threshold, call after call."""
    for number in range(4):
        array = np.arange(number, size + number, dtype=np.uint32).astype(np.uint8)
        before = channel.metrics()
        result = channel.call("echo", (array,))
        assert np.array_equal(result, array)
        after = channel.metrics()
        by_socket = after["sent_bytes"] - before["sent_bytes"]
        assert (by_socket < 1000) == (size >= THRESHOLD)


def test_a_kept_argument_stays_as_it_was(channel: Channel) -> None:
    """The caller's memory is not used again while the service has a view of it."""
    for value in range(1, 6):
        channel.call("keep", (full(MEGABYTE, value),))
    assert lent(channel) == 5
    for value in range(50, 60):
        assert channel.call("sum", (full(MEGABYTE, value),)) == value * MEGABYTE
    assert channel.call("kept_sums") == [value * MEGABYTE for value in range(1, 6)]


def test_memory_comes_back_when_views_are_dropped(channel: Channel) -> None:
    """Each lent segment is counted, and is none once nobody reads it."""
    channel.call("sum", (full(MEGABYTE, 1),))
    assert lent(channel) == 0
    channel.call("keep", (full(MEGABYTE, 1),))
    assert lent(channel) == 1
    channel.call("forget")
    assert lent(channel) == 0


def test_a_result_outlives_calls_the_connection_and_the_service(
    service: Service, channel: Channel
) -> None:
    """What was received stays readable and unchanged whatever becomes of its sender."""
    kept = [channel.call("give", (MEGABYTE, value)) for value in range(4)]
    part = kept[3][100:200]
    for _ in range(8):
        channel.call("give", (MEGABYTE, 99))
    channel.close()
    service.kill()
    assert [int(array[0]) for array in kept] == [0, 1, 2, 3]
    assert all((array == array[0]).all() for array in kept)
    del kept
    assert (part == 3).all()


def test_arguments_may_be_written_and_nobody_else_sees_it(channel: Channel) -> None:
    """An array is its receiver's own: neither its sender nor the next call sees a change."""
    for number in range(70):  # where they are written, copies take over for a while
        array = full(MEGABYTE, 3)
        assert channel.call("fill", (array, number)) == number * MEGABYTE
        assert (array == 3).all()
        assert channel.call("sum", (full(MEGABYTE, 5),)) == 5 * MEGABYTE


def test_results_may_be_written(channel: Channel) -> None:
    """A result is the caller's own, too."""
    for value in range(4):
        result = channel.call("give", (MEGABYTE, value))
        result += 7
        assert (result == value + 7).all()


def test_a_forked_child_keeps_what_was_received(channel: Channel) -> None:
    """What a child inherited does not change when its parent gives the memory back."""
    channel.call("keep", (full(MEGABYTE, 5),))
    channel.call("fork")
    channel.call("forget")
    assert lent(channel) == 0
    for _ in range(4):
        channel.call("sum", (full(MEGABYTE, 9),))
    assert channel.call("sums_of_child") == str(5 * MEGABYTE)


def test_a_service_that_dies_with_views_leaves_nothing(service: Service) -> None:
    """Its loans end with its process; then neither descriptors nor mappings are left."""
    with chaos.nothing_left():
        channel = service.channel()
        for _ in range(2):
            channel.call("echo", (full(THRESHOLD, 1),))
        channel.call("keep", (full(MEGABYTE, 1),))
        assert lent(channel) == 1
        service.kill()
        with pytest.raises(BrokenError):
            channel.call("kept_sums")
        channel.close()


def test_a_closed_connection_lends_until_its_reader_is_done(service: Service) -> None:
    """A socket that closes ends no view: the memory stays until the reading process has ended."""
    channel = service.channel()
    for _ in range(2):
        channel.call("echo", (full(THRESHOLD, 1),))
    channel.call("keep", (full(MEGABYTE, 1),))
    service.process.send_signal(signal.SIGSTOP)  # it can neither read nor drop anything
    channel.close()
    sweep_lent()
    assert mapped() == 1
    service.kill()
    until = time.monotonic() + DEADLINE_S
    while mapped():
        assert time.monotonic() < until
        sweep_lent()


def test_where_data_is_limited_arguments_are_copied_out(service: Service) -> None:
    """A service with little room for data maps what it borrows read-only, and gets copies."""
    with service.channel() as channel:
        channel.call("sum", (full(MEGABYTE, 1),))
        channel.call("limit_data", (8 * MEGABYTE,))
        for value in range(5):
            assert channel.call("fill", (full(MEGABYTE, 1), value)) == value * MEGABYTE
        assert channel.call("maps") == "r--s"
        assert lent(channel) == 0


CALLER = """
import sys, time
import numpy as np
from forebay._core import Connection
from forebay.rpc import Channel, serve_connection

channel = Channel(Connection(int(sys.argv[1])))
for value in range(3):
    channel.call("keep", (np.full(1 << 20, value, np.uint8),))
print("called", flush=True)
time.sleep(60)
"""


def test_what_a_caller_lent_outlives_it() -> None:
    """A caller that is killed takes no argument away; its memory goes with the last view."""
    ours, theirs = socket.socketpair()
    handler = Handler()
    with theirs:
        command = [sys.executable, "-c", CALLER, str(theirs.fileno())]
        caller = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, text=True
        )
    connection = Connection(ours.detach(), server=True)
    serving = threading.Thread(target=serve_connection, args=(connection, handler))
    serving.start()
    assert caller.stdout is not None
    with caller, caller.stdout:
        assert caller.stdout.readline() == "called\n"
        caller.kill()
    serving.join(DEADLINE_S)
    connection.close()
    assert mapped() == 1
    assert handler.kept_sums() == [0, MEGABYTE, 2 * MEGABYTE]
    handler.forget()
    assert mapped() == 0


def mapped() -> int:
    """Chunks that this process lends of or borrows."""
    return Path("/proc/self/maps").read_text().count("memfd:forebay:calls")


def test_an_end_that_does_not_want_it_gets_bytes(service: Service) -> None:
    """Where either end is told not to, nothing is lent, and all works as over a socket."""
    connection = Connection(service.socket.detach(), peer="service", by_reference=False)
    with Channel(connection, pidfd=service.pidfd) as channel:
        for value in range(3):
            assert channel.call("sum", (full(MEGABYTE, value),)) == value * MEGABYTE
        assert channel.metrics()["sent_bytes"] > 3 * MEGABYTE


def test_a_loop_lends_too(service: Service) -> None:
    """Many calls at once on an event loop arrive whole, and all of it comes back."""

    async def work(channel: Channel) -> None:
        for _ in range(2):
            await channel.on_loop.call("echo", (full(THRESHOLD, 1),))
        async with asyncio.TaskGroup() as tasks:
            calls = [
                tasks.create_task(channel.on_loop.call("echo", (full(MEGABYTE, value),)))
                for value in range(20)
            ]
        for value, call in enumerate(calls):
            assert (call.result() == value).all()
        del calls, call
        await channel.on_loop.call(
            "sum", (full(1, 1),)
        )  # the service has done with the last one before it
        assert lent(channel) == 0

    with service.channel() as channel:
        asyncio.run(work(channel))
        channel.unbind()
