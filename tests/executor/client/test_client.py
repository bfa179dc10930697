"""What a program that submits requests relies on."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import pytest

from forebay.errors import (
    BrokenError,
    CancelledError,
    ClosedError,
    ConfigError,
    DeadlineError,
    DiedError,
    LimitError,
    RemoteError,
)
from forebay.executor.client import outstanding
from forebay.executor.client.client import Client
from forebay.executor.client.options import Submit
from tests.executor.client.conftest import Connect
from tests.executor.small_server import SmallServer


def test_a_result_comes_back(client: Client) -> None:
    """The whole purpose."""
    request = client.submit("echo", index=7, name="seven")
    assert request.result(timeout=20) == {"index": 7, "name": "seven"}
    assert request.result() == {"index": 7, "name": "seven"}
    assert request.status() == "succeeded"
    assert request.exception() is None


def test_a_handle_has_its_id_before_the_request_has_ended(
    server: SmallServer, client: Client
) -> None:
    """Whoever has the id may leave: the request is on disk."""
    request = client.submit("hold")
    assert request.id == "000000000001"
    assert request.status() == "running"
    server.release()
    assert request.result(timeout=20) == {}


def test_submit_returns_when_the_request_is_on_disk(
    connect: Connect, server: SmallServer, client: Client
) -> None:
    """A program that goes on after `submit` may rely on the request."""
    accepted = client.submit("hold")
    server.kill()
    server.start()
    with connect() as other:
        assert [one["id"] for one in other.list()] == [accepted.id]
    server.release()
    assert accepted.result(timeout=20) == {}


def test_submit_raises_what_the_server_refused_it_with(
    connect: Connect, server: SmallServer
) -> None:
    """Where it was called, and not again on leaving."""
    with connect() as client:
        with pytest.raises(LimitError, match="limit it is; do otherwise"):
            client.submit("refuse")
        with pytest.raises(BrokenError):
            client.submit("full")
        assert client._outstanding._open == {}


def test_submitting_many_raises_the_first_refusal(connect: Connect, transport: str) -> None:
    """A note counts the others, and leaving does not raise them again."""
    count = 600 if transport == "unix" else 100  # of which the small server asks for each
    with connect() as client:
        requests = client.submit_many("echo", [{"index": at} for at in range(count)])
        ids = [one.id for one in requests]
        if transport != "unix":  # threads of the small server take the gateway's calls in any order
            ids.sort()
        assert ids == [f"{at:012d}" for at in range(1, count + 1)]
        assert [one.result(timeout=20)["index"] for one in requests] == list(range(count))
        with pytest.raises(LimitError) as caught:
            client.submit_many("refuse", [{}] * 3)
        assert caught.value.__notes__ == ["2 other submissions failed too"]


def test_a_submission_may_be_waited_for_in_time(connect: Connect, server: SmallServer) -> None:
    """`accepted` takes a timeout, and may be called again."""
    with connect() as client:
        client.info()
        with server.stopped():
            request = client.submit_nowait("echo")
            with pytest.raises(DeadlineError, match=r"within 0\.05 s whether it has accepted"):
                request.accepted(timeout=0.05)
        assert request.accepted(timeout=20) == request.id


def test_an_id_is_known_after_the_end_too(client: Client) -> None:
    """The answer that tells the end is there before the one that tells the acceptance."""
    requests = [client.submit_nowait("echo", index=at) for at in range(10)]
    assert requests[9].result(timeout=20) == {"index": 9}
    assert [one.id for one in requests] == [f"{at:012d}" for at in range(1, 11)]
    assert [one.result(timeout=20)["index"] for one in requests] == list(range(10))


def test_a_large_argument_and_result_travel_beside_the_head(client: Client) -> None:
    """Arrays and documents are arguments too."""
    text = "x" * 200_000
    assert client.run("echo", text=text) == {"text": text}


def test_positional_arguments_of_a_name_are_bound_by_the_manifest(client: Client) -> None:
    """A program that has no source of the application calls it as one that has."""
    assert client.run("echo", 1, second=2) == {"first": 1, "second": 2}
    with pytest.raises(ConfigError, match="takes 1 positional arguments and was given 2"):
        client.submit("need", 1, 2)
    with pytest.raises(ConfigError, match="'first' by position and by name"):
        client.submit("echo", 1, first=2)


def test_a_name_that_means_something_here_is_passed_beside(client: Client) -> None:
    """A parameter may be called `options`."""
    assert client.run("echo", arguments={"options": 1}, second=2) == {"options": 1, "second": 2}


def test_what_is_no_data_is_refused_before_it_is_sent(client: Client) -> None:
    """The message names the request; nothing has happened."""
    with pytest.raises(ConfigError, match=r"request 'echo'.*no data"):
        client.submit("echo", index=object())
    with pytest.raises(ConfigError, match="is no request"):
        client.submit(test_a_result_comes_back)


def test_what_the_function_raised_is_raised(client: Client) -> None:
    """`except ValueError` works as if it had run here."""
    request = client.submit("raise")
    with pytest.raises(ValueError, match=r"app\.OddError: odd") as caught:
        request.result(timeout=20)
    assert isinstance(caught.value, RemoteError)
    assert caught.value.traceback_text == "line 1"
    assert request.status() == "failed"


def test_a_death_says_its_cause(client: Client) -> None:
    """Peak, limit and last words are in the message and in attributes."""
    request = client.submit("die")
    with pytest.raises(DiedError, match="310 MB of private memory, the limit is 300 MB") as caught:
        request.result(timeout=20)
    died = caught.value
    assert (died.cause, died.signal, died.exit_code) == ("memory", 9, None)
    assert (died.peak_bytes, died.limit_bytes) == (310_000_000, 300_000_000)
    assert died.stderr_tail == "so far\nand no further\n"
    assert "'and no further'" in str(died)
    assert f"forebay why {request.id}" in str(died)


def test_other_ends_have_exceptions_of_their_own(client: Client) -> None:
    """Each tells what the caller can do."""
    with pytest.raises(DeadlineError, match=r"2\.5 s") as late:
        client.run("late")
    assert late.value.timeout == 2.5
    with pytest.raises(CancelledError, match="was cancelled"):
        client.run("cancelled")
    with pytest.raises(BrokenError, match="nobody knows") as unknown:
        client.run("unknown")
    assert unknown.value.delivered == "maybe"


def test_a_refusal_is_raised_by_whatever_asks_first(client: Client) -> None:
    """By the id, and by the result."""
    request = client.submit_nowait("refuse")
    with pytest.raises(LimitError, match="limit it is; do otherwise") as caught:
        _ = request.id
    assert (caught.value.limit, caught.value.value) == (2, 3)
    with pytest.raises(LimitError):
        request.result(timeout=20)
    with pytest.raises(LimitError):  # and again
        _ = request.id
    assert request.status() == "refused"


def test_what_a_full_disk_refuses_was_not_accepted(client: Client) -> None:
    """Nobody has to look whether it was."""
    request = client.submit_nowait("full")
    assert isinstance(request.exception(timeout=20), BrokenError)
    assert request.status() == "refused"
    with pytest.raises(BrokenError):
        _ = request.id


def test_time_that_runs_out_leaves_the_request_running(server: SmallServer, client: Client) -> None:
    """It may be waited for again."""
    request = client.submit("hold")
    with pytest.raises(DeadlineError, match=r"has not ended within 0\.05 s; it goes on"):
        request.result(timeout=0.05)
    server.release()
    assert request.result(timeout=20) == {}


def test_leaving_raises_for_what_was_refused_and_never_looked_at(
    connect: Connect, server: SmallServer
) -> None:
    """A program that submits and leaves hears that it submitted nothing."""
    client = connect()
    for name in ("echo", "echo", "refuse", "refuse"):
        client.submit_nowait(name)
    with pytest.raises(LimitError) as caught, client:
        pass
    assert caught.value.__notes__ == ["1 other submissions failed too"]


def test_leaving_does_not_hide_the_programs_own_error(
    connect: Connect, server: SmallServer
) -> None:
    """The refusal is a note of it."""
    client = connect()
    client.submit_nowait("refuse")
    with pytest.raises(KeyError) as caught, client:
        raise KeyError("own")
    assert caught.value.__notes__ == ["and a submission failed: limit it is; do otherwise"]


def test_a_refusal_that_was_looked_at_is_not_raised_again(
    connect: Connect, server: SmallServer
) -> None:
    """Once is enough."""
    with connect() as client:
        request = client.submit_nowait("refuse")
        assert isinstance(request.exception(timeout=20), LimitError)


def test_so_many_that_some_are_let_go_and_looked_at_later(
    connect: Connect, server: SmallServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was refused is heard by whoever asks, and by nobody else."""
    monkeypatch.setattr("forebay.executor.client.outstanding.OPEN_MAX", 4)
    with connect() as client:
        requests = [client.submit_nowait("refuse") for _ in range(9)]
        assert [type(it.exception(timeout=20)) for it in requests] == [LimitError] * 9
        first, *_ = [client.submit_nowait("refuse") for _ in range(9)]
        with pytest.raises(LimitError):
            _ = first.id
        with pytest.raises(LimitError) as caught:
            client.close()
    assert caught.value.__notes__ == ["7 other submissions failed too"]


