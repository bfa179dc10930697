"""The dispatcher with its store, as clients of its socket see it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import msgpack

from forebay import _core
from tests.executor.server.dispatching import (
    AppSupervisor,
    Caller,
    RefusedError,
    calling,
    dispatching,
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a dispatcher keeps and listens."""
    return tmp_path


@pytest.fixture
def served(directory: Path) -> Iterator[tuple[_core.Dispatcher, AppSupervisor]]:
    """A dispatcher with workers."""
    with dispatching(directory) as made:
        yield made


@pytest.fixture
def caller(served: Any, directory: Path) -> Iterator[Caller]:
    """A client of it."""
    with calling(directory) as made:
        yield made


def until_there(path: Path) -> None:
    """Wait for a file that a request makes."""
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} was not made"
        os.sched_yield()


def test_a_run_answers_with_its_result(caller: Caller) -> None:
    """One call submits, waits and brings the result."""
    assert caller.run("add", {"first": 2, "second": 3.0}) == ("succeeded", 5.0)


def test_a_submission_has_an_id_by_which_its_end_is_waited_for(caller: Caller) -> None:
    """Also after it has ended: then the store answers."""
    id = caller.submit("echo", {"value": [1, "two"]})
    assert caller.wait(id) == ("succeeded", [1, "two"])
    assert caller.wait(id) == ("succeeded", [1, "two"])


def test_what_was_raised_is_told_as_a_failure(caller: Caller) -> None:
    """With the exception's own words."""
    status, failure = caller.run("fail", {"text": "no such wood"})
    assert (status, failure["kind"], failure["builtin"]) == ("failed", "raised", "ValueError")
    assert failure["message"] == "no such wood"


def test_refusals_name_what_is_wrong_before_anything_is_stored(caller: Caller) -> None:
    """A misspelt name, parameter or option costs no request."""
    wrong: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
        ("ecko", {}, {}, "echo"),
        ("add", {"frist": 1}, {}, "first"),
        ("echo", {}, {"priorty": 1}, "priority"),
    ]
    for name, arguments, options, meant in wrong:
        with pytest.raises(RefusedError) as refused:
            caller.run(name, arguments, **options)
        assert meant in refused.value.told["next"]
    with pytest.raises(RefusedError, match="no request"):
        caller.wait("000000000001")


def test_an_idempotency_key_makes_two_submissions_one(caller: Caller, directory: Path) -> None:
    """While it waits, after it has ended, and after a restart."""
    first = caller.submit("echo", {"value": 1}, idempotency="once")
    assert caller.wait(first) == ("succeeded", 1)
    assert caller.submit("echo", {"value": 2}, idempotency="once") == first
    assert caller.run("echo", {"value": 2}, idempotency="once") == ("succeeded", 1)


def test_a_running_request_is_interrupted_and_a_waiting_one_does_not_begin(directory: Path) -> None:
    """Cancelling reaches the code as an exception."""
    marker = directory / "runs"
    with dispatching(directory, exception_ms=20_000), calling(directory) as caller:
        running = caller.submit("sleep", {"path": str(marker)}, key="one")
        until_there(marker)
        waiting = caller.submit("sleep", {"path": str(directory / "never")}, key="one")
        assert caller.ask("cancel", waiting) == ["now"]
        began = time.monotonic()
        assert caller.ask("cancel", running) == ["asked"]
        assert caller.wait(running) == ("cancelled", {"kind": "cancelled"})
        assert time.monotonic() - began < 15, "the exception was enough"
        assert marker.read_text() == "cancelled"
        assert caller.ask("cancel", running) == ["ended"]
        assert not (directory / "never").exists()


def test_a_request_that_takes_too_long_is_ended_by_force(caller: Caller, directory: Path) -> None:
    """A loop that heeds nothing is terminated with its worker, and told as timed out."""
    path = str(directory / "stubborn")
    status, failure = caller.run("sleep", {"path": path, "seconds": 30}, timeout_s=0.2)
    assert (status, failure["kind"]) == ("failed", "timed_out")


def test_output_is_followed_as_it_is_written(caller: Caller) -> None:
    """The log of a request is a stream of bytes with offsets, while it runs and after."""
    id = caller.submit("speak", {"text": "hello", "number": 7})
    followed = b"".join(piece for _, piece in caller.follow("logs", id, 0, True))
    assert sorted(followed.decode().split("hello")) == sorted(["", "", " 7\n"])
    again = list(caller.follow("logs", id, 3, False))
    assert again[0][0] == 3
    assert b"".join(piece for _, piece in again) == followed[3:]


def test_each_request_gets_its_own_output(caller: Caller) -> None:
    """Requests that follow each other in one worker do not write into each other's logs."""
    ids = [caller.submit("speak", {"text": f"<{n}>", "number": n}) for n in range(20)]
    for n, id in enumerate(ids):
        caller.wait(id)
        log = b"".join(piece for _, piece in caller.follow("logs", id, 0, True)).decode()
        assert sorted(log.split(f"<{n}>")) == sorted(["", "", f" {n}\n"])


