"""A worker that runs thousands of asynchronous requests side by side."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.executor.wire.ids import _ALPHABET, number_of
from tests.executor.worker.supervising import LOG, Slot, in_slot
from tests.executor.worker.test_worker import until_there
from tests.pool.shared.lender import Lending


def id_of(number: int) -> str:
    return "".join(_ALPHABET[(number >> (5 * place)) & 31] for place in reversed(range(12)))


@pytest.fixture(scope="module")
def slot(tmp_path_factory: Any) -> Iterator[Slot]:
    with in_slot(tmp_path_factory.mktemp("async"), "async") as made:
        yield made


@pytest.mark.parametrize("number", [0, 1, 31, 32, 2**40 + 12345, 2**60 - 1])
def test_id_is_read_as_the_server_writes_it(number: int):
    """Progress and output are attributed by it."""
    assert number_of(id_of(number)) == number


def test_thousands_sleep_at_once(slot: Slot):
    """10,000 requests that wait one second take little more than a second."""
    started = time.monotonic()
    calls = [slot.begin("nap", {"seconds": 1.0}, id=id_of(n)) for n in range(1, 10_001)]
    assert {slot.settle(call) for call in calls} == {("ok", None)}
    assert time.monotonic() - started < 40  # one after another they take 10,000 s


def test_output_is_attributed_to_the_request_that_prints(slot: Slot):
    """Side by side in one process, each has its own log; its threads too."""
    ids = {id_of(n): f"name{n}" for n in range(100, 110)}
    calls = [slot.begin("talk", {"name": name, "rounds": 3}, id=id) for id, name in ids.items()]
    for call in calls:
        assert slot.settle(call) == ("ok", None)
    logs: dict[int, bytes] = {}
    for kind, number, attempt, payload in slot.records():
        assert (kind, attempt) == (LOG, 1)
        logs[number] = logs.get(number, b"") + payload
    for id, name in ids.items():
        lines = [f"{name} {n}" for n in range(3)] + [f"{name} thread", f"{name} end"]
        assert logs[number_of(id)].decode().splitlines() == lines


def test_lines_of_handlers_that_the_application_made_are_attributed(slot: Slot):
    """An application that sets logging up when it is imported has its lines all the same."""
    assert slot.run("log_line", {"text": "a line"}, id=id_of(42)) == ("ok", None)
    assert list(slot.records()) == [(LOG, 42, 1, b"a line\n")]


def test_leases_on_the_loop_end_with_their_request(tmp_path: Path):
    """Also of asynchronous requests, each for itself."""
    path = tmp_path / "pool.sock"
    with Lending(path, "--max-size", "2"), in_slot(tmp_path, "async", pool=str(path)) as slot:
        for number in range(1, 4):
            arguments = {"times": 2, "keep": True}
            how, pids = slot.run("borrow_beside", arguments, id=id_of(number))
            assert how == "ok", pids
            assert len(set(pids)) == 2
        how, pids = slot.run("borrow_beside", {"times": 3}, id=id_of(4))
        assert (how, len(set(pids))) == ("ok", 1)


def test_interrupt_cancels_the_task_that_it_names(slot: Slot, tmp_path: Path):
    """The others go on."""
    first, second = tmp_path / "first", tmp_path / "second"
    one = slot.begin("wait", {"path": str(first)}, id=id_of(1), attempt=2)
    two = slot.begin("wait", {"path": str(second)}, id=id_of(2), attempt=2)
    until_there(first)
    until_there(second)
    slot.interrupt(1, 7, signalled=False)  # another attempt
    slot.interrupt(1, 2, signalled=False)
    assert slot.settle(one) == ("cancelled", None)
    assert first.read_text() == "cancelled True"
    assert second.read_text() == ""
    slot.interrupt(2, 2, signalled=False)
    assert slot.settle(two) == ("cancelled", None)


def test_interrupt_before_the_request_has_come_keeps_it_from_running(slot: Slot, tmp_path: Path):
    """Cancelled on its way, the entry point never runs."""
    slot.interrupt(77, 1, signalled=False)
    assert slot.run("nap", {"seconds": 0}, id=id_of(78)) == ("ok", None)
    path = tmp_path / "runs"
    assert slot.run("wait", {"path": str(path)}, id=id_of(77)) == ("cancelled", None)
    assert not path.exists()


def test_exit_of_a_request_is_its_failure_alone(slot: Slot):
    """Thousands of others do not end with it."""
    other = slot.begin("nap", {"seconds": 0.1, "value": 5}, id=id_of(3))
    assert slot.run("raise_exit", id=id_of(4))[1]["builtin"] == "SystemExit"
    assert slot.settle(other) == ("ok", 5)


def test_plain_function_runs_here_too(slot: Slot):
    """A request whose lane was changed has an answer all the same."""
    assert slot.run("add", {"first": 1}) == ("ok", 2.5)


def test_large_results_are_answered(tmp_path: Path):
    """Answers that no socket takes at once leave as it takes them."""
    value = b"x" * 3_000_000
    with in_slot(tmp_path, "async") as slot:
        arguments = {"seconds": 0, "value": value}
        calls = [slot.begin("nap", arguments, id=id_of(n)) for n in range(5, 10)]
        assert all(slot.settle(call) == ("ok", value) for call in calls)


def test_worker_that_is_told_nonsense_ends_with_the_reason(tmp_path: Path):
    """It is replaced rather than left in an unknown state."""
    with in_slot(tmp_path, "async") as slot:
        slot.connection.begin(0, b"\xc1", None, slot.generation)
        slot.ended()
        assert "cannot go on" in slot.printed()


def test_sigterm_is_ignored_while_nothing_runs_and_ends_it_otherwise(tmp_path: Path):
    """As for any worker."""
    path = tmp_path / "runs"
    with in_slot(tmp_path, "async") as slot:
        signal.pidfd_send_signal(slot.pidfd, signal.SIGTERM)
        assert slot.run("nap", {"seconds": 0}) == ("ok", None)
        call = slot.begin("wait", {"path": str(path)})
        until_there(path)
        signal.pidfd_send_signal(slot.pidfd, signal.SIGTERM)
        with pytest.raises(forebay.BrokenError):
            slot.settle(call, nudge=signal.SIGTERM)
        slot.ended()
        assert path.read_text() == "cancelled False"


def test_worker_leaves_when_told(tmp_path: Path):
    """What still runs then is cancelled."""
    path = tmp_path / "runs"
    with in_slot(tmp_path, "async") as slot:
        slot.begin("wait", {"path": str(path)})
        until_there(path)
        slot.tell_end()
        until_there(path, "cancelled False")
        slot.ended()
