"""Calls whose futures the reader thread completes."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, wait
from pathlib import Path

import pytest

from forebay.errors import BrokenError, ClosedError, DeadlineError
from forebay.rpc import Channel

from .conftest import Service, wait_for


def readers() -> int:
    return sum(thread.name == "forebay-rpc-reader" for thread in threading.enumerate())


def test_futures_complete_in_one_thread(channel: Channel) -> None:
    """Many calls are in flight without a thread for each."""
    futures = [channel.submit("echo", (at,)) for at in range(200)]
    assert [future.result(20) for future in futures] == list(range(200))
    assert readers() == 1


def test_a_future_carries_the_remote_exception(channel: Channel) -> None:
    """What the method raised is raised by result()."""
    with pytest.raises(ValueError, match="spilled"):
        channel.submit("fail", ("spilled",)).result(20)


def test_blocking_calls_go_on_beside_submitted_ones(channel: Channel) -> None:
    """A thread may call while futures are open, and afterwards."""
    slow = channel.submit("wait", (0.2,))
    assert channel.call("echo", (1,), timeout=20) == 1
    assert slow.result(20) == "not cancelled"
    assert channel.call("echo", (2,), timeout=20) == 2


def test_a_submitted_call_joins_a_blocked_one(channel: Channel) -> None:
    """The reader thread takes over from a thread that reads already."""
    blocked = threading.Thread(target=channel.call, args=("wait", (0.3,)))
    blocked.start()
    wait_for(lambda: channel.metrics()["in_flight"] == 1)
    assert channel.submit("echo", (1,)).result(20) == 1
    blocked.join(20)
    assert not blocked.is_alive()


def test_cancelling_a_future_cancels_the_call(channel: Channel, tmp_path: Path) -> None:
    """The service learns that nobody waits."""
    begun = tmp_path / "begun"
    future = channel.submit("wait", (20.0, str(begun)))
    wait_for(begun.exists)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(0)
    assert channel.call("noted", timeout=20) == ["cancelled"]


def test_a_future_has_a_deadline(channel: Channel) -> None:
    """A hung service does not hold a future for ever."""
    with pytest.raises(DeadlineError, match=r"within 0\.1 s; give a longer timeout="):
        channel.submit("wait", (20.0,), timeout=0.1).result(20)
    assert channel.call("noted", timeout=20) == ["cancelled"]


def test_death_and_closing_end_futures(service: Service) -> None:
    """Every future is completed, whatever happens to its channel."""
    with service.channel() as channel:
        open_ones = [channel.submit("wait", (20.0,)) for _ in range(3)]
        service.kill()
        done = wait(open_ones, 20).done
        assert all(isinstance(future.exception(), BrokenError) for future in done)
        assert len(done) == 3
    other = Service()
    channel = other.channel()
    waiting = channel.submit("wait", (20.0,))
    channel.close()
    assert isinstance(waiting.exception(20), ClosedError)
    other.close()
