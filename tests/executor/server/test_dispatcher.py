"""The dispatcher with workers of a real pool, without a store: under `forebay.Executor`."""

from __future__ import annotations

import operator
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec import msgpack

import forebay
from forebay import _core
from tests.executor.server.calling import Supervisor
from tests.pool.processes import eventually

RESULT, RAISED, FAILURE = 0, 1, 2
SETTINGS: dict[str, Any] = {
    "workers_max": 2,
    "guaranteed": (0, 0, 0),
    "burst_run_ms_min": 0,
    "worker_idle_ms": 3_600_000,
    "cores_milli": 2_000,
}


@pytest.fixture
def dispatcher() -> Iterator[_core.Dispatcher]:
    """A dispatcher without a store and a socket."""
    made = _core.Dispatcher(SETTINGS)
    yield made
    made.close()


@pytest.fixture
def supervisor(dispatcher: _core.Dispatcher) -> Iterator[Supervisor]:
    """Workers for it, as it asks for them."""
    with forebay.ServicePool(max_size=4, name="workers") as pool:
        made = Supervisor(dispatcher, pool)
        yield made
        dispatcher.close()
        made.join()


def submit(
    dispatcher: _core.Dispatcher, function: Callable[..., Any], *values: Any, **options: Any
) -> int:
    """Submit a call; its ticket."""
    asked = msgpack.encode(options) if options else None
    return dispatcher.submit("@call", pickle.dumps((function, values)), asked)


def finished(dispatcher: _core.Dispatcher, count: int) -> dict[int, tuple[int, bytes]]:
    """The ends of so many tickets."""
    ends: dict[int, tuple[int, bytes]] = {}
    deadline = time.monotonic() + 20
    while len(ends) < count:
        took = dispatcher.finished(deadline - time.monotonic())
        assert took, f"{len(ends)} of {count} ended; {dispatcher.figures()}"
        ends |= {ticket: (end, payload) for ticket, end, payload in took}
    return ends


def wait_for_start(path: os.PathLike[str]) -> int:
    """Called in a worker: say its process id, and stay."""
    with open(path, "w") as told:
        told.write(str(os.getpid()))
    signal.pause()
    return 0


def test_results_come_back_by_their_tickets(
    dispatcher: _core.Dispatcher, supervisor: Supervisor
) -> None:
    """A thousand submissions at once get each its own result, from two workers."""
    tickets = {submit(dispatcher, operator.add, n, 1): n for n in range(1_000)}
    ends = finished(dispatcher, 1_000)
    assert {t: (end, pickle.loads(payload)) for t, (end, payload) in ends.items()} == {
        ticket: (RESULT, n + 1) for ticket, n in tickets.items()
    }
    # On a busy machine the first may have done everything before the second runs.
    assert eventually(lambda: len(supervisor.leases) == 2)


def test_what_the_work_raised_comes_back_as_its_worker_sent_it(
    dispatcher: _core.Dispatcher, supervisor: Supervisor
) -> None:
    """An exception is no failure of the executor: its own encoding travels through."""
    ticket = submit(dispatcher, operator.truediv, 1, 0)
    end, payload = finished(dispatcher, 1)[ticket]
    assert end == RAISED
    assert isinstance(pickle.loads(payload), ZeroDivisionError)


def test_large_arguments_and_results_travel_beside_their_heads(
    dispatcher: _core.Dispatcher, supervisor: Supervisor
) -> None:
    """Megabytes go through as well as bytes."""
    ticket = submit(dispatcher, operator.mul, b"x" * 3_000_000, 2)
    end, payload = finished(dispatcher, 1)[ticket]
    assert (end, len(pickle.loads(payload))) == (RESULT, 6_000_000)


def test_a_killed_worker_fails_its_request_and_no_other(
    dispatcher: _core.Dispatcher, supervisor: Supervisor, tmp_path: Any
) -> None:
    """One death is one failure, with its cause; the next request gets a new worker."""
    victim = submit(dispatcher, wait_for_start, tmp_path / "pid")
    neighbour = submit(dispatcher, operator.add, 1, 2)
    assert finished(dispatcher, 1)[neighbour][0] == RESULT
    pid = int(_content(tmp_path / "pid"))
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    end, payload = finished(dispatcher, 1)[victim]
    assert end == FAILURE
    assert b'"kind":"died","cause":"signal"' in payload
    assert f'"pid":{pid}'.encode() in payload
    assert time.monotonic() - began < 10
    again = submit(dispatcher, operator.add, 2, 3)
    assert finished(dispatcher, 1)[again][0] == RESULT


