"""Clients of an experiment: they submit, and write into the ledger what they are told."""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from forebay.errors import BrokenError, Error
from forebay.executor import Client, Request, Submit
from forebay.testing._ledger import Ledger

__all__ = ["OWN", "Asked", "Kind", "Numbers", "Submitter", "Success", "Witness", "kinds_of"]

OPEN_MAX: Final = 12
"""Requests that a client has under way before it waits for the oldest."""

PAUSE_S: Final = 0.03
"""Between two submissions of a client, on average."""

SLOW_S: Final = 0.2
KEYED: Final = 0.2
"""Part of the submissions that have an idempotency key."""

COMES_BACK_S: Final = 60.0
SETTLE_S: Final = 90.0
LARGE_MAX: Final = 30
CLIENTS_MAX: Final = 16
SLICE_S: Final = 1.0
"""A wait is cut into such, so that a client leaves soon when it is asked to."""


class Asked(NamedTuple):
    """What a request is given and must return.

    Attributes:
        arguments: of the submission.
        check: whether a result is right; None: nobody knows.
    """

    arguments: dict[str, Any]
    check: Callable[[Any], bool] | None


@dataclass(frozen=True)
class Kind:
    """One name of requests that clients submit.

    Attributes:
        name: of the request.
        ask: makes arguments from a key, a number and seconds to take.
        weight: how often it comes, against the others.
        max_runs: how often it may begin; None: any number of times.
        uses_all: whether its success shows that every system works.
        over_http: whether it is submitted over HTTP too.
        count_max: submissions of each client.
    """

    name: str
    ask: Callable[[str, int, float], Asked]
    weight: float = 1.0
    max_runs: int | None = 1
    uses_all: bool = False
    over_http: bool = False
    count_max: int = 1 << 30


def _slow(key: str, number: int, seconds: float) -> Asked:
    return Asked({"key": key, "seconds": seconds}, lambda value: bool(value == key))


def _keyed(key: str, number: int, seconds: float) -> Asked:
    return Asked({"key": key}, lambda value: bool(value.rstrip(".") == key))


def _numbered(key: str, number: int, seconds: float) -> Asked:
    return Asked({"key": key, "number": number}, lambda value: bool(value == number))


def _recorded(key: str, number: int, seconds: float) -> Asked:
    return Asked({"key": key, "number": number}, lambda value: bool(value >= 0))


OWN: Final = (
    Kind("once", _slow, 6.0, over_http=True),
    Kind("again", _slow, 4.0, None, over_http=True),
    Kind("nap", _slow, 4.0, over_http=True),
    Kind("record", _recorded, 3.0),
    Kind("study", _numbered, 4.0, uses_all=True),
    Kind("grow", _keyed, 0.5),
    Kind("large", _keyed, 0.3, None, count_max=LARGE_MAX),
)
"""Requests of the experiment's own application."""


def kinds_of(manifest: dict[str, Any], wanted: dict[str, dict[str, Any]]) -> tuple[Kind, ...]:
    """Requests of another application.

    Args:
        manifest: of the application.
        wanted: the arguments of each name.

    Raises:
        KeyError: the application has no such request.
    """
    defined = {request["name"]: request for request in manifest["requests"]}
    return tuple(_kind_of(defined[name], given) for name, given in wanted.items())


def _kind_of(request: dict[str, Any], given: dict[str, Any]) -> Kind:
    takes_key = any(it["name"] == "key" for it in request["parameters"]) and "key" not in given

    def ask(key: str, number: int, seconds: float) -> Asked:
        return Asked({**given, "key": key} if takes_key else given, None)

    repeats = bool(request["retries"] or request["idempotent"])
    return Kind(request["name"], ask, max_runs=None if repeats else 1, uses_all=True)


class Success(NamedTuple):
    """A request that succeeded, by the monotonic clock.

    Attributes:
        submitted_at: before it was sent.
        ended_at: when its client was told.
        uses_all: whether it uses every system.
        over_http: whether it came over HTTP.
    """

    submitted_at: float
    ended_at: float
    uses_all: bool
    over_http: bool


class Witness:
    """What all clients of an experiment have seen. Threads: any.

    Attributes:
        ledger: what they were told.
        successes: in the order in which they were told.
        open: of requests whose end no client was told: the key, the id and the check.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.successes: list[Success] = []
        self.open: list[tuple[str, str, Callable[[Any], bool] | None]] = []

    def survived(self, since: float, until: float, proof: str) -> bool:
        """Whether something succeeded that was submitted since then, and ended until then."""
        return any(
            since <= one.submitted_at
            and one.ended_at <= until
            and (proof != "all" or one.uses_all)
            and (proof != "http" or one.over_http)
            for one in list(self.successes)
        )


class Numbers:
    """Numbers that no two requests of an experiment share, from 1. Threads: any."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def next(self) -> int:
        """The next one."""
        with self._lock:
            return next(self._numbers)


class Submits(Protocol):
    """How a client reaches the server."""

    def submit(self, kind: Kind, key: str, asked: Asked, chance: random.Random) -> Any:
        """Submit and note it; a handle, or None."""

    def settle(self, key: str, handle: Any, asked: Asked, timeout: float) -> str | None:
        """Wait for the end and note it; its status, or None."""

    def id_of(self, handle: Any) -> str:
        """The id of a request."""

    def close(self) -> None:
        """Leave."""


