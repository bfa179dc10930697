"""What a server answers beside the way of a request: listings, reasons, figures, orders.

Each method gets the arguments of its call and returns the values of its answer; what it refuses it
raises as `Refused`. The main thread calls them, one at a time, and a thread of their own calls
those in `SLOW`: whatever they wait for, the server hears signals and answers the others.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from forebay.errors import Error
from forebay.executor.app.secret import SHOWN
from forebay.executor.server.rows import STATUSES, Row, Rows, now_ms, rfc3339, shown, unfinished
from forebay.executor.server.why import why_ended, why_told
from forebay.executor.wire.codec import SEALED
from forebay.executor.wire.ids import text_of
from forebay.executor.wire.protocol import PROTOCOL
from forebay.executor.wire.refused import (
    Refused,
    checked_list,
    checked_map,
    checked_seconds,
    invalid,
    unknown,
)

if TYPE_CHECKING:
    from forebay.executor.server.hooks.driver import Hooks

SCHEMA = 1
SHOWN_CHARS = 2000
"""Of one argument in `show`; `arguments` has all of it."""

REASONS_MAX = 100
"""Requests of one listing that are asked for their reason."""

METRIC_KINDS = ("counters", "gauges", "histograms")
"""What `metrics` gives: lists of [name, labels, number] or of histograms."""

SLOW = frozenset({"prune", "retry"})
"""Methods that wait for the disk, as long as what they are to do is long."""

HOOK_TEST = "hook_test"
"""The method that waits for somebody else's answer."""

ORDERS = frozenset({"prune", "set_schedule", "cordon", "uncordon", "reload", "stop", HOOK_TEST})
"""Methods that change the server: the audit log has who called them. It has retries by request."""

SIGNED = frozenset({"retry", "cordon"})
"""Methods that are told who calls."""

REASON_CHARS_MAX = 500
"""Of the reason that a cordon is given."""

IDS_MAX = 1000
"""Requests that one `retry` or `prune` may name."""

RULE = ("older_s", "status", "ids", "dry_run")
"""What a `prune` may say."""

_log = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Dispatcher(Protocol):
    """What it needs of a dispatcher."""

    def why(self, id: int) -> dict[str, Any] | None:
        """Of a request that has not ended."""

    def figures(self) -> dict[str, Any]:
        """Counts and sizes."""

    def metrics(self) -> dict[str, list[list[Any]]]:
        """Counters, gauges and histograms."""

    def usage(self) -> dict[str, list[Any]]:
        """What workers use of other systems, as counters, gauges and histograms."""

    def workers(self) -> list[dict[str, Any]]:
        """The workers."""

    def retry(self, ids: list[int], by: str = "") -> list[dict[str, Any]]:
        """Queue ended requests again, for this person."""

    def audit(self, act: str, by: str, id: int | None, object: str) -> None:
        """Queue a line of the audit log."""

    def prune(self, rule: dict[str, Any]) -> dict[str, Any]:
        """Give ended requests up."""

    def cordon(self, by: str, reason: str, dispatches: bool) -> None:
        """Take no submissions."""

    def uncordon(self) -> bool:
        """Take them again; False: there was no cordon."""

    def schedules(self) -> list[dict[str, Any]]:
        """Requests that run by the clock; times in milliseconds since 1970."""

    def set_schedule(self, name: str, paused: bool) -> bool:
        """Let one rest, or go on; False: there is none of that name."""


class House(Protocol):
    """What it needs of the server that it stands in."""

    @property
    def manifest(self) -> dict[str, Any]:
        """Of the newest code; empty where none was loaded."""

    def facts(self) -> dict[str, Any]:
        """What does not change while it runs, and what the application is."""

    def services(self) -> list[dict[str, Any]]:
        """The services that it lends."""

    def figures(self) -> dict[str, list[Any]]:
        """What those are, as gauges of metrics."""

    @property
    def hooks(self) -> Hooks | None:
        """What is called when a request is dead; None: nothing."""

    def hook_figures(self) -> dict[str, list[Any]]:
        """Calls of hooks, as metrics."""

    def pids(self) -> dict[int, int]:
        """Processes of the workers, by their slot."""

    def reload(self) -> None:
        """Load the application anew."""

    def stop(self, drain_s: float | None) -> None:
        """End, after running requests have ended."""


