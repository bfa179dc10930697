"""A real pool beside a model of it, in any order of what users do and of what dies.

FOREBAY_POOL_SEED repeats a run; each run prints its seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import forebay
from tests.pool.processes import alive, children, eventually, parent, template_of
from tests.pool.services import Echo, Notes

SEED = int(os.environ.get("FOREBAY_POOL_SEED", str(secrets.randbits(32))))

MAX_SIZE = 2
IDLE_S = 0.2
KINDS = (Echo.spec(base=1), Echo.spec(base=2), Notes.spec())
NOTES = 2
"""The kind that is reset."""

ROOM_S = 20
"""An acquire for which there is room succeeds by then, or was refused wrongly."""


class Held:
    """A lease that the model holds."""

    def __init__(self, pool: forebay.ServicePool, kind: int) -> None:
        self.kind = kind
        self.acquired: Any = pool.acquire(KINDS[kind], timeout=ROOM_S)
        self.service = self.acquired.__enter__()
        self.pid = self.service.lease.pid
        self.alive = True
        self.hangs = False
        """Whether a call was left in it that does not end."""

    @property
    def usable(self) -> bool:
        return self.alive and not self.hangs


class PoolModel(RuleBasedStateMachine):
    """A real pool, beside what its user knows: what is held, and which processes were ever seen."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Held] = []
        self.seen: set[int] = set()
        self.ended: set[int] = set()
        """Processes that nobody may get again."""
        self.tokens = 0
        self.open()

    def open(self) -> None:
        self.pool = forebay.ServicePool(
            max_size=MAX_SIZE, reset_timeout=0.1, idle_timeout=IDLE_S, name="model"
        )

    def lent(self) -> int:
        """Services that are in somebody's hands; a dead one has made room."""
        return sum(held.alive for held in self.held)

    @precondition(lambda self: self.lent() < MAX_SIZE)
    @rule(kind=st.integers(0, len(KINDS) - 1))
    def acquire(self, kind: int) -> None:
        """There is room, so it may not be refused, whatever happened before."""
        held = Held(self.pool, kind)
        assert held.pid not in [other.pid for other in self.held], "one service in two hands"
        assert held.pid not in self.ended, "a service that was to end"
        self.seen |= {held.pid, parent(held.pid)}
        if kind == NOTES:
            assert held.service.read() == [], "what an earlier holder wrote"
        self.held.append(held)

    @precondition(lambda self: self.lent() == MAX_SIZE)
    @rule()
    def acquire_of_a_full_pool(self) -> None:
        with pytest.raises(forebay.DeadlineError), self.pool.acquire(KINDS[0], timeout=0.02):
            pass

    @precondition(lambda self: self.lent() == MAX_SIZE)
    @rule(kind=st.integers(0, len(KINDS) - 1))
    def cancel_an_acquire(self, kind: int) -> None:
        """Who gives up waiting leaves nothing behind: neither a place in the queue nor a lease."""
        asyncio.run(cancelled(self.pool, KINDS[kind]))
        assert self.pool.stats()["waiters"] == 0

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0, MAX_SIZE))
    def call(self, index: int) -> None:
        held = self.held[index % len(self.held)]
        if held.hangs:
            return
        self.tokens += 1
        try:
            if held.kind == NOTES:
                held.service.note(str(self.tokens))
                assert held.service.read()[-1] == str(self.tokens)
            else:
                assert held.service.add(self.tokens) == self.tokens + held.kind + 1
        except forebay.DiedError:
            assert not held.alive, "a death that nobody caused"
        else:
            assert held.alive, "an answer from a dead service"

    @precondition(lambda self: any(held.usable and held.kind != NOTES for held in self.held))
    @rule(cancels=st.booleans())
    def hang_in_a_call(self, cancels: bool) -> None:
        """A call past its deadline, or one that was cancelled, is the end of its service."""
        held = next(held for held in self.held if held.usable and held.kind != NOTES)
        held.hangs = True
        self.ended.add(held.pid)
        if cancels:
            call = held.service.lease.submit("hang")
            assert call.cancel()
        else:
            with pytest.raises(forebay.DeadlineError):
                held.service.lease.options(timeout=0.02).hang()
        assert alive(held.pid), "until the lease ends it is its holder's"

    @precondition(lambda self: any(held.usable for held in self.held))
    @rule(count=st.integers(1, 2))
    def fork(self, count: int) -> None:
        """Copies have the state, keep theirs apart, count nowhere, and end with their block."""
        held = next(held for held in self.held if held.usable)
        live = self.pool.stats()["live"]
        with held.service.lease.fork(count) as copies:
            pids = [copied.lease.pid for copied in copies]
            self.seen |= set(pids)
            self.ended |= set(pids)
            assert len({held.pid, *pids}) == count + 1
            if held.kind == NOTES:
                before = held.service.read()
                copies[0].note("of a copy")
                assert copies[0].read() == [*before, "of a copy"]
                assert held.service.read() == before
            else:
                assert copies[0].add(1) == held.kind + 2
            assert self.pool.stats()["live"] <= live, "copies do not count"
        assert eventually(lambda: not any(map(alive, pids)))

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0, MAX_SIZE), how=st.sampled_from(["well", "hang", "fail", "die"]))
    def release(self, index: int, how: str) -> None:
        held = self.held.pop(index % len(self.held))
        if held.kind == NOTES and held.usable:
            held.service.next_reset(how)
            if how != "well":
                self.ended.add(held.pid)
        held.acquired.__exit__(None, None, None)
        with pytest.raises(forebay.StaleError):
            held.service.lease.submit("read")
        if held.hangs:
            assert eventually(lambda: not alive(held.pid)), "a service that hangs in a call"

    @rule()
    def expire(self) -> None:
        """What nobody uses for long enough ends; what is held does not."""
        assert eventually(lambda: self.pool.stats()["idle"] + self.pool.stats()["settling"] == 0)
        for held in self.held:
            assert alive(held.pid) == held.alive

    @precondition(lambda self: any(held.alive for held in self.held))
    @rule()
    def crash(self) -> None:
        held = next(held for held in self.held if held.alive)
        kill(held.pid)
        held.alive = False

    @precondition(lambda self: self.seen)
    @rule()
    def kill_idle(self) -> None:
        mine = {held.pid for held in self.held}
        for slot in self.pool.core.services():
            pid, lent = slot[2], slot[3]
            if not lent and pid and pid not in mine and alive(pid):
                kill(pid)
                return

    @precondition(lambda self: any(held.alive for held in self.held))
    @rule()
    def kill_template(self) -> None:
        held = next(held for held in self.held if held.alive)
        with contextlib.suppress(LookupError):
            kill(template_of(held.pid))

    @precondition(lambda self: any(held.alive for held in self.held))
    @rule()
    def kill_keeper(self) -> None:
        keeper = parent(next(held.pid for held in self.held if held.alive))
        below = children(keeper)
        kill(keeper)
        assert eventually(lambda: not any(map(alive, below)))
        for held in self.held:
            held.alive = False

    @rule()
    def close(self) -> None:
        """Whoever holds a lease of a closed pool is told so, and nothing of it is left."""
        self.pool.close()
        assert not any(map(alive, self.seen)), "a process is left"
        with pytest.raises(forebay.ClosedError), self.pool.acquire(KINDS[0], timeout=ROOM_S):
            pass
        for held in self.held:
            with pytest.raises((forebay.ClosedError, forebay.BrokenError)):
                probe(held)
            held.acquired.__exit__(None, None, None)
        self.held.clear()
        self.open()

    @invariant()
    def the_pool_is_within_its_bounds(self) -> None:
        stats = self.pool.stats()
        assert stats["live"] <= MAX_SIZE
        assert stats["idle"] + stats["settling"] <= stats["live"]
        assert stats["waiters"] == 0

    def teardown(self) -> None:
        for held in self.held:
            held.acquired.__exit__(None, None, None)
        self.pool.close()
        assert eventually(lambda: not any(map(alive, self.seen))), "a process is left"


def probe(held: Held) -> None:
    """A short call."""
    service = held.service.lease.options(timeout=5)
    if held.kind == NOTES:
        service.read()
    else:
        service.add(1)


async def cancelled(pool: forebay.ServicePool, spec: forebay.Spec[Any]) -> None:
    """Wait for a service in vain, and be cancelled."""

    async def wait() -> None:
        async with pool.acquire(spec, timeout=None):
            raise AssertionError("lent by a full pool")

    waiting = asyncio.create_task(wait())
    while pool.stats()["waiters"] == 0:
        await asyncio.sleep(0)
        assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def kill(pid: int) -> None:
    """Kill a process and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not alive(pid))


@pytest.fixture
def few() -> settings:
    """Settings for a test in which each step is made of processes."""
    return settings(
        max_examples=30,
        stateful_step_count=20,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.timeout(300)
def test_a_pool_keeps_its_promises_whatever_dies(few: settings) -> None:
    """Any order of leases, copies, cancels, expiries, hung calls, crashes, kills and closes.

    No wrong answer, no wrong refusal, nothing left.
    """
    print(f"FOREBAY_POOL_SEED={SEED}")
    run_state_machine_as_test(seed(SEED)(PoolModel), settings=few)
