"""The thread that has hooks called, without a server."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import BrokenError, ClosedError
from forebay.executor.server.hooks import driver, payload
from tests.executor.server.hooks.hooked import idle_hooks


class Rows:
    """Rows of an outbox, for those who only read."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def deliveries(self, hook: str, count_max: int) -> list[dict[str, Any]]:
        """The rows."""
        return self._rows[:count_max]


def test_a_test_after_the_end_of_the_hooks_is_refused(tmp_path: Path) -> None:
    """Nobody would answer it."""
    hooks = idle_hooks(tmp_path)
    hooks._ending = True
    with pytest.raises(ClosedError, match="the hook was not called"):
        hooks.test("ops")


def test_a_store_that_cannot_be_read_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not each second of it; what changes is told, and that it is over."""
    hooks = idle_hooks(tmp_path)
    turns = [BrokenError("a"), BrokenError("a"), BrokenError("b"), None, BrokenError("b"), None]

    def turn() -> None:
        fault = turns.pop(0)
        hooks._ending = not turns
        if fault is not None:
            raise fault

    monkeypatch.setattr(hooks, "_turn", turn)
    monkeypatch.setattr(driver, "PAUSE_S", 0.0)
    hooks._run()
    wrong, again = "hooks are not called for now: ", "hooks are called again"
    assert caplog.messages == [f"{wrong}a", f"{wrong}b", again, f"{wrong}b", again]
    assert all(it.exc_info is None for it in caplog.records)


def test_a_row_that_cannot_be_sent_ends_its_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else four of them would be the last that were ever tried."""
    hooks = idle_hooks(tmp_path)
    row: dict[str, Any] = {"number": 1, "tries": 0, "due_at": 0, "event": "queue", "at": 0}
    row |= {"request": None, "name": None, "detail": "no JSON"}
    rows = Rows([row | {"token": f"t{number}"} for number in range(9)])
    monkeypatch.setattr(hooks, "_reader", rows, raising=False)
    for _ in range(3):
        hooks._begin_due()
    assert hooks._turns.flying == []
    assert hooks.outbox.reports() == 6
    monkeypatch.setattr(payload, "body", lambda *_: {}["none"])
    done: Future[dict[str, Any]] = Future()
    hooks._tests.put((hooks._hooks["ops"], done))
    hooks._begin_tests()
    told = done.result(0)
    assert (told["delivered"], told["said"]) == (False, "it cannot be called: KeyError('none')")
    assert caplog.messages == ["hook ops cannot be called"] * 7
    caplog.clear()  # its tracebacks hold the hooks


def test_where_no_report_has_room_nothing_is_tried_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that stays full: what a receiver has answered would be forgotten."""
    hooks = idle_hooks(tmp_path, "dead", "disk")
    row: dict[str, Any] = {"number": 1, "token": "t", "tries": 0, "due_at": 0, "event": "dead"}
    row |= {"at": 0, "request": None, "name": None, "detail": "null"}
    monkeypatch.setattr(hooks, "_reader", Rows([row]), raising=False)
    monkeypatch.setattr(hooks, "_ask", lambda *_: None)
    monkeypatch.setattr(hooks, "_values", lambda: {"disk": (1, 100)})
    most = hooks.outbox.room()
    for _ in range(most - 1):
        assert hooks.outbox.add("ops", "disk", 0, "{}")
    hooks._begin_due()
    assert hooks._turns.flying == ["t"]
    hooks._look()
    assert hooks.outbox.room() == 1, "what is left is for the end of the try"
    hooks._end("t", "204", 0.1, is_answered=True)
    assert (hooks.outbox.room(), hooks.outbox.reports()) == (0, most)
    assert not hooks.outbox.add("ops", "disk", 0, "{}")
    monkeypatch.setattr(hooks, "_reader", Rows([row | {"token": "u"}]))
    hooks._begin_due()
    assert (hooks._turns.flying, hooks._due_ms) == ([], None)
    monkeypatch.setattr(hooks, "outbox", idle_hooks(tmp_path).outbox)  # all is on disk
    hooks._look()
    assert hooks.outbox.reports() == 1, "the limit that was near meanwhile"
    hooks._begin_due()
    assert hooks._turns.flying == ["u"]