class Admin:
    """Answers calls by their method's name."""

    def __init__(self, dispatcher: Dispatcher, rows: Rows, house: House) -> None:
        self._dispatcher = dispatcher
        self._rows = rows
        self._house = house
        self._methods: dict[str, Callable[..., Any]] = {
            "info": self.info,
            "metrics": self.metrics,
            "manifest": self.manifest,
            "status": self.status,
            "show": self.show,
            "why": self.why,
            "list": self.page,
            "resolve": self.resolve,
            "arguments": self.arguments,
            "retry": self.retry,
            "prune": self.prune,
            "workers": self.workers,
            "services": self.services,
            "schedules": self.schedules,
            "set_schedule": self.set_schedule,
            "hooks": self.hooks,
            "hook_log": self.hook_log,
            HOOK_TEST: self.hook_test,
            "top": self.top,
            "cordon": self.cordon,
            "uncordon": self.uncordon,
            "reload": self.reload,
            "stop": self.stop,
        }

    def answer(self, method: str, arguments: bytes, by: str = "") -> bytes:
        """The head of the answer to a call; it is never an exception.

        Args:
            method: its name.
            arguments: a list in msgpack.
            by: who calls, for the audit log.
        """
        try:
            return _encode((0, self._call(method, arguments, by)))
        except Refused as refused:
            return _encode((1, refused.as_map()))
        except Error as error:
            return _encode((1, Refused("store", str(error)).as_map()))
        except Exception as error:  # who asked is told, and the server goes on
            _log.exception("%s failed", method)
            told = Refused("internal", f"{method} failed: {error!r}", next="see the server's log")
            return _encode((1, told.as_map()))

    def _call(self, method: str, arguments: bytes, by: str) -> Any:
        known = self._methods.get(method)
        if known is None:
            raise unknown("method", method, "use a client of the server's version")
        try:
            args = _decode(arguments)
        except msgspec.DecodeError:
            args = None
        if not isinstance(args, list):
            raise invalid("arguments", "a list", arguments)
        try:
            told = known(*args, by=by) if method in SIGNED else known(*args)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise invalid(method, "other arguments", str(error)) from None
            raise
        if method in ORDERS:
            self._dispatcher.audit(method, by, None, _words(args))
        return told

    # About the server.

    def info(self) -> dict[str, Any]:
        """What runs here, and how it is."""
        return {
            "schema": SCHEMA,
            "version": _version(),
            "protocol": PROTOCOL,
            **self._house.facts(),
            "figures": self._figures(),
        }

    def _figures(self) -> dict[str, Any]:
        figures = dict(self._dispatcher.figures())
        cordon = figures.get("cordon")
        if cordon is not None:
            told = {key: it for key, it in cordon.items() if key != "at_ms"}
            figures["cordon"] = {**told, "at": rfc3339(cordon["at_ms"])}
        return figures

    def metrics(self) -> dict[str, Any]:
        """Every metric of the server, with the names that Prometheus gets.

        Returns:
            `counters` and `gauges`: `[name, {label: value}, number]` each; `histograms`:
            `[name, {label: value}, [[le, cumulative count], ...], sum, count]` each.
            Bounds and sums are in seconds; the bucket above all bounds is `count`.
            Counters count from the start of the server.

        Cost: the same with a million requests as with none.
        """
        build = [("forebay_build_info", {"version": _version() or "source"}, 1)]
        dispatcher = self._dispatcher
        house = self._house
        parts = (
            {"gauges": build},
            dispatcher.metrics(),
            dispatcher.usage(),
            house.figures(),
            house.hook_figures(),
        )
        told = {kind: [it for part in parts for it in part.get(kind, ())] for kind in METRIC_KINDS}
        return {"schema": SCHEMA, **told}

    def manifest(self) -> dict[str, Any]:
        """The requests of the application, with the schemas of their arguments."""
        return self._house.manifest

    def workers(self) -> dict[str, Any]:
        """The workers, and what they run."""
        return {"schema": SCHEMA, "workers": self._workers()}

    def _workers(self) -> list[dict[str, Any]]:
        pids = self._house.pids()
        return [{**it, "pid": pids.get(it["slot"])} for it in self._dispatcher.workers()]

    def services(self) -> dict[str, Any]:
        """The services that it keeps warm."""
        return {"schema": SCHEMA, "services": self._house.services()}

    def schedules(self) -> dict[str, Any]:
        """Requests that run by the clock, and when they did last."""
        told = [
            {key: rfc3339(it) if key in ("fired_at", "next_at") else it for key, it in one.items()}
            for one in self._dispatcher.schedules()
        ]
        # It is called what the application calls it.
        schedules = [{"name": one.pop("name"), "cron": one.pop("pattern"), **one} for one in told]
        return {"schema": SCHEMA, "schedules": schedules}

    def set_schedule(self, name: str, paused: bool) -> dict[str, Any]:
        """Let a schedule rest, or go on."""
        if not isinstance(name, str):
            raise invalid("schedule", "its name", name)
        if not self._dispatcher.set_schedule(name, bool(paused)):
            raise unknown("schedule", name, "see: forebay cron")
        return self.schedules()

    def hooks(self) -> dict[str, Any]:
        """What is called when a request is dead or a limit is near, and what waits for it."""
        hooks = self._house.hooks
        return {"schema": SCHEMA, "hooks": [] if hooks is None else hooks.seen()}

    def hook_log(self, count: int = 50) -> dict[str, Any]:
        """The last calls of hooks, the oldest first."""
        hooks = self._house.hooks
        if not isinstance(count, int) or count < 1:
            raise invalid("count", "a number of lines, 1 or more", count)
        return {"schema": SCHEMA, "calls": [] if hooks is None else hooks.log(count)}

    def hook_test(self, name: str) -> dict[str, Any]:
        """Call a hook once, now; the answer comes after its answer, or after its time."""
        hooks = self._house.hooks
        if hooks is None or not isinstance(name, str):
            raise unknown("hook", str(name), "see: forebay hooks ls")
        return {"schema": SCHEMA, **hooks.test(name)}

    def top(self, limit: int = 50) -> dict[str, Any]:
        """A picture of now: figures, workers, services, and who runs or waits, with reasons."""
        workers = self._workers()
        # The workers know what runs; in the store it may be behind any number that waits.
        running = [id for worker in workers for id in worker["running"]][:limit]
        queued, next_ = self._rows.page({"status": ["queued"]}, limit, None)
        return {
            "schema": SCHEMA,
            "figures": self._figures(),
            "workers": workers,
            "services": self._house.services(),
            "requests": self._shown(self._rows.kept(running)) + self._shown(queued),
            "more": next_ is not None,
        }

    def cordon(self, reason: str = "", dispatches: bool = True, *, by: str = "") -> dict[str, Any]:
        """Take no submissions; what was accepted goes on, or nothing of it begins."""
        if (
            not isinstance(reason, str)
            or len(reason) > REASON_CHARS_MAX
            or not reason.isprintable()
        ):
            raise invalid("reason", f"a line of at most {REASON_CHARS_MAX} characters", reason)
        if not isinstance(dispatches, bool):
            raise invalid("dispatches", "true or false", dispatches)
        self._dispatcher.cordon(by, reason, dispatches)
        return {"schema": SCHEMA, "cordon": self._figures().get("cordon")}

    def uncordon(self) -> dict[str, Any]:
        """Take submissions again; what waits is dispatched."""
        return {"schema": SCHEMA, "cordon": None, "undone": self._dispatcher.uncordon()}

    def reload(self) -> dict[str, Any]:
        """Load the application anew, whether its sources changed or not."""
        self._house.reload()
        return {"schema": SCHEMA, "reloading": True}

    def stop(self, drain_s: float | None = None) -> dict[str, Any]:
        """End once what runs has ended, at most `drain_s` seconds from now."""
        self._house.stop(None if drain_s is None else checked_seconds("drain_s", drain_s))
        return {"schema": SCHEMA, "stopping": True}

    # About requests.

    def resolve(self, text: object) -> str:
        """The id that a prefix or "@last" means."""
        return text_of(self._rows.resolve(text))

    def status(self, id: object) -> dict[str, Any]:
        """Where a request stands."""
        row = self._rows.get(self._rows.resolve(id))
        return {"schema": SCHEMA, **self._shown([row])[0]}

    def show(self, id: object) -> dict[str, Any]:
        """All that is known of a request."""
        number = self._rows.resolve(id)
        row = self._rows.get(number)
        told = self._shown([row])[0]
        options = self._rows.options(number)
        return {
            "schema": SCHEMA,
            **told,
            "parent": options.pop("parent", None),
            "traceparent": options.pop("traceparent", None),
            "arguments": _readable(self._rows.arguments(number)),
            "options": options,
            "retention_s": self._retention_s(row["name"]),
            "items": self._rows.items(number),
            "runs": self._rows.runs(number),
            **{key: it for key, it in self._why(row).items() if key in ("next", "decisions")},
        }

    def _generators(self) -> set[str]:
        """The names of requests that yield items."""
        requests = self._house.manifest.get("requests", ())
        return {it["name"] for it in requests if it.get("items") is not None}

    def _retention_s(self, name: str) -> float | None:
        """How long a request of that name is kept once it has ended."""
        requests = self._house.manifest.get("requests", ())
        own = next((it.get("retention_s") for it in requests if it["name"] == name), None)
        return own if own is not None else self._house.facts().get("retention_s")

    def why(self, id: object) -> dict[str, Any]:
        """Why a request waits, is slow, or ended as it did."""
        return {"schema": SCHEMA, **self._why(self._rows.get(self._rows.resolve(id)))}

    def _why(self, row: Row) -> dict[str, Any]:
        told = self._dispatcher.why(row["id"]) if row["ended_at"] is None else None
        if told is not None:
            return why_told(row["id"], told)
        if row["ended_at"] is None:
            row = self._rows.get(row["id"])  # it has ended meanwhile
        return why_ended(row, self._rows.runs(row["id"]), now_ms())

    def page(
        self,
        filters: dict[str, Any] | None = None,
        limit: int | None = None,
        before: object = None,
    ) -> dict[str, Any]:
        """A page of requests, the newest first, and the cursor of the next one.

        `before` is a cursor, or the id behind which to go on.
        """
        rows, next_ = self._rows.page({} if filters is None else filters, limit, before)
        return {
            "schema": SCHEMA,
            "requests": self._shown(rows),
            "more": next_ is not None,
            "next": None if next_ is None else text_of(next_),
        }

    def arguments(self, id: object) -> dict[str, Any]:
        """A request's arguments as they were submitted, and the code that was to run them."""
        row = self._rows.get(self._rows.resolve(id))
        return {
            "schema": SCHEMA,
            "id": text_of(row["id"]),
            "name": row["name"],
            "code": row["code"],
            "attempt": row["attempts"] + 1,
            "arguments": self._unsealed(row["id"]),
        }

    def _unsealed(self, number: int) -> bytes:
        """Arguments as they were submitted; what is sealed of them does not leave the server."""
        blob = self._rows.arguments(number)
        return masked(blob) if self._rows.options(number).get("sealed") else blob

    def retry(self, ids: list[Any], *, by: str = "") -> list[dict[str, Any]]:
        """Queue ended requests again."""
        numbers = [self._rows.resolve(it) for it in checked_list("ids", ids, IDS_MAX)]
        retried = self._dispatcher.retry(numbers, by)
        for number, one in zip(numbers, retried, strict=True):
            if "refused" not in one:
                self._dispatcher.audit("retry", by, number, "")
        return retried

    def prune(self, rule: dict[str, Any] | None = None) -> dict[str, Any]:
        """Give ended requests up, with their results and logs."""
        rule = {} if rule is None else dict(checked_map("rule", rule))
        for name in rule:
            if name not in RULE:
                raise invalid("rule", f"any of {', '.join(RULE)}", name)
        if rule.get("status") is not None:
            words = checked_list("status", rule["status"], len(STATUSES))
            for word in words:
                if word not in STATUSES[2:]:
                    raise invalid("status", f"one of {', '.join(STATUSES[2:])}", word)
            if not words:
                raise invalid("status", "one word at least; leave it out for any", words)
        if rule.get("older_s") is not None:
            rule["older_s"] = checked_seconds("older_s", rule["older_s"])
        if rule.get("ids"):
            named = checked_list("ids", rule["ids"], IDS_MAX)
            rule["ids"] = [self._rows.resolve(it) for it in named]
        return {"schema": SCHEMA, **self._dispatcher.prune(rule)}

    def _shown(self, rows: list[Row]) -> list[Row]:
        """Rows as a client gets them; those that have not ended with their reason of now."""
        now = now_ms()
        told = {row["id"]: shown(row, now) for row in rows}
        generators = self._generators()
        for row in rows:
            if row["name"] in generators:
                found = self._rows.items(row["id"])
                told[row["id"]]["yielded"] = 0 if found is None else found["count"]
        for row in unfinished(rows)[:REASONS_MAX]:
            why = self._dispatcher.why(row["id"])
            if why is not None:
                told[row["id"]].update(status=why["status"], reason=why["reason"])
        return list(told.values())


