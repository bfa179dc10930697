"""Blocking calls to a service in another process."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from forebay.errors import (
    BrokenError,
    ClosedError,
    DeadlineError,
    LimitError,
    RemoteError,
    StaleError,
)
from forebay.rpc import Channel

from .conftest import Service, descriptors, wait_for


@pytest.mark.parametrize(
    "value",
    [None, 1, "text", b"x" * 100, b"x" * 200_000, [1, {"a": (2.5, None)}], {1, 2}, 10**40],
    ids=lambda value: type(value).__name__,
)
def test_values_come_back_as_they_went(channel: Channel, value: Any) -> None:
    """A caller gets what the method returned, of whatever type and size."""
    assert channel.call("echo", (value,)) == value
    assert channel.call("echo", (1,), {"key": value}) == ((1,), {"key": value})


@pytest.mark.parametrize("size", [0, 10, 3_000, 1_250_000])
def test_arrays_arrive_writable_and_unchanged(channel: Channel, size: int) -> None:
    """A service may compute in place on what it got; the caller's array stays as it was."""
    array = np.arange(size, dtype=float)
    assert channel.call("touch", (array,)) == array.sum() + size
    assert np.array_equal(array, np.arange(size))
    back = channel.call("echo", (array,))
    assert np.array_equal(back, array)
    back[:] = 0


def test_remote_exceptions_keep_their_builtin_type_text_and_traceback(channel: Channel) -> None:
    """`except ValueError` works across processes, and the remote line can be found."""
    with pytest.raises(ValueError, match="Trouble: spilled") as caught:
        channel.call("fail", ("spilled",))
    error = caught.value
    assert isinstance(error, RemoteError)
    assert error.type_name == "__main__.Trouble"
    assert "in fail" in error.traceback_text
    assert channel.call("echo", (1,)) == 1


def test_private_methods_and_unknown_ones_are_refused(channel: Channel) -> None:
    """Nobody calls what is not public."""
    for name in ("_secret", "__init__", "nothing", "seen"):
        with pytest.raises(AttributeError):
            channel.call(name)
    assert channel.call("noted") == []


def test_an_answer_that_cannot_be_sent_is_an_error_of_that_call(channel: Channel) -> None:
    """A result that does not pickle leaves the service alive."""
    with pytest.raises(TypeError):
        channel.call("unpicklable")
    assert channel.call("echo", (1,)) == 1


def test_control_methods_go_past_the_handler(channel: Channel) -> None:
    """The pool can reset a service whatever its methods are called."""
    assert channel.call("@reset", (1,)) == ["@reset", 1]


def test_oneway_calls_keep_their_place(channel: Channel) -> None:
    """A one-way call runs before a later call on the same channel, and its error harms nobody."""
    channel.send_oneway("note", ("first",))
    channel.send_oneway("fail", ("unseen",))
    assert channel.call("noted") == ["first"]


def test_a_deadline_cancels_the_call_and_keeps_the_channel(channel: Channel) -> None:
    """A caller that ran out of time may go on; the service learns of it."""
    began = time.monotonic()
    with pytest.raises(DeadlineError) as caught:
        channel.call("wait", (20.0,), timeout=0.1)
    assert caught.value.timeout == 0.1
    assert time.monotonic() - began < 5
    assert channel.call("noted") == ["cancelled"]
    assert channel.metrics()["in_flight"] == 0


def test_the_server_knows_what_time_remains(channel: Channel) -> None:
    """Deadlines travel."""
    remaining = channel.call("remaining", timeout=5.0)
    assert 0 < remaining <= 5.001
    assert channel.call("remaining") is None


def test_a_service_killed_in_mid_call_is_reported(service: Service) -> None:
    """Death is an error of the call within milliseconds, and says that the work may have begun."""
    with service.channel() as channel, pytest.raises(BrokenError) as caught:
        channel.call("die")
    assert caught.value.delivered == "maybe"


def test_a_death_is_noticed_although_a_grandchild_holds_the_socket(service: Service) -> None:
    """The pidfd tells what end-of-file cannot."""
    with service.channel() as channel:
        orphan = channel.call("leave_orphan")
        try:
            with pytest.raises(BrokenError, match="process ended"):
                channel.call("die", timeout=20)
            with pytest.raises(BrokenError) as caught:
                channel.call("echo", (1,))
            assert caught.value.delivered == "no"
        finally:
            os.kill(orphan, signal.SIGKILL)