def test_events_tell_status_and_progress_until_the_end(caller: Caller) -> None:
    """Who follows a request is told what happens without asking again."""
    id = caller.submit("count", {"total": 3, "pause": 0.15}, delay_s=1)
    events = list(caller.follow("events", id))
    assert [one["status"] for one in events if one["event"] == "status"][-1] == "succeeded"
    done = [one["done"] for one in events if one["event"] == "progress"]
    assert done == sorted(done)
    assert done[-1] == 3
    assert any(one["event"] == "reason" for one in events)
    (late,) = caller.follow("events", id)
    assert late.pop("seq") >= events[-1]["seq"]
    assert late == {"event": "status", "status": "succeeded", "attempt": 1}


def test_a_stream_about_nothing_is_one_refusal(caller: Caller) -> None:
    """A client that misspells an id is told so."""
    for method in ("logs", "events"):
        ((code, refusal),) = caller.follow(method, "00000000000z")
        assert (code, refusal["code"]) == (1, "unknown")


def test_a_death_is_told_with_its_last_words(
    caller: Caller, served: tuple[_core.Dispatcher, AppSupervisor], directory: Path
) -> None:
    """What the worker wrote last stands beside its cause."""
    marker = directory / "runs"
    id = caller.submit("sleep", {"path": str(marker)})
    until_there(marker)
    dispatcher, supervisor = served
    (slot,) = [one["slot"] for one in dispatcher.workers() if one["running"]]
    supervisor.kill(slot)
    status, failure = caller.wait(id)
    assert (status, failure["kind"], failure["cause"]) == ("failed", "died", "signal")
    assert caller.run("echo", {"value": 1}) == ("succeeded", 1)


def test_last_words_of_a_fresh_worker_are_told(caller: Caller) -> None:
    """Also where the worker ended before anybody had looked at its output."""
    id = caller.submit("last_words", {"text": "goodbye"})
    status, failure = caller.wait(id)
    assert (status, failure["kind"], failure["last_output"]) == ("failed", "died", "goodbye\n")
    assert b"".join(piece for _, piece in caller.follow("logs", id, 0, True)) == b"goodbye\n"


def test_requests_go_on_when_their_client_leaves(
    caller: Caller, served: tuple[_core.Dispatcher, AppSupervisor], directory: Path
) -> None:
    """A client that dies takes nothing with it but its waits."""
    with calling(directory) as other:
        id = other.submit("nap", {"seconds": 1.0, "value": 5})
        calls = [other.channel.submit("wait", (id,)) for _ in range(10)]
        assert not any(call.done() for call in calls)
    assert caller.wait(id) == ("succeeded", 5)


def test_a_client_that_takes_no_answers_is_told_ends_without_results(
    caller: Caller, served: tuple[_core.Dispatcher, AppSupervisor], directory: Path
) -> None:
    """What one client does not read is no burden of the others, and no result of it is lost."""
    dispatcher, _ = served
    id = caller.submit("echo", {"value": "x" * 60_000}, delay_s=2.0)
    dispatcher.hold("until all wait")
    path = directory / "run" / "s"
    greedy = _core.Connection(_core.connect_unix(path, 5.0))
    wait = msgpack.encode(["wait", [id], None])
    calls = [greedy.begin(0, wait, None, 0) for _ in range(2_000)]
    last = msgpack.encode(["wait", ["000000000001"], None])
    assert msgpack.decode(greedy.call(0, last, None, 20.0, 0))[0] == 1, "calls are taken in order"
    dispatcher.hold(None)
    assert caller.run("echo", {"value": 2}) == ("succeeded", 2)
    assert caller.wait(id)[0] == "succeeded", "it has ended before the other client reads"
    told = [msgpack.decode(greedy.settle(call, 0, 20.0)) for call in calls]
    assert {(kind, status) for kind, _, status, _ in told} == {(0, "succeeded")}
    with_results = sum(len(payload) for *_, payload in told if payload is not None)
    assert 60_000 < with_results < 20_000_000
    whole = msgpack.encode(["wait", [id, True], None])
    assert len(msgpack.decode(greedy.call(0, whole, None, 20.0, 0))[3]) > 60_000
    greedy.close()


def test_calls_that_are_not_the_dispatchers_go_to_the_main_thread(
    caller: Caller, served: tuple[_core.Dispatcher, AppSupervisor]
) -> None:
    """And come back with its answer."""
    dispatcher, _ = served
    asked = caller.channel.submit("info", ("x",))
    ((ticket, method, arguments, by),) = dispatcher.calls(10) or []
    assert (method, arguments) == ("info", b"\x91\xa1x")
    assert by == f"uid:{os.geteuid()}"
    dispatcher.answer(ticket, b"\x92\x00\xa2ok")
    assert asked.result(10) == [0, "ok"]