def test_what_waits_is_cancelled_and_what_runs_is_not(
    dispatcher: _core.Dispatcher, supervisor: Supervisor, tmp_path: Any
) -> None:
    """A cancelled ticket tells nothing more, as its future has ended already."""
    running = [submit(dispatcher, wait_for_start, tmp_path / f"pid{n}") for n in range(2)]
    waiting = submit(dispatcher, operator.add, 1, 2)
    pids = [int(_content(tmp_path / f"pid{n}")) for n in range(2)]
    assert dispatcher.cancel(waiting)
    assert not dispatcher.cancel(waiting), "it has ended"
    assert not dispatcher.cancel(running[0])
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert set(finished(dispatcher, 2)) == set(running)
    assert dispatcher.finished(0) == []


def test_a_submission_beyond_the_limit_is_refused_by_its_ticket() -> None:
    """Nobody waits for ever for what was never queued."""
    dispatcher = _core.Dispatcher({**SETTINGS, "queued_max": 2})
    tickets = [submit(dispatcher, operator.add, 1, 2) for _ in range(3)]
    end, payload = finished(dispatcher, 1)[tickets[2]]
    assert end == FAILURE
    assert b"max_queued" in payload
    dispatcher.close()


def test_a_wrong_option_is_refused_before_anything_happens(dispatcher: _core.Dispatcher) -> None:
    """A misspelt option names the one that was meant."""
    with pytest.raises(forebay.ConfigError, match="priority"):
        submit(dispatcher, operator.add, 1, 2, priorty=3)
    with pytest.raises(forebay.ConfigError, match="unknown setting"):
        _core.Dispatcher({"worker_max": 2})


def test_a_held_dispatcher_says_why_nothing_runs(
    dispatcher: _core.Dispatcher, supervisor: Supervisor
) -> None:
    """A reload holds requests back and loses none."""
    dispatcher.hold("reloading")
    ticket = submit(dispatcher, operator.add, 1, 2)
    assert dispatcher.figures()["held"] == "reloading"
    assert dispatcher.figures()["unfinished"] == 1
    assert dispatcher.workers() == []
    dispatcher.hold(None)
    assert finished(dispatcher, 1)[ticket][0] == RESULT


def test_a_drained_dispatcher_ends_what_runs_and_takes_nothing(
    dispatcher: _core.Dispatcher, supervisor: Supervisor, tmp_path: Any
) -> None:
    """SIGTERM of a server waits for what runs, for as long as it was told."""
    running = submit(dispatcher, wait_for_start, tmp_path / "pid")
    pid = int(_content(tmp_path / "pid"))
    assert not dispatcher.drain(0.05)
    late = submit(dispatcher, operator.add, 1, 2)
    assert finished(dispatcher, 1)[late][0] == FAILURE
    os.kill(pid, signal.SIGKILL)
    assert dispatcher.drain(10)
    assert set(finished(dispatcher, 1)) == {running}


def test_whoever_waits_returns_when_woken_and_when_closed(dispatcher: _core.Dispatcher) -> None:
    """A server's threads end when their dispatcher does."""
    with ThreadPoolExecutor(3) as threads:
        waits = [dispatcher.orders, dispatcher.calls, dispatcher.finished]
        woken = [threads.submit(wait, None) for wait in waits]
        dispatcher.wake()
        assert [one.result(10) for one in woken] == [[], [], []]
        closed = [threads.submit(wait, None) for wait in waits]
        dispatcher.close()
        assert [one.result(10) for one in closed] == [None, None, None]
    with pytest.raises(forebay.ClosedError):
        submit(dispatcher, operator.add, 1, 2)


def _content(path: os.PathLike[str]) -> str:
    """What a worker has written there, once it has."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            with open(path) as told:
                if text := told.read():
                    return text
        except FileNotFoundError:
            pass
        os.sched_yield()
    raise AssertionError(f"nothing was written to {path}")
