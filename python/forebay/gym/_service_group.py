"""The services behind a vector environment: borrowed together, called together, replaced singly."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from gymnasium.error import ResetNeeded

from forebay.errors import DeadlineError, Error, RemoteError
from forebay.gym._loss import advise, name_environment
from forebay.gym._recipe import Recipe
from forebay.gym._slot import Slot
from forebay.pool import ServicePool
from forebay.pool._internal import LeaseGather
from forebay.rpc._internal import Message, message

EASY_S = 0.005
"""Services that are there within so long are borrowed one after another, others in threads."""

STARTS_AT_ONCE = 16
"""Threads that wait for services which start."""

TURN_S = 2.0
"""How long such a thread may outlive an interrupted wait."""

GATHERS_MAX = 64
"""Combinations of environments that are called together and remembered."""

_DESCRIBE = message("describe")
Targets = tuple[int, ...]


class ServiceGroup:
    """One slot for each environment; None where its service was lost.

    Args:
        pool: the lender.
        recipes: what to borrow, in the order of the environments.
        acquire_timeout: seconds to wait for a service.
        call_timeout: seconds for a call, or None.
        concurrent: calls made at once.

    Raises:
        What borrowing raises; then nothing is held.
    """

    def __init__(
        self,
        pool: ServicePool,
        recipes: Sequence[Recipe],
        *,
        acquire_timeout: float,
        call_timeout: float | None,
        concurrent: int,
    ) -> None:
        self._pool = pool
        self._recipes = list(recipes)
        self._acquire_timeout = acquire_timeout
        self._call_timeout = call_timeout
        self._concurrent = concurrent
        self._gathers: dict[Targets, LeaseGather] = {}
        self._running: Targets = ()
        self._waiting: list[tuple[Targets, list[Message]]] = []
        self.slots: list[Slot | None] = [None] * len(recipes)
        try:
            self._take_all()
            self._describe(tuple(range(len(recipes))))
        except BaseException:
            self.close()
            raise

    def begin(self, targets: Targets, messages: Sequence[Message]) -> None:
        """Begin one call on each of `targets`, at most `concurrent` of them now.

        Raises:
            gymnasium.error.ResetNeeded: one of them was lost; nothing was begun.
        """
        lost = [index for index in targets if self.slots[index] is None]
        if lost:
            raise ResetNeeded(f"environments {lost} were lost: reset() makes new ones")
        size = self._concurrent
        if len(targets) <= size:
            self._gather_of(targets).begin(list(messages), timeout=self._call_timeout)
            self._running = targets
            return
        parts = [
            (targets[start : start + size], list(messages[start : start + size]))
            for start in range(0, len(targets), size)
        ]
        self._waiting = parts
        self._begin_next()

    def finish(
        self, timeout: float | None = None, *, look: bool = False
    ) -> tuple[list[Any], dict[int, BaseException]]:
        """Wait for all calls that were begun; `look` polls for answers that are expected soon.

        Returns:
            The answers in the order of the targets, None where a call failed, and the errors by
            environment, which they name. A service that is of no more use has been given up.

        Interrupting (Ctrl-C) loses the environments that were called.
        """
        results: list[Any] = []
        errors: dict[int, BaseException] = {}
        end = None if timeout is None else time.monotonic() + timeout
        while self._running:
            left = None if end is None else max(0.0, end - time.monotonic())
            targets = self._running
            try:
                answers, failed = self._gather_of(targets).finish(timeout=left, look=look)
            except BaseException:
                self._running, self._waiting = (), []
                for index in targets:
                    self._drop(index)
                raise
            results += answers
            for at, error in failed.items():
                errors[targets[at]] = self._judge(targets[at], error)
            self._running = ()
            if self._waiting:
                self._begin_next()
        return results, errors

    def call(
        self, targets: Targets, messages: Sequence[Message]
    ) -> tuple[list[Any], dict[int, BaseException]]:
        """Begin and finish."""
        self.begin(targets, messages)
        return self.finish()

    def call_one(self, index: int, what: Message) -> Any:
        """Call one environment; raises what went wrong."""
        answers, errors = self.call((index,), [what])
        if errors:
            raise errors[index]
        return answers[0]

    def replace(self, index: int) -> Slot:
        """Give up an environment's service, where it has one, and borrow another.

        Raises:
            As borrowing; the environment is then lost.
        """
        self._drop(index)
        try:
            self.slots[index] = Slot.take(self._pool, self._recipes[index], self._acquire_timeout)
            self._describe((index,))
        except Error as error:
            self._drop(index)
            raise name_environment(error, index, len(self.slots))  # noqa: B904 - the same
        slot = self.slots[index]
        assert slot is not None
        return slot

    def close(self) -> None:
        """Give every service back. Idempotent."""
        self._waiting, self._running = [], ()
        for index in range(len(self.slots)):
            self._drop(index)

    def _begin_next(self) -> None:
        targets, messages = self._waiting.pop(0)
        self._gather_of(targets).begin(messages, timeout=self._call_timeout)
        self._running = targets

    def _gather_of(self, targets: Targets) -> LeaseGather:
        gather = self._gathers.get(targets)
        if gather is None:
            if len(self._gathers) >= GATHERS_MAX:
                self._gathers.clear()
            leases = [slot.lease for index in targets if (slot := self.slots[index]) is not None]
            gather = self._gathers[targets] = LeaseGather(leases)
        return gather

    def _judge(self, index: int, error: BaseException) -> BaseException:
        """Name the environment, and give its service up unless only its own work failed."""
        slot = self.slots[index]
        if isinstance(error, RemoteError) and slot is not None:
            slot.raised = True
        elif isinstance(error, Error):
            self._drop(index)
        return advise(name_environment(error, index, len(self.slots)))

    def _drop(self, index: int) -> None:
        slot, self.slots[index] = self.slots[index], None
        if slot is not None:
            self._gathers.clear()
            slot.give_back()

    def _take_all(self) -> None:
        """Borrow what is idle at once, then wait for the others in parallel."""
        end = time.monotonic() + EASY_S
        for index, recipe in enumerate(self._recipes):
            try:
                left = max(0.0, end - time.monotonic())
                self.slots[index] = Slot.take(self._pool, recipe, left)
            except DeadlineError:
                break
            except Error as error:
                raise name_environment(error, index, len(self.slots))  # noqa: B904 - the same
        missing = [index for index, slot in enumerate(self.slots) if slot is None]
        if missing:
            self._take_slowly(missing)

    def _take_slowly(self, missing: list[int]) -> None:
        given_up = threading.Event()
        end = time.monotonic() + self._acquire_timeout
        workers = min(len(missing), STARTS_AT_ONCE)
        with ThreadPoolExecutor(workers, thread_name_prefix="forebay-gym") as threads:
            started = [threads.submit(self._take, index, end, given_up) for index in missing]
            try:
                wait(started)
            except BaseException:
                given_up.set()
                raise
        for index, future in zip(missing, started, strict=True):
            error = future.exception()
            if error is not None:
                raise name_environment(error, index, len(self.slots))

    def _take(self, index: int, end: float, given_up: threading.Event) -> None:
        """Borrow in a thread, in turns, so that it ends soon after an interrupted wait."""
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                turn = min(left, TURN_S)
                self.slots[index] = Slot.take(self._pool, self._recipes[index], turn)
                return
            except DeadlineError as error:
                if given_up.is_set() or left <= TURN_S:
                    error.add_note(f"waited {self._acquire_timeout:g} s in all (acquire_timeout)")
                    raise

    def _describe(self, targets: Targets) -> None:
        """Ask unknown services for their description, and map their regions."""
        slots = [(index, slot) for index in targets if (slot := self.slots[index]) is not None]
        unknown = [(index, slot) for index, slot in slots if slot.known is None]
        if not unknown:
            return
        answers, errors = self.call(
            tuple(index for index, _ in unknown), [_DESCRIBE] * len(unknown)
        )
        for error in errors.values():
            raise error
        for (_, slot), description in zip(unknown, answers, strict=True):
            slot.learn(description)
