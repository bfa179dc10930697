"""forebay.Executor does what concurrent.futures promises, and one death takes one call with it."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

import forebay
from tests.executor.futures import functions

WAIT_S = 20.0


@pytest.fixture
def executor() -> Iterator[forebay.Executor]:
    """Two workers."""
    with forebay.Executor(2) as made:
        yield made


def test_calls_run_in_other_processes_and_return(executor: forebay.Executor):
    """The point of it."""
    assert executor.submit(functions.double, 21).result(WAIT_S) == 42
    assert executor.submit(functions.pid).result(WAIT_S) != os.getpid()


def test_a_death_fails_one_future_with_its_cause_and_the_others_go_on(
    executor: forebay.Executor, tmp_path: Path
):
    """The standard library's pool fails every call with it, and takes no more."""
    gate = tmp_path / "gate"
    neighbour = executor.submit(functions.wait_for, str(gate))
    functions.reach(tmp_path / "gate.begun")
    killed = executor.submit(functions.kill_self)
    behind = [executor.submit(functions.double, number) for number in range(20)]
    error = killed.exception(WAIT_S)
    assert isinstance(error, forebay.DiedError)
    assert isinstance(error, BrokenProcessPool)
    assert (error.cause, error.signal) == ("signal", signal.SIGKILL)
    gate.touch()
    assert neighbour.result(WAIT_S) == str(gate)
    assert [future.result(WAIT_S) for future in behind] == [2 * n for n in range(20)]


def test_an_exit_is_told_with_its_code(executor: forebay.Executor):
    """A crash in a library can be told from a kill."""
    error = executor.submit(functions.exit_with, 3).exception(WAIT_S)
    assert isinstance(error, forebay.DiedError)
    assert (error.cause, error.exit_code) == ("exit", 3)


def test_as_many_calls_run_at_once_as_there_are_workers(tmp_path: Path):
    """Calls may wait for each other, as they may in the standard library's pool."""
    with forebay.Executor(6) as executor:
        names = [str(number) for number in range(6)]
        met = [executor.submit(functions.meet, str(tmp_path), name, 5) for name in names]
        assert len({future.result(WAIT_S) for future in met}) == 6


def test_no_more_calls_run_at_once_than_there_are_workers(
    executor: forebay.Executor, tmp_path: Path
):
    """`max_workers` is a limit."""
    folder, names = itertools.repeat(str(tmp_path)), map(str, range(12))
    assert max(executor.map(functions.count_at_once, folder, names)) <= 2


def test_calls_that_do_not_fit_the_memory_wait_for_each_other(tmp_path: Path):
    """With `memory=`, more workers than the machine holds do not end in the OOM killer."""
    with forebay.Executor(4, memory="100000GB") as executor:
        folder, names = itertools.repeat(str(tmp_path)), map(str, range(6))
        assert set(executor.map(functions.count_at_once, folder, names)) == {1}


def test_a_call_is_cancelled_until_it_begins(tmp_path: Path):
    """A future that says it is cancelled has never run."""
    with forebay.Executor(1) as executor:
        gate = tmp_path / "gate"
        running = executor.submit(functions.wait_for, str(gate))
        functions.reach(tmp_path / "gate.begun")
        queued = executor.submit(functions.remember, "cancelled")
        told: list[Future[None]] = []
        queued.add_done_callback(told.append)
        assert not running.cancel()
        assert queued.cancel()
        assert queued.cancel()
        assert told == [queued]
        assert wait([queued], timeout=0).done == {queued}
        gate.touch()
        assert running.result(WAIT_S) == str(gate)
        assert not running.cancel()
        assert executor.submit(functions.remembered).result(WAIT_S) == []


def test_what_a_call_raises_comes_with_the_workers_traceback(executor: forebay.Executor):
    """The line that failed is seen, as with the standard library's pool."""
    future = executor.submit(functions.raise_value_error)
    with pytest.raises(ValueError, match="no such thing") as raised:
        future.result(WAIT_S)
    assert "in raise_value_error" in str(raised.value.__cause__)


