"""Submitted calls where the kernel or the program refuses the reader thread something."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest

from forebay import rpc
from forebay._core import Connection
from forebay.errors import BrokenError, ClosedError, DeadlineError
from forebay.rpc import Channel
from forebay.rpc._reader import reader
from forebay.rpc.client.channel_set import Entry
from forebay.rpc.client.retry import Retry
from forebay.rpc.client.submission import Submission

from .conftest import ROOT, Service, descriptors, wait_for

LIMITED = """
import contextlib, resource, sys, threading
import forebay.rpc._reader
from tests.rpc.conftest import Service, descriptors

def no_descriptors():
    return resource.RLIMIT_NOFILE, 3

def no_thread():
    threading.stack_size(1 << 30)
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[0])
    return resource.RLIMIT_AS, (pages << 12) + (64 << 20)

service = Service()
with service.channel() as channel:
    assert channel.call("echo", (0,), timeout=20) == 0
    before = descriptors()
    what, limit = globals()[sys.argv[1]]()
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (limit, hard))
    for _ in range(3):
        try:
            channel.submit("echo", (1,))
        except (OSError, RuntimeError) as error:
            refused = error
    resource.setrlimit(what, (soft, hard))
    threading.stack_size(0)
    print(type(refused).__name__, refused)
    assert descriptors() == before, (before, descriptors())
    assert channel.metrics()["in_flight"] == 0, channel.metrics()
    assert channel.call("echo", (2,), timeout=20) == 2
    assert channel.submit("echo", (3,)).result(20) == 3
    assert channel.call("echo", (4,), timeout=20) == 4
service.close()
"""


@pytest.mark.parametrize(
    ("want", "said"),
    [("no_descriptors", "OSError [Errno 24]"), ("no_thread", "RuntimeError can't start new")],
)
def test_a_reader_that_cannot_start_costs_the_calls_that_asked_for_it(want: str, said: str) -> None:
    """A moment without descriptors or threads must not hang the channel's later calls for ever."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, want],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(said), done.stdout


@pytest.mark.parametrize("which", ["socket", "process"])
def test_a_channel_that_cannot_be_watched_is_usable_later(channel: Channel, which: str) -> None:
    """What the kernel does not watch now is undone whole, so that the next call is read for."""
    taken = channel._connection.fileno() if which == "socket" else channel._pidfd
    before = descriptors()
    epoll = reader()._epoll
    epoll.register(taken, 0)
    try:
        with pytest.raises(FileExistsError):
            channel.submit("echo", (1,))
    finally:
        epoll.unregister(taken)
    assert channel.metrics()["in_flight"] == 0
    assert channel.call("echo", (2,), timeout=20) == 2
    assert channel.submit("echo", (3,)).result(20) == 3
    assert channel.call("echo", (4,), timeout=20) == 4
    assert descriptors() == before


class WithoutMemory(logging.Handler):
    """A log for whose lines there is no memory."""

    def emit(self, record: logging.LogRecord) -> None:
        raise MemoryError


@pytest.fixture
def log_without_memory() -> Iterator[None]:
    """Have every line of the reader's log raise."""
    handler = WithoutMemory()
    log = logging.getLogger("forebay.rpc._reader")
    log.addHandler(handler)
    yield
    log.removeHandler(handler)


class Failing(dict[int, Any]):
    """Futures by call, of which the reader thread cannot take all: the second one fails."""

    taken = 0

    def pop(self, *args: Any) -> Any:
        self._count()
        return super().pop(*args)

    def __delitem__(self, call: int) -> None:
        self._count()
        super().__delitem__(call)

    def _count(self) -> None:
        if threading.current_thread().name == "forebay-rpc-reader":
            self.taken += 1
            if self.taken == 2:
                raise MemoryError


class NoCancel:
    """A connection on which there is no memory for cancelling."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def cancel(self, call: int) -> None:
        raise MemoryError


@pytest.mark.leaks(reason="the errors' tracebacks hold the channel")
def test_a_step_that_fails_ends_every_call_that_it_met(
    channel: Channel, service: Service, log_without_memory: None, tmp_path: Path
) -> None:
    """A call whose answer was taken already must not wait for ever because another one failed."""
    assert channel.submit("echo", (1,)).result(20) == 1
    submitted, begun = channel._submitted, tmp_path / "begun"
    assert submitted is not None
    submitted._futures = Failing()
    service.process.send_signal(signal.SIGSTOP)
    futures = [channel.submit("echo", (at,)) for at in range(5)]
    futures.append(channel.submit("wait", (20.0, str(begun))))
    with submitted._lock:  # so that one step finds all answers
        service.process.send_signal(signal.SIGCONT)
        wait_for(begun.exists)
    assert not wait(futures, 20).not_done
    assert futures[0].result() == 0
    assert isinstance(futures[5].exception(), BrokenError)
    assert channel.submit("echo", (2,)).result(20) == 2


@pytest.mark.leaks(reason="the errors' tracebacks hold the channel")
def test_a_call_that_cannot_be_cancelled_keeps_no_other_from_ending(
    channel: Channel, log_without_memory: None
) -> None:
    """Deadlines of all channels hold, whatever went wrong while another call was ended."""
    other = Service()
    with other.channel() as second:
        assert channel.submit("echo", (1,)).result(20) == 1
        submitted = channel._submitted
        assert submitted is not None
        failing: Any = NoCancel(channel._connection)
        submitted._connection = failing
        futures = [channel.submit("wait", (0.5,)), channel.submit("wait", (0.5,), timeout=0.1)]
        answered = channel.submit("wait", (0.01,))
        with submitted._lock:  # so that the reader, held by that answer, finds both timers due
            futures.append(second.submit("wait", (20.0,), timeout=0.1))
            # What other tests left is due much later.
            wait_for(
                lambda: not any(0 <= at - time.monotonic() < 5 for at, _, _ in reader()._timers)
            )
        assert not wait([*futures, answered], 20).not_done
        assert isinstance(futures[0].exception(), BrokenError)
        assert isinstance(futures[1].exception(), DeadlineError)
        assert isinstance(futures[2].exception(), DeadlineError)
        assert second.submit("echo", (2,)).result(20) == 2
    other.close()


AGAIN = """
import contextlib, resource, threading
from concurrent.futures import Future
from forebay import rpc
from forebay.errors import BrokenError
from forebay.rpc.client.channel_set import Entry
from forebay.rpc.client.retry import Retry
from forebay.rpc.client.submission import Submission

