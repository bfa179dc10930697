"""What hooks decide, without a clock, a thread or a socket."""

from __future__ import annotations

import base64
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay._hook_config import HookConfig
from forebay.errors import ConfigError
from forebay.executor.server.hooks import payload
from forebay.executor.server.hooks.edges import Edges
from forebay.executor.server.hooks.log import BYTES_MAX, HookLog
from forebay.executor.server.hooks.turns import AT_ONCE, AT_ONCE_OF_HOOK, WAITS_S, Row, Turns


class Outbox:
    """The rows of the store, and reports that a full disk keeps from it."""

    def __init__(self, **counts: int) -> None:
        numbers = itertools.count()
        self.rows: dict[str, list[Row]] = {
            hook: [
                {"number": (n := next(numbers)), "token": f"t{n}", "tries": 0, "due_at": 0}
                for _ in range(count)
            ]
            for hook, count in counts.items()
        }

    def read(self, hook: str, count_max: int) -> list[Row]:
        """Rows of a hook that wait."""
        waiting = [row for row in self.rows[hook] if row["due_at"] is not None]
        return sorted(waiting, key=lambda row: row["due_at"])[:count_max]

    def write(self, verdict: Any) -> None:
        """Have a report on disk."""
        if verdict.is_answered:
            self.rows[verdict.hook].remove(verdict.row)
        else:
            verdict.row.update(tries=verdict.tries, due_at=verdict.due_ms)


def test_each_wait_follows_its_try_and_after_the_fifth_there_is_none() -> None:
    """As the concept page has it: at once, then after 5 s, 30 s, 2 min and 10 min."""
    turns = Turns(["a"], chance=lambda: 0.5)
    outbox, now = Outbox(a=1), 1_000
    waits = []
    while True:
        chosen, due = turns.choose(outbox.read, now)
        if not chosen:
            break
        assert due is None
        verdict = turns.ended("t0", is_answered=False, now_ms=now)
        assert verdict is not None
        assert turns.choose(outbox.read, now)[0] == []  # reported, and not on disk
        verdict.row.update(tries=verdict.tries, due_at=verdict.due_ms)
        outbox.rows["a"][0].update(tries=verdict.tries, due_at=verdict.due_ms)
        turns.forget_reported(0)
        if verdict.due_ms is None:
            continue
        waits.append((verdict.due_ms - now) / 1000)
        assert turns.choose(outbox.read, verdict.due_ms - 1) == ([], verdict.due_ms)
        now = verdict.due_ms
    assert tuple(waits) == WAITS_S
    assert outbox.rows["a"][0]["tries"] == 5


def test_waits_differ_by_a_fifth() -> None:
    """What failed together is not tried again together."""
    for chance, wait in ((0.0, 4_000), (1.0, 6_000)):
        turns = Turns(["a"], chance=lambda chance=chance: chance)
        turns.choose(Outbox(a=1).read, 0)
        verdict = turns.ended("t0", is_answered=False, now_ms=0)
        assert verdict is not None
        assert verdict.due_ms == wait


def test_a_hook_that_hangs_leaves_room() -> None:
    """Two of its tries run, and the others' go on."""
    turns = Turns(["slow", "b", "c"])
    outbox = Outbox(slow=9, b=3, c=1)
    chosen, _ = turns.choose(outbox.read, 0)
    assert [hook for hook, _ in chosen] == ["slow", "b", "c", "slow"]
    assert len(chosen) == AT_ONCE
    assert turns.choose(outbox.read, 0) == ([], None)
    told = []
    while len(outbox.rows["b"]) > 0:
        for hook, row in list(chosen):
            if hook != "slow":
                verdict = turns.ended(row["token"], is_answered=True, now_ms=0)
                assert verdict is not None
                outbox.rows[hook] = [it for it in outbox.rows[hook] if it["token"] != row["token"]]
                told.append(hook)
                chosen.remove((hook, row))
        more, _ = turns.choose(outbox.read, 0)
        chosen += more
    assert sorted(told) == ["b", "b", "b", "c"]
    assert [hook for hook, _ in chosen] == ["slow", "slow"]


