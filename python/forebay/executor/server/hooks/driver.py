"""The thread of a server that has hooks called, and what a server tells of them.

It waits for rows of the outbox, for the ends of tries and for times, and for nothing else: names
are resolved, receivers are waited for and commands run in the hooks process.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from forebay import _core
from forebay._hook_config import HookConfig
from forebay.errors import ClosedError, ConfigError, Error
from forebay.executor.server.hooks import payload
from forebay.executor.server.hooks.edges import Edges
from forebay.executor.server.hooks.link import TRY_S, Link
from forebay.executor.server.hooks.log import HookLog
from forebay.executor.server.hooks.said import in_a_line
from forebay.executor.server.hooks.turns import WAITS_S, Row, Turns, Verdict
from forebay.executor.server.rows import now_ms, rfc3339
from forebay.executor.wire.ids import text_of
from forebay.executor.wire.refused import unknown

LOOK_S: Final = 5.0
"""Seconds between two looks at limits, and two attempts to write what a full disk refused."""
CLOCK_S: Final = 60.0
"""The longest sleep until a row is due: the clock may be set back meanwhile."""
PAUSE_S: Final = 1.0
"""After a fault, or a store that cannot be read."""
LIMITS: Final = ("memory", "queue", "disk")
PASSED: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ")
"""What a command has of the server's environment."""
LOG_COUNT_MAX: Final = 1_000
_ENDS: Final = "the server ends, and the hook was not called"

_log = logging.getLogger(__name__)