client = rpc.Client("unix:///nobody/listens", timeout=0.05)

def submission():
    retry = Retry(client._target, None)
    return Submission(client._channels, client._resender, ("echo", (1,), None), retry)

with contextlib.suppress(BrokenError):
    client.call("echo", (1,))  # what is imported on first use is there
refused: Future[None] = Future()
refused.set_exception(BrokenError("the server left", delivered="no"))
entry = Entry(None, 1)
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
threading.stack_size(1 << 30)
with open("/proc/self/statm") as statm:
    pages = int(statm.read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, ((pages << 12) + (64 << 20), hard))
lost = submission()
refused.add_done_callback(lambda sent: lost._on_sent_end(entry, sent))
error = lost.future.exception(20)
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
threading.stack_size(0)
print(type(error).__name__, error)
assert not client._resender._waiting
later = submission()
refused.add_done_callback(lambda sent: later._on_sent_end(entry, sent))
print(type(later.future.exception(20)).__name__)
"""


def test_a_call_that_no_thread_can_send_again_ends() -> None:
    """A moment without threads must not leave the future of a client's call open for ever."""
    done = subprocess.run(
        [sys.executable, "-c", AGAIN],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "RuntimeError can't start new thread\nBrokenError\n"


def test_the_thread_that_sends_again_outlives_a_moment_without_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call that is sent again later needs it, and nobody starts it anew."""
    failures = iter([MemoryError, MemoryError])
    with rpc.Client(f"unix://{tmp_path}/nobody", timeout=0.3) as client:
        resender = client._resender
        go_on = resender._next

        def fail_first() -> Any:
            for failure in failures:
                raise failure
            return go_on()

        monkeypatch.setattr(resender, "_next", fail_first)
        retry = Retry(client._target, None)
        late = Submission(client._channels, resender, ("echo", (1,), None), retry)
        resender.add(late, 0.0)
        assert isinstance(late.future.exception(20), BrokenError)


def test_a_call_whose_place_is_lost_ends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Giving back a connection may fail for want of memory; its caller still waits."""
    ended: Future[int] = Future()
    ended.set_result(7)
    with rpc.Client(f"unix://{tmp_path}/nobody", timeout=0.3) as client:
        retry = Retry(client._target, None)
        call = ("echo", (1,), None)
        late = Submission(client._channels, client._resender, call, retry)

        def refuse(entry: Entry) -> None:
            raise MemoryError(entry)

        monkeypatch.setattr(client._channels, "put", refuse)
        with pytest.raises(MemoryError):
            late._on_sent_end(Entry(None, 1), ended)  # type: ignore[arg-type]
        assert late.future.result(0) == 7


@contextlib.contextmanager
def held(*locks: Any) -> Iterator[None]:
    """Another thread holds these locks."""
    holds, lets_go = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            holds.set()
            lets_go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holds.wait(20)
    yield
    lets_go.set()
    thread.join()


def test_a_forked_child_can_leave_a_client_whose_locks_were_held(tmp_path: Path) -> None:
    """A lock that another thread held at the fork must not hang a child as it ends."""
    with rpc.Client(f"unix://{tmp_path}/nobody", timeout=0.05) as client:
        awaited = rpc.AsyncClient(client.url)
        with held(
            client._channels._changed,
            client._channels._closing._cond,  # type: ignore[attr-defined]
            client._resender._changed,
            awaited._lock,
        ):
            client._channels._channels._opening = 1  # that thread was about to open one
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                status = 1
                try:
                    with pytest.raises(BrokenError):
                        client.call("echo", (1,))
                    with pytest.raises(BrokenError):
                        client.submit("echo", (1,)).result(10)
                    assert client.connections == awaited.connections == 0
                    client.close()
                    with pytest.raises(ClosedError):
                        client.call("echo", (1,))
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
        client._channels._channels._opening = 0
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(BrokenError):
            client.call("echo", (1,))
