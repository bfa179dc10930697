"""Calls on several leases at once: one wait for all, and each lease judged by its own call."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import forebay
from forebay.pool import call_many
from forebay.pool.lend.gather import LeaseGather
from forebay.rpc._gather import message

from . import gather_service


@pytest.fixture
def services() -> Iterator[list[Any]]:
    """Three leased services of a pool that is closed at the end."""
    with forebay.ServicePool(max_size=3, name="gather") as pool, ExitStack() as leases:
        yield [leases.enter_context(pool.acquire(gather_service.Worker)) for _ in range(3)]


def test_answers_come_in_the_order_of_the_calls(services: list[Any]) -> None:
    """Whoever answers first."""
    calls = [(service, "late", (0.05 * (3 - n), n)) for n, service in enumerate(services)]
    assert call_many(calls) == [0, 1, 2]


def test_calls_run_at_the_same_time(services: list[Any]) -> None:
    """Three waits of two seconds do not take six."""
    begun = time.monotonic()
    call_many([(service, "late", (2.0, None)) for service in services])
    assert time.monotonic() - begun < 5


def test_large_answers_do_not_wait_for_each_other(services: list[Any]) -> None:
    """Each is more than a socket holds, and the last one is ready long before the first."""
    calls = [
        (service, "bulk", (0.1 if n == 0 else 0.0, 1 << 20)) for n, service in enumerate(services)
    ]
    assert [len(answer) for answer in call_many(calls, timeout=20)] == [1 << 20] * 3


def test_what_is_raised_is_raised_once_all_have_ended(services: list[Any]) -> None:
    """The first error, the others as notes, and every service as usable as before."""
    with pytest.raises(ValueError, match="no 1") as caught:
        call_many([(service, "refuse", (n,)) for n, service in enumerate(services)])
    assert any("call 2 failed too: no 2" in note for note in caught.value.__notes__)
    assert (
        call_many([(service, "late", (0, "still here")) for service in services])
        == ["still here"] * 3
    )


def test_errors_can_stand_among_the_results(services: list[Any]) -> None:
    """For callers that go on with those that answered."""
    results = call_many(
        [(service, "refuse", (n,)) for n, service in enumerate(services)], return_errors=True
    )
    assert results[0] == 0
    assert [str(result) for result in results[1:]] == ["no 1", "no 2"]


def test_a_deadline_makes_only_the_late_lease_dirty(services: list[Any]) -> None:
    """The others have answered, and are lent on as they are."""
    results = call_many(
        [(service, "late", (30 if n == 1 else 0, n)) for n, service in enumerate(services)],
        timeout=0.3,
        return_errors=True,
    )
    assert isinstance(results[1], forebay.DeadlineError)
    assert (results[0], results[2]) == (0, 2)
    assert [service.lease._dirty for service in services] == [False, True, False]


def test_a_death_is_told_with_its_cause_while_the_others_work(services: list[Any]) -> None:
    """At once, not at the deadline, and the others' answers are not lost."""
    victim = os.pidfd_open(services[2].lease.pid)
    killer = threading.Timer(0.1, signal.pidfd_send_signal, (victim, signal.SIGKILL))
    killer.start()
    results = call_many(
        [(service, "late", (30 if n == 2 else 0.2, n)) for n, service in enumerate(services)],
        timeout=20,
        return_errors=True,
    )
    killer.join()
    os.close(victim)
    assert results[:2] == [0, 1]
    assert isinstance(results[2], forebay.DiedError)
    assert results[2].signal == signal.SIGKILL


def test_other_threads_may_call_the_same_services_meanwhile(services: list[Any]) -> None:
    """Whoever reads takes in the answers of the others, and wakes them."""
    answers: list[Any] = []

    def call_one() -> None:
        answers.extend(services[0].late(0.002, number) for number in range(50))

    thread = threading.Thread(target=call_one)
    thread.start()
    for number in range(50):
        calls = [(service, "late", (0.001, number)) for service in services]
        assert call_many(calls, timeout=20) == [number] * 3
    thread.join()
    assert answers == list(range(50))


def test_a_lease_that_has_ended_is_refused(services: list[Any]) -> None:
    """Before anything is sent to the others."""
    gather = LeaseGather([service.lease for service in services])
    services[1].lease.close()
    with pytest.raises(forebay.StaleError):
        gather.begin([message("late", (0, 1))] * 3)
    with pytest.raises(forebay.StaleError):
        call_many([(services[1], "late", (0, 1))])


def test_calls_under_way_must_be_finished_first(services: list[Any]) -> None:
    """A second begin would mix up the answers."""
    gather = LeaseGather([service.lease for service in services])
    gather.begin([message("late", (0, 1))] * 3)
    with pytest.raises(forebay.BusyError, match="finish"):
        gather.begin([message("late", (0, 2))] * 3)
    assert gather.finish()[0] == [1, 1, 1]
