"""A worker that runs one request at a time, spoken to as its dispatcher does."""

from __future__ import annotations

import datetime
import json
import os
import pickle
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import msgpack

import forebay
from forebay.executor.wire.ids import number_of
from forebay.executor.worker.forks import INTERRUPT_SIGNAL
from forebay.executor.worker.worker import Worker
from forebay.pool import ServicePool, SharedPool
from tests.executor.worker.supervising import APP, PROGRESS, Slot, in_slot
from tests.executor.worker.worker_app import Point
from tests.pool.shared.lender import Lending


@pytest.fixture(scope="module")
def slot(tmp_path_factory: Any) -> Iterator[Slot]:
    """A worker for the tests that leave it as it was."""
    with in_slot(tmp_path_factory.mktemp("worker")) as made:
        yield made


@pytest.fixture
def own_seat(tmp_path: Path) -> Iterator[Slot]:
    """A worker for a test that ends it."""
    with in_slot(tmp_path) as made:
        yield made


def until_there(path: Path, content: str | None = None) -> None:
    """Wait for a file that a request makes."""
    deadline = time.monotonic() + 20
    while not path.exists() or (content is not None and path.read_text() != content):
        assert time.monotonic() < deadline, f"{path} never came to be"
        os.sched_yield()


def test_manifest_comes_from_the_template():
    """The server, which never imports the application, learns from it what there is."""
    with ServicePool(max_size=1) as pool, pool.acquire(Worker.spec("path", str(APP))) as worker:
        manifest = json.loads(worker.manifest())
    assert manifest["app"] == "worker-tests"
    assert manifest["sources"] == [str(APP)]
    assert [one["name"] for one in manifest["requests"]][:2] == ["noop", "echo"]
    assert manifest["services"] == [{"name": "Numbers", "min_idle": 2, "max_size": 0}]


def test_application_that_cannot_be_imported_is_told_with_its_traceback(tmp_path: Path):
    """The reason that a server holds its requests for is the author's own mistake."""
    path = tmp_path / "broken.py"
    path.write_text("import forebay\nraise LookupError('not today')\n")
    with (
        ServicePool(max_size=1) as pool,
        pytest.raises(forebay.Error, match="not today"),
        pool.acquire(Worker.spec("path", str(path))),
    ):
        pass


def test_module_is_imported_from_its_directory(tmp_path: Path):
    """`tune.py` imports what lies beside it, as when it is run."""
    (tmp_path / "beside.py").write_text("A = 3\n")
    (tmp_path / "tuner.py").write_text(
        "import forebay, beside\napp = forebay.App('t')\n"
        "@app.request()\ndef tune() -> int: return beside.A\n"
    )
    with (
        ServicePool(max_size=1) as pool,
        pool.acquire(Worker.spec("module", "tuner", "tune", str(tmp_path))) as worker,
    ):
        manifest = json.loads(worker.manifest())
    names = [Path(path).name for path in manifest["sources"]]
    assert (manifest["app"], names) == ("t", ["beside.py", "tuner.py"])


def test_result_comes_back(slot: Slot):
    """One request after another, in one process."""
    assert slot.run("noop") == ("ok", None)
    assert slot.run("echo", {"value": {"a": [1, b"x", None]}}) == ("ok", {"a": [1, b"x", None]})


def test_arguments_are_typed_and_defaults_are_the_function_s_own(slot: Slot):
    """A function is called as if its caller had imported it."""
    assert slot.run("add", {"first": 2}) == ("ok", 3.5)
    assert slot.run("add", {"first": 2, "second": 3, "scale": 2}) == ("ok", 10.0)
    at = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
    outcome = slot.run("typed", {"points": [Point(1, b"l")], "at": at})
    assert outcome == ("ok", ["Point", "bytes", at.isoformat()])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "`first`"),
        ({"first": "one"}, "Expected `int`, got `str` - at `first`"),
        ({"first": 1, "third": 1}, "unknown field `third`"),
    ],
)
def test_arguments_that_do_not_fit_are_named(slot: Slot, arguments: dict[str, Any], named: str):
    """Code may change between submission and run; then the request says what does not fit."""
    how, failure = slot.run("add", arguments)
    assert how == "failed"
    assert failure["builtin"] == "TypeError"
    assert "'add'" in failure["message"]
    assert named in failure["message"]