def test_dropped_handles_leave_their_requests(connect: Connect, server: SmallServer) -> None:
    """A program may submit and never ask; all of it is accepted, and nothing is kept here."""
    with connect() as client:
        for at in range(1000):
            client.submit_nowait("echo", index=at)
        gc.collect()
        assert len(client._outstanding._open) < 600
        held = client.submit("hold")
    assert held.id == f"{1001:012d}"
    with connect() as other:
        assert len(other.list(limit=5000)) == 1001
        server.release()
        assert other.get(held.id).result(timeout=20) == {}


def test_a_client_that_was_left_says_so(connect: Connect, server: SmallServer) -> None:
    """And how to go on."""
    with connect() as client:
        request = client.submit("hold")
    with pytest.raises(ClosedError):
        request.result(timeout=1)
    with pytest.raises(ClosedError, match="make another one"):
        client.submit("echo")


def test_many_threads_use_one_client(server: SmallServer, client: Client) -> None:
    """Each gets its own results, and several may wait for one."""
    held = client.submit("hold")
    found: list[Any] = []

    def work(base: int) -> None:
        requests = [client.submit_nowait("echo", index=base + at) for at in range(50)]
        found.extend(one.result(timeout=20)["index"] for one in requests)
        found.append(held.result(timeout=20))

    threads = [threading.Thread(target=work, args=(base,)) for base in range(0, 400, 100)]
    for thread in threads:
        thread.start()
    while len(found) < 200:
        held.status()
    server.release()
    for thread in threads:
        thread.join(20)
    assert sorted(one for one in found if isinstance(one, int)) == sorted(
        base + at for base in range(0, 400, 100) for at in range(50)
    )
    assert found.count({}) == 4


