"""Streams of results that threads read, from a process that serves them in a thread."""

from __future__ import annotations

import gc
import itertools
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.errors import (
    BrokenError,
    BusyError,
    ClosedError,
    DeadlineError,
    LimitError,
    RemoteError,
    StaleError,
)
from forebay.rpc import Channel
from forebay.rpc._serve_stream import STREAMS_MAX

from .conftest import Service, wait_for


def take(items: Any, count: int) -> list[Any]:
    return list(itertools.islice(items, count))


@pytest.mark.parametrize("codec", ["pickle", "msgpack"])
@pytest.mark.parametrize("credit", [1, 2, 3, 16, 65_536])
def test_items_arrive_in_order_and_then_the_end(
    streaming: Service, codec: str, credit: int
) -> None:
    """A stream is the list that the method would have returned, whatever is on its way at once."""
    with streaming.channel(codec=codec) as channel:
        assert list(channel.stream("count", (500,), credit=credit)) == list(range(500))
        assert list(channel.stream("count", (0,), credit=credit)) == []
        assert channel.metrics()["in_flight"] == 0


def test_an_iterator_that_is_returned_is_a_stream_too(streams: Channel) -> None:
    """A method need not be a generator itself."""
    stream = streams.stream("listed", kwargs={"count": 20})
    assert list(stream) == list(range(20))
    assert next(stream, None) is None, "it stays at its end"


def test_large_arrays_come_through_whole(streams: Channel) -> None:
    """Items with buffers of their own are not joined or cut."""
    for number, array in enumerate(streams.stream("arrays", (20, 100_000))):
        assert array.shape == (100_000,)
        assert (array == number).all()


def test_what_is_called_wrongly_says_how_to_call_it(streams: Channel) -> None:
    """A stream of what is none, and a call of what is one, name the other."""
    with pytest.raises(TypeError, match="no iterator"):
        next(streams.stream("whole"))
    with pytest.raises(TypeError, match="by stream"):
        streams.call("count", (3,))
    with pytest.raises(AttributeError):
        next(streams.stream("nothing"))
    assert streams.call("echo", (5,)) == 5


def test_the_generator_waits_for_its_consumer(streams: Channel) -> None:
    """A slow consumer holds the producer: at most `credit` items are made beyond what it took."""
    with streams.stream("count", credit=10) as stream:
        assert next(stream) == 0
        made = [streams.call("progress") for _ in range(20)]
        assert made[-1] <= 11
        assert take(stream, 30) == list(range(1, 31))
        assert streams.call("progress") <= 31 + 10


def test_a_call_between_two_items_is_answered(streams: Channel) -> None:
    """Who calls while it iterates does not wait for a stream that waits for it."""
    seen = [
        (item, streams.call("echo", (item,))) for item in streams.stream("count", (100,), credit=4)
    ]
    assert seen == [(number, number) for number in range(100)]


def test_streams_of_one_connection_interleave(streams: Channel) -> None:
    """Several streams are read in any order, also one inside of the other."""
    first = streams.stream("count", (100,), credit=3)
    second = streams.stream("arrays", (100, 5_000), credit=2)
    for number, (one, array) in enumerate(zip(first, second, strict=True)):
        assert one == number
        assert (array == number).all()
        if number % 30 == 0:
            assert list(streams.stream("count", (50,), credit=3)) == list(range(50))


def test_open_streams_of_a_connection_are_limited(streams: Channel) -> None:
    """Streams that nobody reads do not add up without end; one that ends makes room."""
    waiting = [streams.stream("count", credit=1) for _ in range(STREAMS_MAX)]
    assert [next(stream) for stream in waiting] == [0] * STREAMS_MAX
    with pytest.raises(RemoteError, match="STREAMS_MAX is 1024"):
        next(streams.stream("count"))
    assert streams.call("echo", (1,)) == 1
    waiting.pop().close()
    assert list(streams.stream("count", (3,))) == [0, 1, 2]
    for stream in waiting:
        stream.close()