class Hooks:
    """Has the hooks of a server called.

    Args:
        hooks: what calls them, and what they call.
        state: the state directory.
        app: the application, for what is sent.
        number: of the server.
        max_queued: the limit of what waits.

    Raises:
        ConfigError: a secret cannot be read.

    Thread affinity: any thread may call any method; `start` and `close` once.
    """

    def __init__(
        self,
        hooks: Sequence[HookConfig],
        *,
        state: Path,
        app: str,
        number: int,
        max_queued: int,
    ) -> None:
        self._hooks = {hook.name: hook for hook in hooks}
        for hook in hooks:
            if hook.secret_file:
                _secret_of(hook)
        self._state = state
        self._server = {"host": socket.gethostname(), "number": number, "app": app}
        self._max_queued = max_queued
        self.outbox = _core.HookOutbox(
            [(it.name, "dead" in it.on, "failed" in it.on, list(it.names)) for it in hooks]
        )
        """For the settings of the dispatcher, which fills it."""
        self._limits = {event for hook in hooks for event in hook.on} & set(LIMITS)
        self._turns = Turns(self._hooks, WAITS_S)
        self._edges = Edges()
        self._log = HookLog(state)
        self._link = Link(state, TRY_S)
        self._ended: Counter[tuple[str, str]] = Counter()
        """Tries by hook and outcome."""
        self._dropped = 0
        self._tests: queue.SimpleQueue[tuple[HookConfig, Future[dict[str, Any]]]]
        self._tests = queue.SimpleQueue()
        self._tested: dict[str, tuple[HookConfig, Future[dict[str, Any]]]] = {}
        self._due_ms: int | None = None
        self._look_at = self._write_at = 0.0
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="forebay-hooks")
        self._reader: _core.StoreReader
        self._metrics: Callable[[], dict[str, Any]]

    def start(self, metrics: Callable[[], dict[str, Any]]) -> None:
        """Begin; the store is open.

        Args:
            metrics: gives the gauges of the dispatcher.
        """
        self._metrics = metrics
        self._reader = _core.StoreReader(str(self._state))
        self._thread.start()

    def close(self) -> None:
        """End the thread and the hooks process; what waits is on disk."""
        self._ending = True
        self.outbox.wake()
        self._thread.join()

    # What the server tells.

    def seen(self) -> list[dict[str, Any]]:
        """The hooks, with what waits for them; also of hooks that are configured no more."""
        counts = {one["hook"]: one for one in self._reader.outbox()}
        told = [_shown(hook, counts.pop(hook.name, {})) for hook in self._hooks.values()]
        return told + [_shown(None, one) for one in counts.values()]

    def figures(self) -> dict[str, list[Any]]:
        """Tries, and what waits for hooks that are configured, as metrics."""
        waiting = self._reader.waiting(list(self._hooks))
        counters: list[tuple[str, dict[str, str], int]] = [
            ("forebay_hook_deliveries_total", {"hook": hook, "outcome": outcome}, count)
            for (hook, outcome), count in list(self._ended.items())
        ]
        counters.append(("forebay_hooks_dropped_total", {}, self.outbox.dropped()))
        return {"counters": counters, "gauges": [("forebay_hooks_waiting", {}, waiting)]}

    def log(self, count: int) -> list[dict[str, Any]]:
        """The last lines of the log, the oldest first."""
        return self._log.tail(min(count, LOG_COUNT_MAX))

    def test(self, name: str) -> dict[str, Any]:
        """Call a hook now, once, and wait for the end of that.

        Raises:
            Refused: there is no such hook.
            ClosedError: the server ends.
        """
        hook = self._hooks.get(name)
        if hook is None:
            raise unknown("hook", name, "see: forebay hooks ls")
        done: Future[dict[str, Any]] = Future()
        self._tests.put((hook, done))
        if self._ending:  # what is put after this was said may be read by nobody
            raise ClosedError(_ENDS)
        self.outbox.wake()
        return done.result()

    # The thread.

    def _run(self) -> None:
        told: str | None = None
        while not self._ending:
            try:
                self._turn()
            except Exception as error:  # a thread's last boundary
                fault = str(error) or repr(error)
                if fault != told:  # once, not with each pause of a store that cannot be read
                    trace = None if isinstance(error, Error) else error
                    _log.warning("hooks are not called for now: %s", fault, exc_info=trace)
                told = fault
                self._rest()
            else:
                if told is not None:
                    _log.warning("hooks are called again")
                told = None
        self._link.close()
        self._give_tests_up()

    def _rest(self) -> None:
        """Pause, unless the server ends."""
        until = time.monotonic() + PAUSE_S
        while not self._ending and (left := until - time.monotonic()) > 0:
            select.select([self.outbox.fileno()], [], [], left)
            if not self._ending:
                self.outbox.clear()

    def _turn(self) -> None:
        """One round: take what has ended, begin what is due, and wait for the next."""
        self.outbox.clear()
        for token, is_answered, said, seconds in self._link.ended():
            self._end(token, said, seconds, is_answered=is_answered)
        self._begin_tests()
        self._begin_due()
        self._tell_dropped()
        if self._limits and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_S
            self._look()
        self._wait()

    def _wait(self) -> None:
        if self._ending:
            return  # said before the turn made the outbox unreadable
        poll = select.poll()
        poll.register(self.outbox.fileno(), select.POLLIN)
        if (descriptor := self._link.fileno()) is not None:
            poll.register(descriptor, select.POLLIN)
        now = time.monotonic()
        ends: list[float] = []
        if self.outbox.reports() > 0:
            ends.append(max(0.1, self._write_at - now))
        if self._limits:
            ends.append(self._look_at - now)
        if self._due_ms is not None:
            ends.append(min(CLOCK_S, (self._due_ms - now_ms()) / 1000))
        if (deadline := self._link.deadline()) is not None:
            ends.append(deadline - now)
        # A millisecond more: never before it is due.
        poll.poll(max(0.0, min(ends)) * 1000 + 1 if ends else None)

    def _begin_due(self) -> None:
        unwritten = self.outbox.reports()
        self._turns.forget_reported(unwritten)
        if unwritten > 0 and time.monotonic() >= self._write_at:
            self.outbox.write()  # a disk that was full may have room
            self._write_at = time.monotonic() + LOOK_S
        room = self.outbox.room()
        chosen, self._due_ms = self._turns.choose(self._reader.deliveries, now_ms(), room)
        for hook, row in chosen:
            fault = self._ask(self._hooks[hook], row, row["token"])
            if fault is not None:
                self._end(row["token"], fault, 0.0, is_answered=False)

    def _ask(self, hook: HookConfig, row: Row, token: str) -> str | None:
        """Have the hooks process carry out a try; why it cannot, or None.

        Never an exception: a try that did not begin has to end too.
        """
        try:
            fault = self._link.ask(token, **self._asked(hook, row))
        except ConfigError as error:
            fault = str(error)
        except Exception as error:  # one row's boundary: the others go on
            _log.exception("hook %s cannot be called", hook.name)
            fault = f"it cannot be called: {error!r}"
        return None if fault is None else in_a_line(fault)

    def _asked(self, hook: HookConfig, row: Row) -> dict[str, Any]:
        """What the hooks process needs for a try.

        Raises:
            ConfigError: the secret cannot be read.
        """
        body = payload.body(hook.name, row, self._server)
        secret = _secret_of(hook) if hook.secret_file else None
        passed = {name: os.environ[name] for name in PASSED if name in os.environ}
        return {
            "url": hook.url,
            "headers": payload.headers(row["token"], int(time.time()), body, secret),
            "command": list(hook.command),
            "environment": {**passed, "FOREBAY_HOOK": hook.name, "FOREBAY_EVENT": row["event"]},
            "body": body,
        }

    def _end(self, token: str, said: str, seconds: float, *, is_answered: bool) -> None:
        """A try has ended."""
        if (tested := self._tested.pop(token, None)) is not None:
            told = {"hook": tested[0].name, "delivered": is_answered, "said": said}
            tested[1].set_result({**told, "seconds": seconds})
            return
        verdict = self._turns.ended(token, is_answered=is_answered, now_ms=now_ms())
        if verdict is None:
            return
        self._report(verdict, said)
        outcome = "delivered" if is_answered else "failed" if verdict.due_ms else "given_up"
        self._ended[verdict.hook, outcome] += 1
        self._log.write(_entry(verdict, outcome, said, seconds))

    def _report(self, verdict: Verdict, said: str) -> None:
        number, token = verdict.row["number"], verdict.row["token"]
        if verdict.is_answered:
            is_taken = self.outbox.answered(number, token)
        else:
            is_taken = self.outbox.tried(number, token, verdict.tries, verdict.due_ms, said)
        assert is_taken, "a try began whose end has no room"
        if not verdict.is_answered and verdict.due_ms is None:
            _log.error(
                "hook %s: %s was given up after %d tries: %s; see: forebay hooks log",
                verdict.hook,
                verdict.row["event"],
                verdict.tries,
                said,
            )

    def _tell_dropped(self) -> None:
        dropped = self.outbox.dropped()
        if dropped > self._dropped:
            count, self._dropped = dropped - self._dropped, dropped
            _log.error("%d calls of hooks were dropped: outbox_rows_max was reached", count)
            self._log.write({"at": rfc3339(now_ms()), "outcome": "dropped", "count": count})

    # Limits.

    def _look(self) -> None:
        values = self._values()
        for hook in self._hooks.values():
            for kind in (event for event in hook.on if event in values):
                value, limit = values[kind]
                if self.outbox.room() <= len(self._turns.flying):
                    return  # what is left is for the ends of tries; the next look tells it
                if self._edges.look(hook, kind, value, limit, time.monotonic()):
                    shown = hook.free if kind == "disk" else limit
                    detail = json.dumps({"kind": kind, "value": value, "limit": shown})
                    self.outbox.add(hook.name, kind, now_ms(), detail)

    def _values(self) -> dict[str, tuple[int, int]]:
        """What is used and what there is, of each limit that a hook asks for."""
        values: dict[str, tuple[int, int]] = {}
        if self._limits & {"memory", "queue"}:
            try:
                gauges = self._metrics()["gauges"]
            except ClosedError:  # the dispatcher ends first
                return values
            sums: Counter[str] = Counter()
            for name, _, value in gauges:
                sums[name] += value
            if limit := sums["forebay_memory_limit_bytes"]:
                values["memory"] = (sums["forebay_memory_resident_bytes"], limit)
            unfinished = sums["forebay_requests_waiting"] + sums["forebay_requests_running"]
            values["queue"] = (unfinished, self._max_queued)
        if "disk" in self._limits:
            with contextlib.suppress(OSError):
                disk = os.statvfs(self._state)
                free = disk.f_bavail * disk.f_frsize
                values["disk"] = (free, disk.f_blocks * disk.f_frsize)
        return values

    # Tests of a hook.

    def _begin_tests(self) -> None:
        while True:
            try:
                hook, done = self._tests.get_nowait()
            except queue.Empty:
                return
            token = os.urandom(16).hex()
            row = {"token": token, "event": "test", "at": now_ms(), "request": None}
            self._tested[token] = (hook, done)
            fault = self._ask(hook, {**row, "detail": "null"}, token)
            if fault is not None:
                self._end(token, fault, 0.0, is_answered=False)

    def _give_tests_up(self) -> None:
        waiting = [done for _, done in self._tested.values()]
        with contextlib.suppress(queue.Empty):
            while True:
                waiting.append(self._tests.get_nowait()[1])
        for done in waiting:
            done.set_exception(ClosedError(_ENDS))


