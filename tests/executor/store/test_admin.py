"""What a server answers about its requests, read from a store as it lies on disk."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forebay._core import StoreReader
from forebay.executor.server.admin import Admin
from forebay.executor.server.rows import PAGE_MAX, Rows, rfc3339, shown
from forebay.executor.server.why import cause
from forebay.executor.wire.ids import ID_CHARS, number_of, text_of
from forebay.executor.wire.refused import Refused

ROOT = Path(__file__).resolve().parents[3]
MIGRATIONS = sorted((ROOT / "crates/executor/src/store").glob("migration_*.sql"))
FIRST = 1 << 57
"""Number of the first request; the others follow it."""
BEGAN = 1_790_000_000_000
"""Milliseconds since 1970 of the first acceptance; each request comes a second later."""


class Store:
    """A database with the store's own schema.

    It is open for writing for a moment only: the reader has another copy of SQLite, and a copy that
    closes the file drops the other one's locks.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for migration in MIGRATIONS:
            with self._open() as database:
                database.executescript(migration.read_text())
        self.count = 0

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        connected = sqlite3.connect(self.directory / "requests.db")
        with contextlib.closing(connected) as database, database:
            yield database

    def add(self, **columns: Any) -> int:
        """Write a request; what is not given is as of one that waits."""
        number = FIRST + self.count
        at = BEGAN + 1000 * self.count
        self.count += 1
        row = {
            "id": number,
            "name": "tune",
            "code": "c0de",
            "submitter": "me",
            "lane": 1,
            "priority": 0,
            "status": 0,
            "attempts": 0,
            "deaths": 0,
            "retried": 0,
            "accepted_at": at,
            "result_kind": 0,
            **columns,
        }
        names = ", ".join(row)
        marks = ", ".join("?" * len(row))
        values = list(row.values())
        self.run(f"INSERT INTO requests({names}) VALUES ({marks})", *values)
        return number

    def run(self, statement: str, *values: Any) -> None:
        """Write anything else."""
        with self._open() as database:
            database.execute(statement, values)