class ByClient:
    """By `forebay.Client`.

    Args:
        url: of the server, or of a proxy in front of it.
        ledger: where it notes.
    """

    def __init__(self, url: str, ledger: Ledger) -> None:
        self._client = Client(url, start=False, timeout=COMES_BACK_S)
        self._ledger = ledger

    def submit(self, kind: Kind, key: str, asked: Asked, chance: random.Random) -> Request | None:
        """As of all of them."""
        options = Submit(idempotency=key) if chance.random() < KEYED else None
        return self._ledger.submit(
            self._client,
            kind.name,
            key,
            max_runs=kind.max_runs,
            options=options,
            arguments=asked.arguments,
        )

    def settle(self, key: str, handle: Request, asked: Asked, timeout: float) -> str | None:
        """As of all of them."""
        return self._ledger.settle(key, handle, check=asked.check, timeout=timeout)

    def id_of(self, handle: Request) -> str:
        """As of all of them."""
        return handle.id

    def close(self) -> None:
        """As of all of them."""
        with contextlib.suppress(Error):  # what was refused is in the ledger
            self._client.close()


@dataclass
class _Open:
    kind: Kind
    key: str
    asked: Asked
    handle: Any
    submitted_at: float = field(default_factory=time.monotonic)


class Submitter:
    """One client in a thread of its own.

    Args:
        reach: how it reaches the server.
        kinds: what it submits.
        witness: where it writes.
        numbers: of the requests of all.
        seed: of what it submits.
        over_http: whether it goes over HTTP.

    Attributes:
        failure: what ended it, where that was no fault of the server.
        doing: what it does at the moment, for messages.
    """

    def __init__(
        self,
        reach: Submits,
        kinds: Sequence[Kind],
        witness: Witness,
        numbers: Numbers,
        seed: int,
        *,
        over_http: bool = False,
    ) -> None:
        self.failure: BaseException | None = None
        self.doing = "begins"
        self._reach = reach
        self._kinds = kinds
        self._witness = witness
        self._numbers = numbers
        self._chance = random.Random(seed)
        self._over_http = over_http
        self._counts: dict[str, int] = {}
        self._open: list[_Open] = []
        self._ends = threading.Event()
        self._leaves = threading.Event()
        self.name = f"client {seed % CLIENTS_MAX}"
        # One that hangs, which is what an experiment may find, does not keep the program.
        self._thread = threading.Thread(
            target=self._run, name=f"forebay chaos {self.name}", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        """Submit each kind once more, wait for all ends, and leave; does not wait for that."""
        self._ends.set()

    def leave(self) -> None:
        """Leave soon, whatever has not ended."""
        self._leaves.set()
        self._ends.set()

    def where(self) -> str:
        """The line that its thread is at, for a message about one that hangs."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        stack = traceback.extract_stack(frame) if frame is not None else []
        return " < ".join(f"{it.name} ({it.filename}:{it.lineno})" for it in reversed(stack[-4:]))

    def join(self, timeout: float) -> bool:
        """Whether it has left within so many seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._ends.wait(self._chance.expovariate(1.0 / PAUSE_S)):
                self._submit(self._next_kind())
                while len(self._open) > self._chance.randrange(1, OPEN_MAX):
                    self._hear(SETTLE_S)
            if not self._leaves.is_set():
                for kind in self._kinds:
                    self._submit(kind)
            self._hear_all()
        except BaseException as failure:  # the thread's boundary: the experiment reports it
            self.failure = failure
        finally:
            self._give_up()
            self.doing = "closes its client"
            self._reach.close()

    def _next_kind(self) -> Kind:
        kinds = [kind for kind in self._kinds if self._counts.get(kind.name, 0) < kind.count_max]
        (kind,) = self._chance.choices(kinds, [kind.weight for kind in kinds])
        return kind

    def _submit(self, kind: Kind) -> None:
        number, chance = self._numbers.next(), self._chance
        self._counts[kind.name] = self._counts.get(kind.name, 0) + 1
        key = f"{kind.name}-{number}"
        seconds = chance.choice((0.0, 1.0)) * chance.uniform(0.0, SLOW_S)
        asked = kind.ask(key, number, seconds)
        begun = time.monotonic()
        self.doing = f"submits {key}"
        handle = self._reach.submit(kind, key, asked, chance)
        if handle is not None:
            self._open.append(_Open(kind, key, asked, handle, begun))

    def _hear_all(self) -> None:
        deadline = time.monotonic() + SETTLE_S
        while self._open and not self._leaves.is_set():
            self._hear(max(0.1, deadline - time.monotonic()))

    def _hear(self, timeout: float) -> None:
        """The end of the oldest one that is under way."""
        one = self._open.pop(0)
        deadline = time.monotonic() + timeout
        status = None
        self.doing = f"waits for the end of {one.key}, with {len(self._open)} behind it"
        while status is None and time.monotonic() < deadline and not self._leaves.is_set():
            status = self._reach.settle(one.key, one.handle, one.asked, SLICE_S)
        if status is None:
            self._leave_open(one)
        elif status == "succeeded":
            self._witness.successes.append(
                Success(one.submitted_at, time.monotonic(), one.kind.uses_all, self._over_http)
            )

    def _give_up(self) -> None:
        """Leave what has not ended to whoever looks at the end."""
        for one in self._open:
            self._leave_open(one)
        self._open.clear()

    def _leave_open(self, one: _Open) -> None:
        try:
            id_ = self._reach.id_of(one.handle)
        except BrokenError:
            return
        self._witness.open.append((one.key, id_, one.asked.check))