def test_what_cannot_be_pickled_is_the_calls_failure(executor: forebay.Executor):
    """Neither way breaks the executor."""
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(functions.remember, threading.Lock()).result(WAIT_S)
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(functions.not_to_be_pickled).result(WAIT_S)
    assert executor.submit(functions.double, 1).result(WAIT_S) == 2


def test_an_answer_that_cannot_be_made_fails_its_call_alone(executor: forebay.Executor):
    """The standard library's pool breaks."""
    error = executor.submit(functions.unmade).exception(WAIT_S)
    assert isinstance(error, BrokenProcessPool)
    assert isinstance(error.__cause__, LookupError)
    assert executor.submit(functions.double, 1).result(WAIT_S) == 2


def test_each_worker_is_initialised_once(tmp_path: Path):
    """What the initializer makes is there for every call, in every worker."""
    with forebay.Executor(2, initializer=functions.remember, initargs=("made",)) as executor:
        met = [executor.submit(functions.meet, str(tmp_path), name, 1) for name in "ab"]
        assert len({future.result(WAIT_S) for future in met}) == 2
        found = [executor.submit(functions.remembered) for _ in range(10)]
        assert all(future.result(WAIT_S) == ["made"] for future in found)


def test_an_initializer_that_fails_breaks_the_executor():
    """Nothing runs in a worker that is not as its program wants it."""
    with forebay.Executor(2, initializer=functions.raise_value_error) as executor:
        future = executor.submit(functions.double, 1)
        with pytest.raises(BrokenExecutor, match="no such thing"):
            future.result(WAIT_S)
        with pytest.raises(BrokenExecutor, match="no such thing"):
            executor.submit(functions.double, 1)


def test_map_reads_no_further_than_its_buffer(executor: forebay.Executor):
    """An endless iterable can be mapped, in bounded memory."""
    read: list[int] = []

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            read.append(number)
            yield number

    results = executor.map(functions.double, numbers(), buffersize=4)
    assert len(read) == 4
    assert [next(results) for _ in range(10)] == [2 * number for number in range(10)]
    assert len(read) == 14
    results.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("chunksize", [1, 3, 100])
def test_map_gives_results_in_order(executor: forebay.Executor, chunksize: int):
    """However calls travel."""
    results = executor.map(functions.double, range(50), chunksize=chunksize)
    assert list(results) == [2 * number for number in range(50)]


def test_a_worker_is_replaced_after_its_number_of_calls():
    """Leaks of an extension module end with its process."""
    with forebay.Executor(1, max_tasks_per_child=3) as executor:
        pids = [executor.submit(functions.pid).result(WAIT_S) for _ in range(7)]
    assert [pids[0]] * 3 == pids[:3]
    assert [pids[3]] * 3 == pids[3:6]
    assert len(set(pids)) == 3


@pytest.mark.parametrize(
    "wrong", [{"max_workers": 0}, {"max_tasks_per_child": 0}, {"memory": "lots"}]
)
def test_a_wrong_argument_is_refused_before_anything_starts(wrong: dict[str, object]):
    """As a ValueError, as in the standard library."""
    with pytest.raises(forebay.ConfigError) as raised:
        forebay.Executor(**wrong)  # type: ignore[arg-type]
    assert isinstance(raised.value, ValueError)


def test_functions_that_no_worker_can_import_go_by_value():
    """A closure with its variables, in `submit` and in `map`; the error says how otherwise."""
    pytest.importorskip(
        "cloudpickle", reason="cloudpickle is not installed: pip install cloudpickle"
    )
    factor = 6
    with forebay.Executor(1, by_value=True) as executor:
        assert executor.submit(lambda number: factor * number, 7).result(WAIT_S) == 42
        assert list(executor.map(lambda number: factor + number, range(3))) == [6, 7, 8]
        with pytest.raises(forebay.ConfigError, match=r"what was passed cannot go by value"):
            executor.submit(functions.double, threading.Lock()).result(WAIT_S)
        assert executor.submit(functions.double, 21).result(WAIT_S) == 42