def _secret_of(hook: HookConfig) -> bytes:
    """The secret of a webhook.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return payload.read_secret(hook.secret_file)
    except ConfigError as error:
        raise ConfigError(f"hook {hook.name!r}: {error}") from None


def _shown(hook: HookConfig | None, counts: dict[str, Any]) -> dict[str, Any]:
    """A hook as it is listed; None: it is configured no more."""
    return {
        "name": hook.name if hook else counts["hook"],
        "is_configured": hook is not None,
        "on": list(hook.on) if hook else [],
        "names": list(hook.names) if hook else [],
        "target": hook.target if hook else None,
        "is_signed": bool(hook and hook.secret_file),
        "waiting": counts.get("waiting", 0),
        "given_up": counts.get("given_up", 0),
        "error": counts.get("error"),
    }


def _entry(verdict: Verdict, outcome: str, said: str, seconds: float) -> dict[str, Any]:
    """A line of the log."""
    row = verdict.row
    return {
        "at": rfc3339(now_ms()),
        "hook": verdict.hook,
        "event": row["event"],
        "id": None if row["request"] is None else text_of(row["request"]),
        "name": row["name"],
        "webhook_id": f"msg_{row['token']}",
        "try": verdict.tries,
        "outcome": outcome,
        "said": said,
        "seconds": seconds,
        "next_at": rfc3339(verdict.due_ms),
    }