def test_large_arguments_and_results_travel_beside_the_head(own_seat: Slot):
    """Arrays of any size are arguments."""
    array = np.arange(100_000, dtype=np.float64)
    how, back = own_seat.run("echo", {"value": array})
    assert how == "ok"
    assert np.array_equal(back, array)


def test_context_tells_the_run(slot: Slot):
    """Which request, which attempt, until when."""
    outcome = slot.run("who", {"value": 7}, id="00000000000a", attempt=3, timeout=5.0)
    assert outcome == ("ok", [7, "00000000000a", 3, "who", True, None, None])
    span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    outcome = slot.run("who", {"value": 7}, traceparent=span, parent="000000000009")
    assert outcome[1][-2:] == [span, "000000000009"]


def test_failure_has_the_user_s_frames_only(slot: Slot):
    """A traceback begins in the application, not in its worker."""
    how, failure = slot.run("fail", {"text": "boo"})
    assert (how, failure["builtin"], failure["name"]) == ("failed", "ValueError", "ValueError")
    assert failure["message"] == "boo"
    lines = failure["trace"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "worker_app.py" in lines[1]
    assert "forebay/executor" not in failure["trace"]


def test_long_failure_is_cut_in_the_middle(own_seat: Slot):
    """A traceback of gigabytes is not kept in the store."""
    _, failure = own_seat.run("fail", {"text": "x" * 1_000_000})
    assert len(failure["message"]) < 11_000
    assert "left out" in failure["message"]


def test_result_that_is_no_data_fails_with_the_next_step(slot: Slot):
    """The author learns which request, which type, and what to return instead."""
    _, failure = slot.run("unsendable")
    assert "'unsendable'" in failure["message"]
    assert "builtins.object" in failure["message"]
    assert "numpy arrays" in failure["message"]


@pytest.mark.slow
def test_result_beyond_the_frame_limit_fails_by_name(own_seat: Slot):
    """It costs the request its result, not the server its worker."""
    how, failure = own_seat.run("big", {"size": 1 << 30})
    assert how == "failed"
    assert "too long to be sent" in failure["message"]
    assert own_seat.run("noop") == ("ok", None)


def test_exit_of_a_request_is_its_failure_and_not_the_worker_s(slot: Slot):
    """A script that calls sys.exit costs nobody a worker."""
    assert slot.run("leave", {"code": 3})[1]["builtin"] == "SystemExit"
    assert slot.run("noop") == ("ok", None)


def test_request_that_is_not_there_any_more_is_named(slot: Slot):
    """After a reload a queued request may have lost its function."""
    assert "'gone'" in slot.run("gone")[1]["message"]


def test_output_is_in_the_pipe_before_the_reply(slot: Slot):
    """The log is complete when the request has ended, also its last line without an end."""
    slot.run("speak", {"text": "hello", "number": 2})
    assert sorted(slot.printed()) == sorted("hellohello 2\n")


def test_log_lines_are_output(slot: Slot):
    """ctx.log needs no set-up of logging."""
    slot.run("log", {"text": "a line"})
    (line,) = slot.printed().splitlines()
    assert line.endswith("INFO a line")


def test_progress_is_told_at_most_ten_times_a_second(slot: Slot):
    """A loop of a million steps costs its server a few records."""
    assert slot.run("count", {"total": 50_000}, id="00000000000b", attempt=2) == ("ok", 50_000)
    records = [record for record in slot.records() if record[0] == PROGRESS]
    assert 2 <= len(records) < 20
    assert {record[1:3] for record in records} == {(number_of("00000000000b"), 2)}
    told = [msgpack.decode(record[3]) for record in records]
    whole = {"total": 50_000, "message": "counting", "unit": "steps"}
    assert told[0] == {"done": 0, **whole}
    assert told[-1] == {"done": 50_000, **whole}


def test_progress_that_nobody_reads_holds_nothing_up(slot: Slot):
    """A server that is busy costs a request a bar, not its time."""
    for _ in range(1000):
        assert slot.run("count", {"total": 1}) == ("ok", 1)
    assert 0 < len(list(slot.records())) < 2000


def test_interrupt_is_raised_in_the_request_that_it_names(slot: Slot, tmp_path: Path):
    """A cancel reaches running code as an exception, out of a system call."""
    path = tmp_path / "runs"
    call = slot.begin("sleep", {"path": str(path)}, id="00000000000c", attempt=2)
    until_there(path)
    slot.interrupt(number_of("00000000000c"), 2)
    assert slot.settle(call, nudge=INTERRUPT_SIGNAL) == ("cancelled", None)
    assert path.read_text() == "cancelled"
    assert slot.run("noop") == ("ok", None)


@pytest.mark.parametrize(("id", "attempt"), [("00000000000d", 1), ("00000000000c", 2)])
def test_interrupt_of_another_run_is_ignored(slot: Slot, tmp_path: Path, id: str, attempt: int):
    """A cancel that comes too late never reaches the next request, nor the next attempt."""
    path = tmp_path / "runs"
    call = slot.begin("sleep", {"path": str(path), "seconds": 0.2}, id="00000000000d", attempt=2)
    until_there(path)
    slot.interrupt(number_of(id), attempt)
    assert slot.settle(call) == ("ok", "slept")


def test_interrupt_before_the_request_has_come_keeps_it_from_running(slot: Slot, tmp_path: Path):
    """Cancelled between dispatch and start, the entry point never runs."""
    path = tmp_path / "runs"
    slot.interrupt(number_of("00000000000e"), 1)
    assert slot.run("noop", id="00000000000f") == ("ok", None)
    assert slot.run("sleep", {"path": str(path)}, id="00000000000e") == ("cancelled", None)
    assert not path.exists()
    assert slot.run("noop", id="00000000000e") == ("ok", None)


def test_interrupt_that_is_lost_in_a_destructor_is_raised_again(slot: Slot, tmp_path: Path):
    """CPython drops what is raised there; the next signal of the server is not lost."""
    path = tmp_path / "runs"
    call = slot.begin("destroy", {"path": str(path)}, id="00000000000j")
    until_there(path)
    slot.interrupt(number_of("00000000000j"), 1)
    assert slot.settle(call, nudge=INTERRUPT_SIGNAL) == ("cancelled", None)


def test_request_that_catches_its_interrupt_ends_as_it_says(slot: Slot, tmp_path: Path):
    """What went on to a result has a result; the server ends it by force if that takes long."""
    path = tmp_path / "runs"
    arguments = {"path": str(path), "stubborn": True}
    call = slot.begin("sleep", arguments, id="00000000000g")
    until_there(path)
    slot.interrupt(number_of("00000000000g"), 1)
    assert slot.settle(call, nudge=INTERRUPT_SIGNAL) == ("ok", "went on")


def test_interrupts_at_any_moment_cost_no_request_its_answer(slot: Slot):
    """Cancel races with the end of a request; each has one outcome, and the worker goes on."""
    outcomes = set()
    for number in range(1, 400):
        id = f"0000000h{number % 1000:04d}".replace("i", "0")
        call = slot.begin("count", {"total": 20}, id=id)
        for _ in range(number % 40):
            os.sched_yield()
        slot.interrupt(number_of(id), 1)
        outcomes.add(slot.settle(call)[0])
    assert outcomes <= {"ok", "cancelled"}
    assert slot.run("noop", id="000000000001") == ("ok", None)


def test_idle_worker_survives_sigterm(slot: Slot):
    """A stray SIGTERM breaks no pool."""
    slot.run("noop")
    signal.pidfd_send_signal(slot.pidfd, signal.SIGTERM)
    assert slot.run("noop") == ("ok", None)


def test_sigterm_ends_a_worker_whose_request_runs(own_seat: Slot, tmp_path: Path):
    """What does not end by its interrupt ends by this, with the request's clean-up."""
    path = tmp_path / "runs"
    call = own_seat.begin("sleep", {"path": str(path)})
    until_there(path)
    signal.pidfd_send_signal(own_seat.pidfd, signal.SIGTERM)
    with pytest.raises(forebay.BrokenError):
        own_seat.settle(call, nudge=signal.SIGTERM)
    own_seat.ended()


def test_worker_leaves_when_told(own_seat: Slot):
    """Its process ends by itself, as any program does."""
    own_seat.run("noop")
    own_seat.tell_end()
    own_seat.ended()


def test_process_that_a_request_forks_does_not_answer_for_it(slot: Slot):
    """A child that returns where its parent does is no second worker."""
    for _ in range(5):
        assert slot.run("fork", {"careless": True}) == ("ok", 0)
    assert slot.run("noop") == ("ok", None)


def test_process_that_a_request_forks_ends_by_sigterm(slot: Slot):
    """Multiprocessing's terminate() works as it does elsewhere."""
    assert slot.run("fork", {"careless": False}) == ("ok", signal.SIGTERM)


def test_worker_that_is_told_nonsense_ends_with_the_reason(own_seat: Slot):
    """It is replaced rather than left in an unknown state."""
    own_seat.connection.begin(0, b"\xc1", None, own_seat.generation)
    own_seat.ended()
    assert "cannot go on" in own_seat.printed()


def test_call_by_pickle_runs_any_function(slot: Slot):
    """`forebay.Executor` sends functions, as concurrent.futures does."""
    kind, blob = slot.call(pickle.dumps((divmod, (7, 2), {})))
    assert (kind, pickle.loads(blob)) == (0, (3, 1))
    kind, blob = slot.call(pickle.dumps((bytes, (100_000,), {})))
    assert (kind, len(pickle.loads(blob))) == (0, 100_000)


def test_call_by_pickle_brings_the_exception_with_its_traceback(slot: Slot):
    """As in concurrent.futures, the remote traceback is the cause."""
    kind, blob = slot.call(pickle.dumps((divmod, (7, 0), {})))
    error = pickle.loads(blob)
    assert (kind, type(error)) == (1, ZeroDivisionError)
    assert type(error.__cause__).__name__ == "_RemoteTraceback"


@pytest.mark.parametrize(
    ("blob", "named"),
    [
        (b"\x80\x05no pickle", "Error"),
        (pickle.dumps((eval, ("lambda: 1",), {})), "lambda"),
        (pickle.dumps((exec, ("raise SystemExit(3)",), {})), "SystemExit"),
    ],
)
def test_call_by_pickle_that_goes_wrong_is_an_answer(slot: Slot, blob: bytes, named: str):
    """Nothing that a call does takes the worker with it."""
    kind, answer = slot.call(blob)
    error = pickle.loads(answer)
    assert kind == 1
    assert named in repr(error)
    assert slot.run("noop") == ("ok", None)


def test_worker_without_an_application_runs_calls(tmp_path: Path):
    """`forebay.Executor` in an interactive session imports nothing."""
    with in_slot(tmp_path, kind="none") as slot:
        assert pickle.loads(slot.call(pickle.dumps((len, ("abc",), {})))[1]) == 3


def test_leases_end_with_their_request(tmp_path: Path):
    """A request that forgets a lease does not keep the service from the next one."""
    path = tmp_path / "pool.sock"
    with Lending(path, "--max-size", "2"), in_slot(tmp_path, pool=str(path)) as slot:
        for _ in range(3):
            how, pids = slot.run("borrow", {"times": 2, "keep": True})
            assert how == "ok", pids
            assert len(set(pids)) == 2
        how, pids = slot.run("borrow", {"times": 4})
        assert (how, len(set(pids))) == ("ok", 1)


def test_services_of_the_application_are_warmed_in_the_server_s_pool(tmp_path: Path):
    """The first request that acquires one finds it started."""
    path = tmp_path / "pool.sock"
    with (
        Lending(path, "--max-size", "2"),
        ServicePool(max_size=1) as pool,
        pool.acquire(Worker.spec("path", str(APP))) as worker,
    ):
        ((name, pids),) = worker.warm(str(path))
        assert (name, len(set(pids))) == ("Numbers", 2)
        with SharedPool(path) as shared:
            assert shared.stats()["idle"] == 2
