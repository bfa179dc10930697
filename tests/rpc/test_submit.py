"""Calls whose futures the reader thread completes."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
import weakref
from concurrent.futures import CancelledError, Future, wait
from pathlib import Path
from typing import Any

import pytest

from forebay import rpc
from forebay.errors import BrokenError, ClosedError, DeadlineError
from forebay.rpc import Channel
from forebay.rpc._reader import reader
from forebay.rpc.client.retry import Retry
from forebay.rpc.client.submission import Submission

from .conftest import ROOT, Service, wait_for


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


def leave(_: Future[Any]) -> None:
    """What an application does in a callback when it wants to end."""
    sys.exit(3)


def test_a_callback_that_exits_ends_no_other_call(channel: Channel, service: Service) -> None:
    """SystemExit of one callback must not hang every submitted call of the process."""
    slow = channel.submit("wait", (0.2,))
    slow.add_done_callback(leave)
    beside = [channel.submit("echo", (at,)) for at in range(20)]
    for future in beside:
        with contextlib.suppress(SystemExit):  # where it is done already
            future.add_done_callback(leave)
    assert slow.result(20) == "not cancelled"
    assert [future.result(20) for future in beside] == list(range(20))
    assert channel.submit("echo", (1,), timeout=20).result(20) == 1
    with pytest.raises(DeadlineError):
        channel.submit("wait", (20.0,), timeout=0.05).result(20)
    assert readers() == 1


def test_a_callback_that_exits_leaves_the_thread_that_sends_again(tmp_path: Path) -> None:
    """A client's later calls are sent again too, whatever the callback of an earlier one raised."""
    with rpc.Client(f"unix://{tmp_path}/nobody", timeout=0.05) as client:
        for _ in range(3):
            future: Future[Any] = Future()
            submission = Submission(
                client._channels,
                client._resender,
                ("echo", (1,), None),
                Retry(client._target, None),
            )
            submission.future.add_done_callback(leave)
            client._resender.add(submission, 0.0)
            future = submission.future
            assert isinstance(future.exception(20), BrokenError)


OUT_OF_MEMORY = """
import resource, sys
from tests.rpc.conftest import Service
service, other = Service(), Service()
with service.channel() as channel, other.channel() as second:
    assert channel.submit("echo", (1,)).result(20) == 1
    assert second.submit("echo", (1,)).result(20) == 1
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[0])
    large = channel.submit("large", (1 << 28,))
    resource.setrlimit(resource.RLIMIT_AS, ((pages << 12) + (64 << 20),) * 2)
    error = large.exception(20)
    print(type(error).__name__, error)
    assert second.submit("echo", (2,)).result(20) == 2
    assert channel.closed or channel.broken or channel.submit("echo", (3,)).exception(20) is None
service.close()
other.close()
"""


def test_a_result_that_does_not_fit_memory_ends_its_call_alone() -> None:
    """Want of memory in the reader thread is told to the calls that it met, and nobody hangs."""
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "no memory for 2684354" in done.stdout, done.stdout


def test_a_finished_call_leaves_no_timer(channel: Channel) -> None:
    """A long time-out must not keep every call of a day, and its channel, in memory."""
    before = reader().timers
    for _ in range(20):
        futures = [channel.submit("echo", (at,), timeout=600) for at in range(100)]
        assert [future.result(20) for future in futures] == list(range(100))
    wait_for(lambda: reader().timers <= before + 100)


def test_a_dropped_channel_does_not_wait_for_its_timers() -> None:
    """A channel that is gone lets go of its descriptors, not in ten minutes."""
    service = Service()
    channel = service.channel()
    assert channel.submit("echo", (1,), timeout=600).result(20) == 1
    dropped = weakref.ref(channel._submitted)
    del channel

    def gone() -> bool:
        gc.collect()
        return dropped() is None

    wait_for(gone)
    service.close()


def test_timers_end_in_their_order_beside_cancelled_ones(channel: Channel) -> None:
    """Throwing away what was cancelled keeps the others' times."""
    hung = [channel.submit("wait", (20.0,), timeout=0.3 - 0.1 * at) for at in range(3)]
    calls = [channel.submit("wait", (20.0,), timeout=600) for _ in range(100)]
    assert all(future.cancel() for future in calls)
    for future in reversed(hung):
        assert isinstance(future.exception(20), DeadlineError)


def test_a_forked_child_submits_by_itself(channel: Channel, service: Service) -> None:
    """A lock that another thread held at the fork does not hang the child's calls."""
    assert channel.submit("echo", (1,)).result(20) == 1
    submitted = channel._submitted
    assert submitted is not None
    with rpc._reader._process.lock, submitted._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            status = 1
            try:
                own = Service()
                with own.channel() as other:
                    answer = other.submit("echo", (2,), timeout=10).result(10)
                own.close()
                channel.close()
                status = 0 if answer == 2 else 2
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert channel.submit("echo", (3,)).result(20) == 3
