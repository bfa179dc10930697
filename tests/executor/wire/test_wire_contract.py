"""The imitation server of the client tests answers as the real one does: one suite for both."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import msgpack

from tests.executor.serving import Caller, RefusedError, Serving, until
from tests.executor.small_server import SmallServer

APP = '''
import os, time
from pathlib import Path

import forebay

app = forebay.App("small")
HERE = Path(__file__).parent


class OddError(ValueError):
    """As the imitation names it."""


@app.request()
def echo(first: int = 1, second: int = 0) -> dict[str, int]:
    """Return the arguments."""
    return {"first": first, "second": second}


@app.request()
def hold() -> None:
    """Until it is released."""
    print("grün\\nand blue")
    while not (HERE / "released").exists():
        time.sleep(0.01)


@app.request(name="raise")
def raise_() -> None:
    raise OddError("odd")


@app.request(retries=1)
def die() -> None:
    os.kill(os.getpid(), 9)


@app.request(timeout=0.2)
def late() -> None:
    time.sleep(60)


@app.request(cron="*/5 * * * *")
def report() -> None:
    """Nobody waits for it."""
'''
FIRST_FIELDS = {"code", "message", "object", "limit", "value", "next"}


@dataclass
class Subject:
    """A server, whichever it is."""

    caller: Caller
    release: Callable[[], object]

    def stream(self, method: str, *args: Any) -> Generator[Any, None, None]:
        """The items of a stream, as clients read them."""
        with self.caller._channel.stream(method, args) as items:
            yield from items

    def refusal(self, method: str, *args: Any) -> dict[str, Any]:
        """What a question is refused with."""
        with pytest.raises(RefusedError) as caught:
            self.caller.ask(method, *args)
        return caught.value.told


@contextlib.contextmanager
def imitation(directory: Path) -> Iterator[Subject]:
    """The one that runs nothing."""
    server = SmallServer(directory)
    try:
        with Caller(str(server.path)) as caller:
            yield Subject(caller, lambda: caller.ask("release"))
    finally:
        server.kill()


@contextlib.contextmanager
def real(directory: Path) -> Iterator[Subject]:
    """The one that users have."""
    with Serving(directory, APP) as serving, serving.caller() as caller:
        yield Subject(caller, (directory / "released").touch)


@pytest.fixture(params=[imitation, real], ids=["imitation", "real"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    """Each test runs against both."""
    with request.param(tmp_path) as made:
        yield made


def running(subject: Subject) -> str:
    """A request that has begun and does not end by itself."""
    id_ = subject.caller.submit("hold")
    until(lambda: subject.caller.ask("status", id_)["status"] == "running")
    return id_


def test_an_accepted_request_has_an_id_and_a_result(subject: Subject) -> None:
    """Ids are what every other question goes by."""
    id_ = subject.caller.submit("echo", first=2, second=3)
    assert re.fullmatch(r"[0-9a-z]{12,}", id_)
    assert subject.caller.wait(id_) == {"first": 2, "second": 3}
    assert subject.caller.ask("status", id_) | {"id": id_, "status": "succeeded"} == (
        subject.caller.ask("status", id_)
    )


def test_the_answer_of_a_run_names_its_request(subject: Subject) -> None:
    """Who runs and waits in one call learns the id all the same."""
    packed = msgpack.encode({"first": 5})
    id_, status, payload = subject.caller.ask("run", "echo", packed, None, 9)
    assert status == "succeeded"
    assert msgpack.decode(payload)["first"] == 5
    assert subject.caller.ask("resolve", id_) == id_


def test_a_token_finds_what_was_accepted_under_it(subject: Subject) -> None:
    """A client asks so for the id of a run that it still waits for."""
    channel = subject.caller._channel
    call = channel.begin("run", ("hold", msgpack.encode({}), None, 77))

    def accepted() -> str | None:
        try:
            return str(subject.caller.ask("accepted", 77))
        except RefusedError:
            return None

    id_ = until(accepted)
    subject.release()
    kind, told, status, _ = channel.finish(call, timeout=20)
    assert (kind, told, status) == (0, id_, "succeeded")


@pytest.mark.parametrize(
    ("name", "kind", "fields"),
    [
        ("raise", "raised", {"builtin": "ValueError", "message": "odd"}),
        ("die", "died", {"signal": 9, "exit_code": None}),
        ("late", "timed_out", {}),
    ],
)
def test_a_failure_has_its_kind_and_fields(
    subject: Subject, name: str, kind: str, fields: dict[str, Any]
) -> None:
    """Clients make their exceptions of these."""
    id_ = subject.caller.submit(name)
    with pytest.raises(RefusedError) as caught:
        subject.caller.wait(id_)
    told = caught.value.told
    assert told["kind"] == kind
    assert fields.items() <= told.items()
    wanted = {
        "raise": {"name", "trace"},
        "die": {"cause", "pid", "peak_bytes", "limit_bytes", "last_output"},
        "late": {"timeout_s"},
    }
    assert wanted[name] <= told.keys()


@pytest.mark.parametrize("method", ["status", "show", "why", "wait", "cancel", "arguments"])
def test_an_unknown_request_is_refused_in_the_same_words(subject: Subject, method: str) -> None:
    """The code is what a client goes by, the other fields are its message."""
    told = subject.refusal(method, "000000000999")
    assert told["code"] == "unknown"
    assert told.keys() >= FIRST_FIELDS


@pytest.mark.parametrize("method", ["logs", "events"])
def test_an_unknown_request_has_no_stream(subject: Subject, method: str) -> None:
    """The refusal is the first item, not a broken connection."""
    args = ("000000000999", 0, True) if method == "logs" else ("000000000999",)
    kind, told = next(subject.stream(method, *args))
    assert (kind, told["code"]) == (1, "unknown")


def test_an_idempotency_key_gives_the_first_request(subject: Subject) -> None:
    """A client that sends again after a broken connection must not run anything twice."""
    options = {"idempotency": "once"}
    first = subject.caller.submit("echo", options, first=1)
    assert subject.caller.submit("echo", options, first=1) == first


def test_cancel_tells_whether_there_was_something_to_cancel(subject: Subject) -> None:
    """The answer of one that has ended is no error."""
    id_ = running(subject)
    assert subject.caller.ask("cancel", id_) == "asked"
    with pytest.raises(RefusedError) as caught:
        subject.caller.wait(id_)
    assert (caught.value.told["status"], caught.value.told["kind"]) == ("cancelled", "cancelled")
    assert subject.caller.ask("cancel", id_) == "ended"


def test_a_list_is_newest_first_filtered_and_cut(subject: Subject) -> None:
    """`forebay ps` shows this page."""
    ids = [subject.caller.submit("echo") for _ in range(3)]
    for id_ in ids:
        subject.caller.wait(id_)
    held = running(subject)
    told = subject.caller.ask("list", {}, 2, None)
    assert [row["id"] for row in told["requests"]] == [held, ids[-1]]
    assert told["more"] is True
    assert {"id", "name", "status"} <= told["requests"][0].keys()
    only = subject.caller.ask("list", {"status": ["succeeded"]}, 10, None)
    assert [row["id"] for row in only["requests"]] == ids[::-1]
    assert only["more"] is False
    subject.release()


def test_resolve_takes_last_and_the_beginning_of_an_id(subject: Subject) -> None:
    """People type neither the whole id nor look it up."""
    id_ = subject.caller.submit("echo")
    subject.caller.wait(id_)
    assert subject.caller.ask("resolve", "@last") == id_
    assert subject.caller.ask("resolve", id_[:-1]) == id_
    assert subject.refusal("resolve", "zzzz")["code"] == "unknown"


def test_logs_are_pieces_with_their_offsets(subject: Subject) -> None:
    """A reader goes on where it was by the offset alone."""
    id_ = running(subject)
    subject.release()
    told = b""
    for offset, piece in subject.stream("logs", id_, 0, True):
        assert offset == len(told)
        told += bytes(piece)
    assert told == "grün\nand blue\n".encode()
    rest = b"".join(bytes(piece) for _, piece in subject.stream("logs", id_, 5, False))
    assert rest == told[5:]


def test_events_end_with_the_end(subject: Subject) -> None:
    """A follower knows from them that it is over, and how."""
    id_ = running(subject)
    subject.release()
    events = list(subject.stream("events", id_))
    assert all(one["event"] in ("status", "progress") for one in events)
    last = [one for one in events if one["event"] == "status"][-1]
    assert (last["status"], last["attempt"]) == ("succeeded", 1)
    assert events[-1] == last
    assert list(subject.stream("events", id_, last["seq"])) == []


def test_the_feed_tells_its_number_first_and_then_what_happens(subject: Subject) -> None:
    """An item is a list of events; a client comes back with the number of the last one."""
    stream = subject.stream("feed", {"events": ["accepted", "ended"]}, None)
    begin, *_ = next(stream)
    assert begin["event"] == "begin"
    id_ = subject.caller.submit("echo")
    subject.caller.wait(id_)
    events: list[dict[str, Any]] = []
    while len(events) < 2:
        events += next(stream)
    stream.close()
    assert [(one["event"], one["id"], one["name"]) for one in events] == [
        ("accepted", id_, "echo"),
        ("ended", id_, "echo"),
    ]
    assert begin["seq"] < events[0]["seq"] < events[1]["seq"]
    assert events[0]["at_ms"] > 0
    (again,) = next(subject.stream("feed", {"names": ["echo"], "events": ["ended"]}, begin["seq"]))
    assert again["seq"] == events[1]["seq"]


def test_what_commands_print_has_the_fields_that_they_read(subject: Subject) -> None:
    """Each command of the tests reads them off the imitation, users read them off the real one."""
    ask = subject.caller.ask
    id_ = subject.caller.submit("echo", first=4)
    subject.caller.wait(id_)
    show = ask("show", id_)
    assert {"schema", "id", "name", "status", "arguments", "accepted_at", "runs"} <= show.keys()
    why = ask("why", id_)
    assert {"schema", "id", "status", "reason", "next", "decisions"} <= why.keys()
    assert {"at", "text"} <= why["decisions"][0].keys()
    info = ask("info")
    assert {"pid", "app", "target", "file", "code", "state_dir", "synchronous"} <= info.keys()
    figures = {"lanes", "unfinished", "succeeded", "resident_bytes", "memory_limit_bytes"}
    assert figures <= info["figures"].keys()
    top = ask("top")
    assert {"figures", "workers", "services", "requests"} <= top.keys()
    manifest = ask("manifest")
    assert {"app", "target", "requests"} <= manifest.keys()
    assert {"name", "doc", "parameters"} <= manifest["requests"][0].keys()
    arguments = ask("arguments", id_)
    assert arguments["name"] == "echo"
    assert msgpack.decode(arguments["arguments"]) == {"first": 4}


def test_an_attempt_that_ended_nothing_is_shown(subject: Subject) -> None:
    """Why it ran twice is told by its runs, each with its failure."""
    id_ = subject.caller.submit("die")
    with pytest.raises(RefusedError):
        subject.caller.wait(id_)
    first = subject.caller.ask("show", id_)["runs"][0]
    assert {"attempt", "ended_at", "failure"} <= first.keys()
    assert (first["attempt"], first["failure"]["kind"]) == (1, "died")


def test_schedules_are_paused_by_name(subject: Subject) -> None:
    """`forebay cron` does no more than this."""
    (one,) = subject.caller.ask("schedules")["schedules"]
    assert {"name", "cron", "fired_at", "paused"} <= one.keys()
    assert (one["name"], one["cron"], one["paused"]) == ("report", "*/5 * * * *", False)
    (paused,) = subject.caller.ask("set_schedule", "report", True)["schedules"]
    assert paused["paused"] is True
    assert subject.refusal("set_schedule", "nobody", True)["code"] == "unknown"


def test_retry_says_of_each_what_becomes_of_it(subject: Subject) -> None:
    """What failed is queued again; what succeeded or runs is refused by itself, beside it."""
    failed = subject.caller.submit("raise")
    with pytest.raises(RefusedError):
        subject.caller.wait(failed)
    done = subject.caller.submit("echo")
    subject.caller.wait(done)
    held = running(subject)
    told = subject.caller.ask("retry", [failed, done, held])
    assert [one["id"] for one in told] == [failed, done, held]
    assert told[0]["status"] == "queued"
    assert "succeeded; to run it once more" in told[1]["refused"]
    assert "has not ended" in told[2]["refused"]
    subject.release()


def test_prune_counts_first_and_removes_then(subject: Subject) -> None:
    """A dry run takes nothing away."""
    id_ = subject.caller.submit("echo")
    subject.caller.wait(id_)
    held = running(subject)
    rule = {"ids": None}
    told = subject.caller.ask("prune", rule | {"dry_run": True})
    assert told["pruned"] == 1
    assert subject.caller.ask("status", id_)["status"] == "succeeded"
    assert subject.caller.ask("prune", rule | {"dry_run": False})["pruned"] == 1
    assert subject.refusal("status", id_)["code"] == "unknown"
    assert subject.caller.ask("status", held)["status"] == "running"
    subject.release()


def test_stop_says_that_it_stops(subject: Subject) -> None:
    """`forebay stop` waits for the end after this answer."""
    assert subject.caller.ask("stop", None)["stopping"] is True