@functools.cache
def _version() -> str | None:
    """Of the installed package; None where it runs from its sources."""
    from importlib.metadata import PackageNotFoundError, version  # 2 MB that few ask for

    try:
        return version("forebay")
    except PackageNotFoundError:
        return None


def _words(args: list[Any]) -> str:
    """The arguments of an order for the audit log, cut where they are long."""
    return msgspec.json.encode(args).decode()[:SHOWN_CHARS]


def masked(blob: bytes) -> bytes:
    """Arguments with a text in the place of each that is sealed."""
    return _encode(msgspec.msgpack.decode(blob, ext_hook=_masked))


def _masked(code: int, data: memoryview) -> Any:
    return SHOWN if code == SEALED else msgspec.msgpack.Ext(code, bytes(data))


def _described(code: int, data: memoryview) -> str:
    return SHOWN if code == SEALED else f"<array, {len(data)} B>"


def _readable(blob: bytes) -> Any:
    """Arguments for a person: what JSON has no form for, and what is long, is described."""
    if not blob:
        return {}
    try:
        told = msgspec.msgpack.decode(blob, ext_hook=_described)
    except msgspec.DecodeError:
        return {}
    return {name: _short(value) for name, value in told.items()}


def _short(value: Any) -> Any:
    plain = msgspec.to_builtins(value)
    text = msgspec.json.encode(plain)
    return plain if len(text) <= SHOWN_CHARS else f"<{len(text)} characters of JSON>"