def test_a_clock_that_was_set_back_delays_a_try_by_no_more_than_a_wait() -> None:
    """A row that is due in a year is tried now, and one within the longest wait when it is due."""
    turns = Turns(["a"])
    outbox = Outbox(a=2)
    near, far = outbox.rows["a"]
    longest = int(1.2 * 1000 * WAITS_S[-1])
    near["due_at"], far["due_at"] = 1_000 + longest, 10**14
    chosen, due = turns.choose(outbox.read, 1_000)
    assert [row["token"] for _, row in chosen] == [far["token"]]
    assert due == 1_000 + longest
    chosen, _ = turns.choose(outbox.read, 1_000 + longest)
    assert [row["token"] for _, row in chosen] == [near["token"]]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["ok", "fail", "write", "time"]), max_size=120),
    st.integers(1, 8),
    st.data(),
)
def test_every_row_is_delivered_or_tried_five_times(
    steps: list[str], most: int, data: st.DataObject
) -> None:
    """Whatever the order of answers, failures, commits and time; never twice at once.

    The store takes `most` reports: nothing begins whose end would be one too many.
    """
    turns = Turns(["a", "b", "c"])
    outbox = Outbox(a=3, b=2, c=4)
    flying: dict[str, str] = {}
    unwritten: list[tuple[str, str, int, int | None, bool]] = []
    tried: dict[str, int] = {}
    answered: set[str] = set()
    now = 0

    def write(count: int) -> None:
        for hook, token, tries, due, is_answered in unwritten[:count]:
            (row,) = (row for row in outbox.rows[hook] if row["token"] == token)
            if is_answered:
                outbox.rows[hook].remove(row)
            else:
                row.update(tries=tries, due_at=due)
        del unwritten[:count]
        turns.forget_reported(len(unwritten))
        assert len(turns._reported) <= len(unwritten)

    def end(token: str, *, is_answered: bool) -> None:
        verdict = turns.ended(token, is_answered=is_answered, now_ms=now)
        assert verdict is not None
        flying.pop(token)
        assert verdict.tries == tried[token]
        if is_answered:
            answered.add(token)
        unwritten.append((verdict.hook, token, verdict.tries, verdict.due_ms, is_answered))
        assert len(unwritten) <= most

    def choose() -> None:
        room = most - len(unwritten)
        chosen, due = turns.choose(outbox.read, now, room)
        assert due is None or due > now or len(flying) + len(chosen) < min(AT_ONCE, room)
        for hook, row in chosen:
            token = row["token"]
            assert token not in flying
            assert token not in answered
            flying[token] = hook
            tried[token] = tried.get(token, 0) + 1
            assert tried[token] <= 5
        assert len(flying) <= AT_ONCE
        assert all(list(flying.values()).count(it) <= AT_ONCE_OF_HOOK for it in "abc")

    for step in steps:
        choose()
        if step == "write":
            write(data.draw(st.integers(0, len(unwritten))))
        elif step == "time":
            now += 200_000
        elif flying:
            end(data.draw(st.sampled_from(sorted(flying))), is_answered=step == "ok")
    for _ in range(200):
        choose()
        for token in list(flying):
            end(token, is_answered=False)
        write(len(unwritten))
        now += 1_000_000
    assert len(tried) == 9
    assert all(count == 5 for token, count in tried.items() if token not in answered)


def test_a_limit_is_told_when_it_comes_near_and_again_after_it_was_far() -> None:
    """A value that trembles at the threshold calls once, and one that swings once a minute."""
    edges = Edges()
    hook = HookConfig("ops", on=("queue", "disk"), url="https://a", above=0.9, free=100)

    def told(value: int, now_s: float) -> bool:
        return edges.look(hook, "queue", value, 100, now_s)

    assert not told(90, 0)
    assert told(91, 1)
    assert not any(told(value, 2 + value) for value in (90, 95, 85, 91, 80, 99))
    assert not told(79, 200)
    assert told(91, 201)
    assert not told(79, 202)
    assert not told(91, 203)
    assert told(91, 262)
    free = [edges.look(hook, "disk", value, 0, value) for value in (120, 99, 101, 98)]
    assert free == [False, True, False, False]
    assert not edges.look(hook, "disk", 126, 0, 400)
    assert edges.look(hook, "disk", 99, 0, 401)


def test_the_signature_is_that_of_the_specification() -> None:
    """The vector of github.com/standard-webhooks, so that its libraries verify ours."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    told = payload.headers("p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, secret)
    assert told == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        (b"sixteen letters!\n", b"sixteen letters!"),
        (b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b"1\xf2\x90\xf6\xbf\x06)\x8a\xabO"),
        (b"whsec_?", None),
        (b"short", None),
        (None, None),
    ],
)
def test_a_secret_is_text_or_base64(
    tmp_path: Path, content: bytes | None, secret: bytes | None
) -> None:
    """As services give it out; what is wrong with one is said, and the secret is not."""
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    if secret is not None:
        assert payload.read_secret(str(path)).startswith(secret)
        return
    with pytest.raises(ConfigError) as caught:
        payload.read_secret(str(path))
    assert str(path) in str(caught.value)
    assert content is None or content.decode() not in str(caught.value).replace("whsec_ ", "")


def test_the_log_keeps_two_files_of_a_megabyte(tmp_path: Path) -> None:
    """A receiver that is down for a month fills no disk, and what a crash has cut is left out."""
    log = HookLog(tmp_path)
    for number in range(30_000):
        log.write({"number": number, "said": "x" * 80})
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(sizes) == {"hooks.log", "hooks.log.1"}
    assert all(size <= BYTES_MAX for size in sizes.values())
    assert [it["number"] for it in log.tail(3)] == [29_997, 29_998, 29_999]
    with open(log.path, "ab") as file:
        file.write(b'{"number": 3')
    assert [it["number"] for it in log.tail(1)] == [29_999]
    for number in (30_000, 30_001):
        log.write({"number": number})
    assert [it["number"] for it in log.tail(3)] == [29_999, 30_000, 30_001]
    assert oct(log.path.stat().st_mode)[-3:] == "600"


def test_a_line_for_people_names_what_happened() -> None:
    """Chat services show `text` and nothing else."""
    server = {"host": "h", "number": 0, "app": "a.py"}
    row = {
        "event": "queue",
        "at": 0,
        "request": None,
        "detail": '{"kind":"queue","value":9,"limit":10}',
    }
    told = json.loads(payload.body("ops", row, server))
    assert told["text"] == "h: queue is at 9, its limit is 10"
    row = {**row, "event": "test", "detail": "null"}
    assert json.loads(payload.body("ops", row, server))["text"] == "h: a test of hook ops"
    told = json.loads(payload.body("ops", row, {**server, "host": "h\udcff"}))
    assert told["text"] == "h?: a test of hook ops"