class Live:
    """A dispatcher and a house that know what they were given."""

    def __init__(self) -> None:
        self.reasons: dict[int, dict[str, Any]] = {}
        self.manifest: dict[str, Any] = {}
        self.asked: list[tuple[Any, ...]] = []
        self.audited: list[tuple[str, str, int | None, str]] = []

    def why(self, id: int) -> dict[str, Any] | None:
        return self.reasons.get(id)

    def figures(self) -> dict[str, Any]:
        return {"unfinished": 3}

    def workers(self) -> list[dict[str, Any]]:
        return [{"slot": 0, "running": [text_of(FIRST)]}, {"slot": 1, "running": []}]

    def retry(self, ids: list[int], by: str = "") -> list[dict[str, Any]]:
        self.asked.append(("retry", ids))
        return [{"id": text_of(it), "status": "queued"} for it in ids]

    def audit(self, act: str, by: str, id: int | None, object: str) -> None:
        self.audited.append((act, by, id, object))

    def prune(self, rule: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(("prune", rule))
        return {"pruned": 1, "bytes": 2}

    def schedules(self) -> list[dict[str, Any]]:
        return [{"name": "nightly", "pattern": "0 3 * * *", "fired_at": BEGAN, "next_at": None}]

    def set_schedule(self, name: str, paused: bool) -> bool:
        self.asked.append(("set_schedule", name, paused))
        return name == "nightly"

    def cordon(self, by: str, reason: str, dispatches: bool) -> None:
        self.asked.append(("cordon", by, reason, dispatches))

    def uncordon(self) -> bool:
        self.asked.append(("uncordon",))
        return True

    def facts(self) -> dict[str, Any]:
        return {"pid": 1}

    def services(self) -> list[dict[str, Any]]:
        return []

    def pids(self) -> dict[int, int]:
        return {0: 77}

    def reload(self) -> None:
        self.asked.append(("reload",))

    def stop(self, drain_s: float | None) -> None:
        self.asked.append(("stop", drain_s))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def rows(store: Store) -> Rows:
    return Rows(StoreReader(str(store.directory)))


@pytest.fixture
def live() -> Live:
    return Live()


@pytest.fixture
def admin(rows: Rows, live: Live) -> Admin:
    return Admin(live, rows, live)


def ask(admin: Admin, method: str, *args: Any) -> Any:
    """The value of an answer, or the refusal's map."""
    kind, value = msgspec.msgpack.decode(admin.answer(method, msgspec.msgpack.encode(args), "ann"))
    assert kind in (0, 1)
    return value


class TestIds:
    @pytest.mark.parametrize("number", [0, 1, FIRST, (1 << 60) - 1])
    def test_text_and_number_are_the_same(self, number: int) -> None:
        """An id is printed, copied and given back."""
        text = text_of(number)
        assert len(text) == ID_CHARS
        assert number_of(text) == number

    @pytest.mark.parametrize("text", ["", "u", "0" * 13, "a b", "ü"])
    def test_what_is_no_id_is_refused(self, rows: Rows, text: str) -> None:
        """A typo is not the id of something else."""
        with pytest.raises(Refused) as caught:
            rows.resolve(text)
        assert caught.value.code == "invalid"


class TestResolve:
    def test_a_unique_beginning_will_do(self, store: Store, rows: Rows) -> None:
        """Nobody types twelve characters."""
        number = store.add()
        assert rows.resolve(text_of(number)[:3]) == number
        assert rows.resolve(text_of(number).upper()) == number
        assert rows.resolve("@last") == number

    def test_an_ambiguous_beginning_is_told_with_what_it_may_mean(
        self, store: Store, rows: Rows
    ) -> None:
        """The wrong request is not cancelled."""
        first, second = store.add(), store.add()
        with pytest.raises(Refused, match="several ids") as caught:
            rows.resolve(text_of(first)[:11])
        assert text_of(first) in str(caught.value)
        assert text_of(second) in str(caught.value)

    @pytest.mark.parametrize(("text", "code"), [("zz", "unknown"), ("!", "invalid")])
    def test_what_is_not_there_is_told(self, rows: Rows, text: str, code: str) -> None:
        """Another exit code than for a wrong argument."""
        with pytest.raises(Refused) as caught:
            rows.resolve(text)
        assert caught.value.code == code

    def test_there_is_no_newest_of_none(self, rows: Rows) -> None:
        """The first thing somebody may type."""
        with pytest.raises(Refused, match="@last"):
            rows.resolve("@last")


class TestPages:
    def test_pages_follow_each_other_newest_first(self, store: Store, rows: Rows) -> None:
        """A listing of a hundred thousand requests costs a page at a time."""
        numbers = [store.add() for _ in range(7)]
        seen: list[int] = []
        before: object = None
        while True:
            page, before = rows.page({}, 3, before)
            seen += [row["id"] for row in page]
            if before is None:
                break
        assert seen == numbers[::-1]

    def test_filters_are_joined(self, store: Store, rows: Rows) -> None:
        """Failed ones of one name, since noon."""
        wanted = store.add(status=3, name="a", ended_at=BEGAN + 5)
        store.add(status=2, name="a", ended_at=BEGAN + 5)
        store.add(status=3, name="b", ended_at=BEGAN + 5)
        store.add(status=5, name="a", submitter="you", ended_at=BEGAN + 5)
        store.add(status=3, name="a", lane=0, ended_at=BEGAN + 5)
        filters = {"status": ["failed", "dead"], "name": "a", "submitter": "me", "lane": "long"}
        found, _ = rows.page(filters, 9, None)
        assert [row["id"] for row in found] == [wanted]

    def test_times_are_seconds_or_text(self, store: Store, rows: Rows) -> None:
        """`--since 2026-09-21T14:13:22Z` and a program's time.time() say the same."""
        numbers = [store.add() for _ in range(4)]
        text = rfc3339(BEGAN + 2000)
        for since in (text, BEGAN / 1000 + 2):
            found, _ = rows.page({"since": since}, 9, None)
            assert [row["id"] for row in found] == numbers[:1:-1]
        found, _ = rows.page({"until": text}, 9, None)
        assert [row["id"] for row in found] == numbers[1::-1]

    def test_children_are_listed_by_their_parent(self, store: Store, rows: Rows) -> None:
        """What a request submitted is found after the request itself was pruned, too."""
        parent = store.add()
        options = msgspec.msgpack.encode({"retries": 1, "parent": parent})
        children = [store.add(options=options) for _ in range(2)]
        store.add(options=msgspec.msgpack.encode({"parent": children[0]}))
        for said in (text_of(parent), parent):
            found, _ = rows.page({"parent": said}, 9, None)
            assert [row["id"] for row in found] == children[::-1]
        store.run("DELETE FROM requests WHERE id = ?", parent)
        found, _ = rows.page({"parent": text_of(parent)}, 9, None)
        assert [row["id"] for row in found] == children[::-1]

    @pytest.mark.parametrize(
        ("filters", "limit"),
        [
            ({"state": "failed"}, 1),
            ({"parent": "no id"}, 1),
            ({"status": "done"}, 1),
            ({"status": []}, 1),
            ({"lane": "fast"}, 1),
            ({"since": "yesterday"}, 1),
            ({}, 0),
            ({}, PAGE_MAX + 1),
            ({}, "9"),
        ],
    )
    def test_what_cannot_be_listed_is_refused(self, rows: Rows, filters: Any, limit: Any) -> None:
        """A misspelt filter would list everything."""
        with pytest.raises(Refused) as caught:
            rows.page(filters, limit, None)
        assert caught.value.code == "invalid"

    def test_a_row_has_words_and_units(self, store: Store, rows: Rows) -> None:
        """Programs read it by the product's names."""
        number = store.add(
            status=2,
            attempts=1,
            claimed_at=BEGAN + 250,
            ended_at=BEGAN + 1750,
            peak_bytes=9,
            result_kind=1,
            result_bytes=4,
        )
        seen = shown(rows.get(number), BEGAN + 9999)
        assert seen["status"] == "succeeded"
        assert seen["lane"] == "long"
        assert (seen["queue_s"], seen["run_s"]) == (0.25, 1.5)
        assert seen["accepted_at"] == "2026-09-21T14:13:20.000Z"
        assert seen["ended_at"] == "2026-09-21T14:13:21.750Z"


class TestAnswers:
    def test_a_waiting_request_has_the_reason_of_now(
        self, store: Store, admin: Admin, live: Live
    ) -> None:
        """`forebay ps` says what each one waits for."""
        number = store.add()
        live.reasons[number] = {
            "status": "queued",
            "reason": "waiting: needs 210 MB, 95 MB free of 750 MB",
            "next": "wait",
            "decisions": [(BEGAN, "accepted")],
        }
        (row,) = ask(admin, "list", {"status": ["queued"]})["requests"]
        assert row["reason"] == "waiting: needs 210 MB, 95 MB free of 750 MB"
        told = ask(admin, "why", text_of(number))
        assert told["next"] == "wait"
        assert told["decisions"] == [{"at": rfc3339(BEGAN), "text": "accepted"}]

    def test_the_end_of_a_request_tells_its_whole_story(self, store: Store, admin: Admin) -> None:
        """Why it failed, after which runs, and what to do."""
        died = {"kind": "died", "cause": "memory", "pid": 7, "peak_bytes": 210_000_000}
        number = store.add(
            status=5,
            attempts=2,
            deaths=2,
            claimed_at=BEGAN + 2000,
            ended_at=BEGAN + 3000,
            failure=json.dumps({**died, "limit_bytes": 750_000_000}),
        )
        store.run(
            "INSERT INTO runs VALUES (?, 1, ?, ?, ?)",
            number,
            BEGAN,
            BEGAN + 1000,
            json.dumps(died),
        )
        told = ask(admin, "why", text_of(number))
        assert "set aside after it ended 2 workers" in told["reason"]
        assert "used 210 MB of 750 MB" in told["reason"]
        assert "memory=" in told["next"]
        texts = [it["text"] for it in told["decisions"]]
        assert texts[0] == "accepted"
        assert "run 1 ended: its worker (process 7) was ended for want of memory" in texts[1]
        assert texts[2:] == ["run 2 began", "dead"]

    def test_show_has_arguments_options_and_runs(self, store: Store, admin: Admin) -> None:
        """Everything that is known, in one object."""
        span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        options = {"retries": 2, "after": [FIRST], "parent": FIRST, "traceparent": span}
        number = store.add(options=msgspec.msgpack.encode(options))
        blob = msgspec.msgpack.encode(
            {"index": 7, "image": msgspec.msgpack.Ext(1, b"x" * 10), "long": "y" * 9999}
        )
        store.run("INSERT INTO arguments VALUES (?, ?)", number, blob)
        told = ask(admin, "show", text_of(number))
        assert told["arguments"]["index"] == 7
        assert told["arguments"]["image"] == "<array, 10 B>"
        assert told["arguments"]["long"].startswith("<10001 characters")
        assert told["options"] == {"retries": 2, "after": [text_of(FIRST)]}
        assert (told["parent"], told["traceparent"]) == (text_of(FIRST), span)
        assert ask(admin, "arguments", text_of(number))["arguments"] == blob

    def test_top_has_what_runs_whatever_waits(self, store: Store, admin: Admin, live: Live) -> None:
        """A hundred thousand that wait do not hide the one that runs."""
        running = store.add(status=1, claimed_at=BEGAN)
        for _ in range(3):
            store.add()
        told = ask(admin, "top", 2)
        assert running == FIRST  # which the worker of `Live` runs
        assert [one["status"] for one in told["requests"]] == ["running", "queued", "queued"]
        assert told["more"] is True

    def test_workers_have_their_processes(self, admin: Admin) -> None:
        """To look at one with the tools of the system; one that starts has none yet."""
        told = ask(admin, "workers")["workers"]
        assert [(it["slot"], it["pid"]) for it in told] == [(0, 77), (1, None)]

    def test_ids_of_a_retry_are_resolved(self, store: Store, admin: Admin, live: Live) -> None:
        """A beginning will do there too."""
        number = store.add(status=3, ended_at=BEGAN)
        assert ask(admin, "retry", ["@last"]) == [{"id": text_of(number), "status": "queued"}]
        assert live.asked == [("retry", [number])]
        assert live.audited == [("retry", "ann", number, "")]

    def test_orders_are_audited(self, admin: Admin, live: Live) -> None:
        """With who gave them; questions, and what was refused, are none."""
        for method, args in (("info", ()), ("stop", (-1,)), ("set_schedule", ("nightly", True))):
            ask(admin, method, *args)
        assert live.audited == [("set_schedule", "ann", None, '["nightly",true]')]

    def test_a_cordon_is_signed_and_audited(self, admin: Admin, live: Live) -> None:
        """Who is refused reads who asked for that; what is refused itself does nothing."""
        assert ask(admin, "cordon", "a new kernel", False)["schema"] == 1
        assert ask(admin, "uncordon")["undone"] is True
        assert live.asked == [("cordon", "ann", "a new kernel", False), ("uncordon",)]
        assert [line[:2] for line in live.audited] == [("cordon", "ann"), ("uncordon", "ann")]

    def test_only_what_has_ended_can_be_pruned(self, admin: Admin, live: Live) -> None:
        """A rule that names the running ones is a mistake."""
        assert ask(admin, "prune", {"status": ["running"]})["code"] == "invalid"
        refused = ask(admin, "prune", {"status": []})  # a filter that came out empty is not "all"
        assert (refused["code"], refused["object"]) == ("invalid", "status")
        assert ask(admin, "prune", {"older_s": 5})["pruned"] == 1
        assert live.asked == [("prune", {"older_s": 5})]

    def test_schedules_tell_when_they_ran(self, admin: Admin, live: Live) -> None:
        """`forebay cron`."""
        (told,) = ask(admin, "schedules")["schedules"]
        assert told == {
            "name": "nightly",
            "cron": "0 3 * * *",
            "fired_at": rfc3339(BEGAN),
            "next_at": None,
        }
        ask(admin, "set_schedule", "nightly", True)
        assert live.asked == [("set_schedule", "nightly", True)]
        assert ask(admin, "set_schedule", "daily", True)["code"] == "unknown"

    @pytest.mark.parametrize(
        ("method", "args", "code"),
        [
            ("nonsense", (), "unknown"),
            ("status", (), "invalid"),
            ("status", ("zz",), "unknown"),
            ("status", (3.5,), "invalid"),
            ("status", (2**64 - 1,), "invalid"),
            ("status", (-1,), "invalid"),
            ("retry", ("not a list",), "invalid"),
            ("list", (5,), "invalid"),
            ("list", ({5: 1},), "invalid"),
            ("list", ({"status": 5},), "invalid"),
            ("list", ({"since": 1e300},), "invalid"),
            ("list", ({"until": float("nan")},), "invalid"),
            ("prune", (5,), "invalid"),
            ("prune", ({"older": 5},), "invalid"),
            ("prune", ({"older_s": "1d"},), "invalid"),
            ("prune", ({"older_s": -1},), "invalid"),
            ("prune", ({"status": 5},), "invalid"),
            ("prune", ({"ids": 5},), "invalid"),
            ("set_schedule", (5, True), "invalid"),
            ("cordon", (5,), "invalid"),
            ("cordon", ("x" * 501,), "invalid"),
            ("cordon", ("two\nlines",), "invalid"),
            ("cordon", ("", "no"), "invalid"),
            ("stop", ("soon",), "invalid"),
            ("stop", (float("nan"),), "invalid"),
            ("stop", (-1,), "invalid"),
        ],
    )
    def test_what_cannot_be_answered_is_refused(
        self, admin: Admin, method: str, args: tuple[Any, ...], code: str
    ) -> None:
        """One client's mistake is told to it, and the server goes on."""
        assert ask(admin, method, *args)["code"] == code

    def test_a_broken_head_is_refused(self, admin: Admin) -> None:
        """Bytes that are no call."""
        assert msgspec.msgpack.decode(admin.answer("info", b"\xc1"))[1]["code"] == "invalid"


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ({"kind": "raised", "name": "ValueError", "message": "no"}, "raised ValueError: no"),
        ({"kind": "died", "cause": "signal", "signal": 11, "pid": 3}, "SIGSEGV"),
        ({"kind": "died", "cause": "exit", "exit_code": 3, "pid": 3}, "exited with code 3"),
        ({"kind": "died", "cause": "server", "pid": 3}, "ended with its server"),
        ({"kind": "died", "cause": "unknown", "pid": None}, "nobody could tell"),
        ({"kind": "timed_out", "timeout_s": 2.5}, "timeout of 2.5 s"),
        ({"kind": "after", "id": "0123"}, "request 0123"),
        ({"kind": "outcome_unknown"}, "power"),
        ({"kind": "unkept", "message": "its file is a link"}, "its file is a link"),
        ({"kind": "refused", "message": "gone"}, "gone"),
    ],
)
def test_every_failure_is_told_in_words(failure: dict[str, Any], expected: str) -> None:
    """More than "server closed" is seen of a crash."""
    assert expected in cause(failure, "tune")[0]
