"""Programs that submit while servers die under them, and write down what they were told."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import forebay
from forebay.errors import BrokenError, Error

MIX = ("once", "once", "once", "short", "short", "nap", "again", "again", "large")
"""How often which request comes."""

SLOW_S = 0.25
"""The longest that one of them sleeps; a third of them do not."""

OPEN_MAX = 40
"""Requests that a client has under way before it waits for the oldest."""

COMES_BACK_S = 60.0


@dataclass(frozen=True)
class End:
    """How a request ended, as a client was told or as the store has it."""

    status: str
    value: str | None
    cause: str | None


@dataclass
class Told:
    """What clients know.

    Attributes:
        accepted: the label of each accepted request, by id.
        ends: what was told of those that have ended, by id.
        maybe: labels of those of which nobody knows whether they were accepted.
        refused: labels of those that were never taken, with the reason.
        counts: everything that happened.
    """

    accepted: dict[str, str] = field(default_factory=dict)
    ends: dict[str, End] = field(default_factory=dict)
    maybe: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


class Submitter:
    """A program in a thread of its own: submits as many as it is permitted, and hears their ends.

    Args:
        url: of the server, whichever runs there.
        permits: one is taken for each submission.
        total: submissions after which it waits for the rest, and ends.
        seed: of what it submits.
    """

    def __init__(self, url: str, permits: threading.Semaphore, total: int, seed: int) -> None:
        self.told = Told()
        self.failure: BaseException | None = None
        self._permits = permits
        self._total = total
        self._chance = random.Random(seed)
        self._prefix = f"{seed}"
        self._client = forebay.Client(url, start=False, timeout=COMES_BACK_S)
        self._open: list[tuple[str, forebay.Request]] = []
        self._thread = threading.Thread(target=self._run, name=f"submitter {seed}")
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for its end, and raise what ended it too early."""
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"requests that never end: {self._open}"
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._come_in()
            for number in range(self._total):
                self._permits.acquire()
                self._submit(f"{self._prefix}-{number}")
                while len(self._open) > self._chance.randrange(1, OPEN_MAX):
                    self._hear()
            while self._open:
                self._hear()
            self._leave()
        except BaseException as failure:  # the thread's boundary: raised again by `join`
            self.failure = failure

    def _come_in(self) -> None:
        """Until a server is there for the first time: a client that knows of none does not wait."""
        deadline = time.monotonic() + COMES_BACK_S
        while True:
            try:
                self._client.info()
            except BrokenError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return

    def _leave(self) -> None:
        try:
            self._client.close()
        except Error as error:
            self.told.counts[f"leaving: {error}"] += 1

    def _submit(self, label: str) -> None:
        chance, told = self._chance, self.told
        name = chance.choice(MIX)
        seconds = chance.choice((0.0, 1.0, 1.0)) * chance.uniform(0.0, SLOW_S)
        keyed = chance.random() < 0.2
        key = label if keyed else None
        label = f"{name}-{label}"
        try:
            request = self._client.submit(
                name, label=label, seconds=seconds, options=forebay.Submit(idempotency=key)
            )
            told.accepted[request.id] = label
        except BrokenError as error:
            if keyed:
                raise  # one with an idempotency key is sent again by itself
            if error.delivered == "no":
                told.refused[label] = str(error)
            else:
                told.maybe.add(label)
        except Error as error:
            told.refused[label] = str(error)
        else:
            self._open.append((label, request))

    def _hear(self) -> None:
        """The end of one that is under way, mostly the oldest."""
        one = self._chance.choice((0, 0, self._chance.randrange(len(self._open))))
        _, request = self._open.pop(one)
        error = request.exception(COMES_BACK_S)
        told = self.told
        told.counts["ends told"] += 1
        told.ends[request.id] = End(
            request.status(),
            request.result() if error is None else None,
            None if error is None else getattr(error, "cause", type(error).__name__),
        )