def test_what_was_accepted_outlives_the_dispatcher(directory: Path) -> None:
    """The next one runs what waited, and answers for what had ended."""
    with dispatching(directory) as (dispatcher, _), calling(directory) as caller:
        ended = caller.submit("echo", {"value": 1}, idempotency="first")
        assert caller.wait(ended) == ("succeeded", 1)
        dispatcher.hold("not now")
        dispatcher.hold(None)
        waiting = caller.submit("echo", {"value": 2}, delay_s=0.3)
        after = caller.submit("echo", {"value": 3}, after=[waiting, ended])
    with dispatching(directory), calling(directory) as caller:
        assert caller.wait(ended) == ("succeeded", 1)
        assert caller.wait(waiting) == ("succeeded", 2)
        assert caller.wait(after) == ("succeeded", 3)
        assert caller.submit("echo", {"value": 9}, idempotency="first") == ended


def test_arguments_beyond_the_limit_wait_on_disk(directory: Path) -> None:
    """A long queue of large requests does not fill the memory, and loses nothing."""
    settings = {"queue_bytes_max": 100_000}
    with dispatching(directory, **settings), calling(directory) as caller:
        values = [str(n) * 30_000 for n in range(8)]
        ids = [caller.submit("echo", {"value": value}, delay_s=0.2) for value in values]
        assert [caller.wait(id) for id in ids] == [("succeeded", value) for value in values]


def test_a_failed_request_is_retried_by_an_operator(
    caller: Caller, served: tuple[_core.Dispatcher, AppSupervisor]
) -> None:
    """With the arguments that it had; what has not ended is not retried."""
    dispatcher, _ = served
    id = caller.submit("fail", {"text": "once"})
    assert caller.wait(id)[0] == "failed"
    number = int(caller_number(id))
    assert dispatcher.retry([number]) == [{"id": id, "status": "queued"}]
    assert caller.wait(id)[0] == "failed"
    (refused,) = dispatcher.retry([1])
    assert "no request" in refused["refused"]


def test_submissions_are_refused_while_the_application_cannot_be_loaded(
    caller: Caller, served: tuple[_core.Dispatcher, AppSupervisor]
) -> None:
    """With the reason, so that who edits sees it."""
    dispatcher, _ = served
    dispatcher.hold("SyntaxError: invalid syntax (tune.py, line 3)")
    with pytest.raises(RefusedError, match="line 3"):
        caller.run("echo", {"value": 1})
    dispatcher.hold(None)
    assert caller.run("echo", {"value": 1}) == ("succeeded", 1)


def test_a_submission_after_an_edit_waits_for_the_new_code(directory: Path, tmp_path: Path) -> None:
    """Edit and run never answers with old code."""
    source = tmp_path / "tune.py"
    source.write_text("old")
    with (
        dispatching(directory, reload=True) as (dispatcher, supervisor),
        calling(directory) as caller,
    ):
        dispatcher.watch_sources([str(source)])
        assert caller.run("echo", {"value": 1}) == ("succeeded", 1)
        fresh = tmp_path / "fresh"
        fresh.write_text("new")
        os.replace(fresh, source)
        waits = caller.channel.submit("run", ("echo", b"\x81\xa5value\x02", None, None))
        deadline = time.monotonic() + 10
        while ("sources", [str(source)]) not in supervisor.orders:
            assert time.monotonic() < deadline, supervisor.orders
            os.sched_yield()
        assert dispatcher.figures()["held"] == "reloading: tune.py changed"
        assert not waits.done()
        dispatcher.hold(None)
        assert waits.result(10)[2] == "succeeded"


def test_a_code_that_is_older_than_an_edit_opens_nothing(directory: Path, tmp_path: Path) -> None:
    """What the supervisor installs while it has not heard of an edit is not the newest code."""
    source = tmp_path / "tune.py"
    source.write_text("old")
    with (
        dispatching(directory, reload=True) as (dispatcher, supervisor),
        calling(directory) as caller,
    ):
        supervisor.pause()
        dispatcher.watch_sources([str(source)])
        source.write_text("new")
        dispatcher.hold(None)
        assert dispatcher.figures()["held"] == "reloading: tune.py changed"
        supervisor.go_on()
        deadline = time.monotonic() + 10
        while ("sources", [str(source)]) not in supervisor.orders:
            assert time.monotonic() < deadline, supervisor.orders
            os.sched_yield()
        dispatcher.hold(None)
        assert caller.run("echo", {"value": 1}) == ("succeeded", 1)


def caller_number(id: str) -> int:
    """The number of an id."""
    number = 0
    for letter in id:
        number = number * 32 + "0123456789abcdefghjkmnpqrstvwxyz".index(letter)
    return number