def test_a_stopped_service_does_not_hold_its_caller(service: Service) -> None:
    """SIGSTOP looks like a hang; the deadline ends it."""
    with service.channel() as channel:
        assert channel.call("echo", (1,)) == 1
        service.process.send_signal(signal.SIGSTOP)
        with pytest.raises(DeadlineError):
            channel.call("echo", (2,), timeout=0.1)
        service.process.send_signal(signal.SIGCONT)
        assert channel.call("echo", (3,), timeout=20) == 3


def test_an_interrupted_caller_cancels_and_the_channel_stays_usable(channel: Channel) -> None:
    """Ctrl-C frees the caller at once and reaches the service."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            channel.call("wait", (20.0,))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert channel.call("noted") == ["cancelled"]


def test_a_signal_handler_that_returns_does_not_end_the_wait(channel: Channel) -> None:
    """Python's handlers run while a call waits, also in a thread that only follows."""
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    leader = threading.Thread(target=channel.call, args=("wait", (2.0,)))
    leader.start()
    try:
        wait_for(lambda: channel.metrics()["in_flight"] == 1)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert channel.call("echo", (1,)) == 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    leader.join(20)
    assert seen == [signal.SIGALRM]


def test_older_generations_are_refused(channel: Channel) -> None:
    """A lease that ended cannot call any more."""
    channel.generation = 5
    assert channel.call("echo", (1,)) == 1
    channel.generation = 4
    with pytest.raises(StaleError):
        channel.call("echo", (1,))


def test_many_threads_share_one_channel(channel: Channel) -> None:
    """Every thread gets its own answers, whoever reads them."""

    def work(thread: int) -> None:
        for round_ in range(100):
            value = (thread, round_, b"x" * (round_ % 5 * 30_000))
            assert channel.call("echo", (value,), timeout=20) == value

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert channel.metrics()["in_flight"] == 0


def test_a_forked_child_cannot_use_the_channel_and_does_not_harm_it(channel: Channel) -> None:
    """Two writers in one stream would corrupt it; the child is told, the parent goes on."""
    assert channel.call("echo", (1,)) == 1
    child = os.fork()
    if child == 0:
        status = 1
        try:
            channel.call("echo", (2,))
        except ClosedError:
            channel.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert channel.call("echo", (3,)) == 3


def test_closing_ends_calls_of_other_threads(channel: Channel) -> None:
    """Nobody waits for ever on a closed channel."""
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(channel.call, "wait", (20.0,))
        wait_for(lambda: channel.metrics()["in_flight"] == 1)
        channel.close()
        with pytest.raises(ClosedError):
            waiting.result(20)
    assert channel.closed
    with pytest.raises(ClosedError):
        channel.call("echo", (1,))


def test_no_descriptor_is_left(service: Service) -> None:
    """Channels come and go; descriptors do not pile up."""
    service.channel().close()
    before = descriptors()
    for _ in range(5):
        other = Service()
        with other.channel() as channel:
            assert channel.call("echo", (1,)) == 1
        del channel
        other.close()
    assert descriptors() <= before


def test_the_text_of_a_remote_exception_is_its_own(channel: Channel) -> None:
    """Builtins whose text comes from attributes must not lose it on the way."""
    with pytest.raises(UnicodeDecodeError) as caught:
        channel.call("decode", (b"\xff",))
    assert str(caught.value) == (
        "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
    )
    with pytest.raises(KeyError) as missing:
        channel.call("lookup", ("nothing",))
    assert str(missing.value) == "'nothing'"


def test_an_async_method_of_a_service_is_refused_with_advice(channel: Channel) -> None:
    """A service runs no event loop: advice to use rpc.serve helps nobody who has a pool."""
    with pytest.raises(TypeError, match=r"'later' is async.*asyncio\.run\(\) inside"):
        channel.call("later")


def test_what_no_frame_holds_is_refused_with_advice_both_ways(channel: Channel) -> None:
    """A caller learns the limit and the way round it, of results as of arguments."""
    large = np.zeros((1 << 30) + 1, np.uint8)  # pages of zeros that nobody touches
    advice = r"frame_bytes_max: \d+ is above the limit of 1073741824; .*in parts.*as a stream"
    with pytest.raises(LimitError, match=advice) as caught:
        channel.call("touch", (large,))
    assert caught.value.limit == 1 << 30
    with pytest.raises(LimitError, match=advice) as remote:
        channel.call("zeros", ((1 << 30) + 1,), timeout=60)
    assert isinstance(remote.value, RemoteError)
    assert channel.call("echo", (1,)) == 1