def test_requests_are_found_again(client: Client) -> None:
    """By id, by its beginning, and by age."""
    first, second = client.submit("echo", index=1), client.submit("echo", index=2)
    assert second.id > first.id
    assert client.get(first.id).result(timeout=20) == {"index": 1}
    assert client.get("@last").result(timeout=20) == {"index": 2}
    with pytest.raises(ConfigError, match="unknown it is"):
        client.get("zz")
    with pytest.raises(ConfigError, match="unknown it is"):
        client.get("000000009999").result(timeout=20)
    assert [one["id"] for one in client.list(status="succeeded")] == [second.id, first.id]
    assert client.list(status=["failed"]) == []


def test_waiting_for_many_tells_who_has_ended(server: SmallServer, client: Client) -> None:
    """However they ended."""
    requests = [client.submit(name) for name in ("echo", "raise", "hold")]
    assert client.wait(requests[:2], timeout=20) == (requests[:2], [])
    ended, others = client.wait(requests, timeout=0.2)
    assert ended == requests[:2]
    assert others == requests[2:]
    server.release()
    assert client.wait(others, timeout=20) == (others, [])


def test_a_request_is_cancelled(client: Client) -> None:
    """And its result says so."""
    request = client.submit("hold")
    assert request.cancel() == "asked"
    with pytest.raises(CancelledError):
        request.result(timeout=20)
    assert request.cancel() == "ended"