def test_threads_share_a_connection(streams: Channel) -> None:
    """Streams and calls of several threads get their own items and answers."""
    wrong: list[Any] = []

    def read(size: int) -> None:
        got = list(streams.stream("count", (size,), credit=5))
        if got != list(range(size)):
            wrong.append(got)

    def call(offset: int) -> None:
        numbers = range(offset, offset + 200)
        wrong.extend(n for n in numbers if streams.call("echo", (n,)) != n)

    threads = [threading.Thread(target=read, args=(700 + n,)) for n in range(4)]
    threads += [threading.Thread(target=call, args=(n * 1000,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert wrong == []


@pytest.mark.parametrize("how", ["close", "with", "break"])
def test_leaving_early_closes_the_generator(streams: Channel, how: str) -> None:
    """However a stream is left, the generator's `finally` runs, and the channel goes on."""
    if how == "with":
        with streams.stream("count") as stream:
            assert next(stream) == 0
    elif how == "close":
        stream = streams.stream("count")
        assert take(stream, 3) == [0, 1, 2]
        stream.close()
        stream.close()
        assert list(stream) == []
    else:
        for item in streams.stream("count"):
            if item == 5:
                break
        gc.collect()
    wait_for(lambda: bool(streams.call("logged")))
    assert streams.call("logged") == ["left", "closed"]
    assert streams.metrics()["in_flight"] == 0


def test_what_a_closed_generator_raises_harms_nobody(streams: Channel) -> None:
    """A `finally` that fails costs a line in the service's log, not the service."""
    with streams.stream("bad_close") as stream:
        assert next(stream) == 0
    wait_for(lambda: streams.call("logged") == ["closed"])


def test_a_stream_that_never_yields_can_be_left(streams: Channel, tmp_path: Path) -> None:
    """A method that hangs frees its caller at the deadline, and sees that it was left."""
    begun = tmp_path / "begun"
    with pytest.raises(DeadlineError):
        next(streams.stream("stuck", (str(begun),), timeout=0.2))
    assert begun.exists()
    wait_for(lambda: streams.call("logged") == ["cancelled"])


def test_ctrl_c_frees_a_reader_and_leaves_the_stream(streams: Channel, tmp_path: Path) -> None:
    """An interrupted thread goes on at once, and the method sees that it was left."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    stream = streams.stream("stuck", (str(tmp_path / "begun"),))
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            next(stream)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert streams.call("logged") == ["cancelled"]
    assert list(stream) == []


def test_an_exception_comes_after_the_items_before_it(streams: Channel) -> None:
    """What was yielded is not lost because of what came later."""
    stream = streams.stream("fail_after", (40,))
    assert take(stream, 40) == list(range(40))
    with pytest.raises(ValueError, match="after 40") as caught:
        next(stream)
    assert isinstance(caught.value, RemoteError)
    assert "fail_after" in caught.value.traceback_text
    assert list(stream) == []


def test_an_item_that_cannot_be_sent_ends_the_stream(streams: Channel) -> None:
    """The caller learns of it, and the generator is closed."""
    stream = streams.stream("unsendable_after", (3,))
    assert take(stream, 3) == [0, 1, 2]
    with pytest.raises(RemoteError):
        next(stream)
    assert streams.call("logged") == ["closed"]


def test_the_deadline_is_that_of_the_whole_stream(streams: Channel) -> None:
    """Items that keep coming do not put it off, and the generator is closed."""
    got: list[int] = []
    with pytest.raises(DeadlineError) as caught:
        got.extend(streams.stream("slow", (0.01,), timeout=0.3))
    assert caught.value.timeout == 0.3
    wait_for(lambda: streams.call("logged") == ["closed"])


def test_the_server_ends_a_stream_whose_consumer_forgot_it(streams: Channel) -> None:
    """Past the deadline a generator is not held for a caller that asks for nothing more."""
    stream = streams.stream("count", timeout=0.2, credit=2)
    assert next(stream) == 0
    wait_for(lambda: bool(streams.call("logged")))
    with pytest.raises(DeadlineError):
        take(stream, 100)


def test_the_method_knows_how_much_time_remains(streams: Channel) -> None:
    """`rpc.current()` is the stream's own call, also while others run."""
    with streams.stream("remaining", timeout=50.0) as timed, streams.stream("remaining") as free:
        for _ in range(40):
            assert 0 < next(timed) <= 50.001
            assert next(free) is None


def test_a_service_killed_in_mid_stream(streaming: Service) -> None:
    """The items that it sent are given, then BrokenError says that it had begun."""
    with streaming.channel() as channel:
        stream = channel.stream("die_after", (10,))
        got = []
        with pytest.raises(BrokenError) as caught:
            got.extend(iter(stream.__next__, None))
        assert caught.value.delivered == "maybe"
        assert list(stream) == []
        with pytest.raises(BrokenError) as caught:
            channel.stream("count")
        assert caught.value.delivered == "no"


def test_closing_the_channel_ends_its_streams(streams: Channel) -> None:
    """No thread waits for ever on a closed channel."""
    stream = streams.stream("count")
    assert next(stream) == 0
    streams.close()
    with pytest.raises(ClosedError):
        take(stream, 100)


def test_a_channel_that_closes_with_a_stream_open_leaves_the_service_usable(
    streaming: Service,
) -> None:
    """The generator of a caller that vanished is closed, and the process ends its loop."""
    with streaming.channel() as channel:
        assert next(channel.stream("count")) == 0
        stream = channel.stream("count")
        assert next(stream) == 0
    assert streaming.process.wait(20) == 0


def test_a_later_lease_ends_the_streams_of_the_one_before(streams: Channel) -> None:
    """A generator does not run on into another lease, and its caller is told."""
    stream = streams.stream("count", generation=1)
    assert next(stream) == 0
    assert streams.call("echo", (1,), generation=2) == 1
    assert streams.call("logged", generation=2) == ["left", "closed"]
    with pytest.raises(BrokenError):
        take(stream, 100)
    with pytest.raises(StaleError):
        next(streams.stream("count", generation=1))


def test_bad_credit_is_refused(streams: Channel) -> None:
    """Nothing is sent for a credit that no stream can have."""
    for credit in (0, 65_537):
        with pytest.raises(LimitError) as caught:
            streams.stream("count", credit=credit)
        assert caught.value.value == credit
    assert streams.call("progress") == 0


def test_a_second_thread_is_refused(streams: Channel, tmp_path: Path) -> None:
    """Two threads on one stream would share its items by chance."""
    begun = tmp_path / "begun"
    stream = streams.stream("stuck", (str(begun),))
    waiter = threading.Thread(target=lambda: next(stream, None))
    waiter.start()
    wait_for(lambda: stream._busy)
    with pytest.raises(BusyError):
        next(stream)
    stream.close()
    waiter.join(20)
    assert not waiter.is_alive()


def test_closing_frees_threads_that_wait(streaming: Service, tmp_path: Path) -> None:
    """A stream that hangs is closed from another thread, whichever thread reads the socket."""
    with streaming.channel() as channel:
        stuck = [channel.stream("stuck", (str(tmp_path / name),)) for name in "ab"]
        waiters = [threading.Thread(target=next, args=(stream, None)) for stream in stuck]
        for waiter, stream in zip(waiters, stuck, strict=True):
            waiter.start()
            wait_for(lambda stream=stream: stream._busy)
        streaming.process.send_signal(signal.SIGSTOP)  # nothing is confirmed
        for waiter, stream in zip(waiters, stuck, strict=True):
            stream.close()
            waiter.join(20)
            assert not waiter.is_alive()


def peak_while(channel: Channel, stream: Iterator[Any], count: int) -> int:
    most = 0
    for number, block in enumerate(stream):
        assert int.from_bytes(block[:8], "little") == number
        most = max(most, channel.metrics()["inbox_bytes"])
    assert number == count - 1
    return most


def test_a_thousand_items_of_a_megabyte_need_little_memory(streams: Channel) -> None:
    """A gigabyte passes; at no time is more than a few items at either end."""
    before = streams.call("peak_bytes")
    size = 1_000_000
    most = peak_while(streams, streams.stream("blocks", (1000, size), credit=64), 1000)
    assert most < (2 << 20) + size, "the window of bytes, and the item that crossed it"
    assert streams.call("peak_bytes") - before < 12 * size


def test_a_thousand_arrays_of_a_megabyte_need_little_memory(streams: Channel) -> None:
    """What is lent rather than sent comes back as fast as it is consumed."""
    assert len(list(streams.stream("arrays", (3, 10)))) == 3  # numpy is there
    before = streams.call("peak_bytes")
    for number, array in enumerate(streams.stream("arrays", (1000, 125_000), credit=64)):
        assert array[0] == array[-1] == number
    assert number == 999
    assert streams.call("peak_bytes") - before < 12_000_000


def test_a_slow_consumer_of_large_items_holds_the_producer(streams: Channel) -> None:
    """Bytes stop a stream that has credit left, and calls go on meanwhile."""
    stream = streams.stream("blocks", (100, 500_000), credit=1000)
    assert len(next(stream)) == 500_000
    for _ in range(20):
        made = streams.call("progress")
    assert made <= 6
    assert streams.metrics()["inbox_bytes"] <= (2 << 20) + 500_000
    assert len(list(stream)) == 99


def test_a_stream_beside_submitted_calls(streams: Channel) -> None:
    """While the reader thread reads, a stream in a thread follows it."""
    futures = [streams.submit("echo", (number,)) for number in range(20)]
    assert list(streams.stream("count", (100,))) == list(range(100))
    assert [future.result(20) for future in futures] == list(range(20))


def test_arrays_of_a_stream_are_their_own(streams: Channel) -> None:
    """An item that is kept keeps nothing else alive, and may be written to."""
    kept = list(streams.stream("arrays", (5, 10_000)))
    for number, array in enumerate(kept):
        array += 1
        assert np.all(array == number + 1)