def test_a_retry_that_is_refused_says_why(client: Client) -> None:
    """A request that succeeded is not run again."""
    request = client.submit("echo")
    with pytest.raises(
        ConfigError, match=f"not queued again: {request.id}: request {request.id} succeeded"
    ):
        request.retry()
    with pytest.raises(
        ConfigError, match=f"not queued again: {request.id}: request {request.id} succeeded"
    ):
        client.retry(request.id)  # one alone


def test_the_log_comes_as_it_is_written(server: SmallServer, client: Client) -> None:
    """A character that is cut between two pieces is put together."""
    request = client.submit("hold")
    pieces = request.logs()
    assert next(pieces) == "gr"
    server.release()
    assert "".join(pieces) == "ün\nand blue\n"
    assert "".join(request.logs(follow=False, offset=6)) == "and blue\n"
    with pytest.raises(ConfigError, match="unknown it is"):
        next(client.get("000000009999").logs())


def test_progress_and_changes_are_pushed(server: SmallServer, client: Client) -> None:
    """Nobody has to ask again and again."""
    request = client.submit("hold")
    progress = request.progress()
    seen = next(progress)
    assert (seen.done, seen.total, seen.message, seen.unit) == (1, 4, "m", "row")
    server.release()
    assert list(progress) == []
    words = [one["status"] for one in request.events() if one["event"] == "status"]
    assert words == ["running", "succeeded"]


def test_options_travel_in_the_units_of_the_wire() -> None:
    """And what is not given does not travel."""
    options = Submit(priority=2, timeout="1min", memory="2MB", after=["a"], backoff=0.5)
    assert options.to_wire() == {
        "priority": 2,
        "timeout_s": 60.0,
        "memory_bytes": 2_000_000,
        "after": ["a"],
        "backoff_s": 0.5,
    }
    assert Submit().to_wire() == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"lane": "wide"},
        {"retries": -1},
        {"after": "abc"},
        {"priority": 10**20},
        {"priority": "high"},
        {"key_at_once": 0},
    ],
    ids=lambda one: next(iter(one)),
)
def test_wrong_options_are_refused_here(wrong: dict[str, Any]) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Submit(**wrong)


def test_ends_that_nobody_has_asked_for_are_asked_for_later(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are submitted at once, the server keeps a bounded number of answers."""
    monkeypatch.setattr(outstanding, "OPEN_MAX", 50)
    requests = [client.submit_nowait("hold") for _ in range(60)]
    assert len(client._outstanding._open) == 10
    client.ask("release")  # behind them, on their connection
    assert all(one.result(timeout=20) == {} for one in requests)
    assert requests[0].id == "000000000001"
    assert requests[-1].id == "000000000060"


@pytest.mark.parametrize("point", ["settle returns", "value_of is called", "decode_result returns"])
def test_an_interrupt_as_the_answer_comes_loses_nothing(client: Client, point: str) -> None:
    """Ctrl-C between the arrival of a result and its return: the next `result()` has it."""
    request = client.submit_nowait("echo", index=3)
    struck = []

    def strike(frame: Any, event: str, argument: Any) -> None:
        name = argument.__name__ if event.startswith("c_") else frame.f_code.co_name
        happens = "is called" if event.endswith("call") else "returns"
        if f"{name} {happens}" == point and not struck:
            struck.append(event)
            raise KeyboardInterrupt

    sys.setprofile(strike)
    try:
        with pytest.raises(KeyboardInterrupt):
            request.result(timeout=20)
    finally:
        sys.setprofile(None)
    assert struck
    assert request.result(timeout=20) == client.run("echo", index=3)
