from __future__ import annotations

import contextlib
import os
import signal

import pytest
from hypothesis import HealthCheck, settings
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

MAX_SIZE = 2
KINDS = (Echo.spec(base=1), Echo.spec(base=2), Notes.spec())


class Held:
    """A lease that the model holds."""

    def __init__(self, pool: forebay.ServicePool, kind: int) -> None:
        self.kind = kind
        self.acquired = pool.acquire(KINDS[kind], timeout=10)
        self.service = self.acquired.__enter__()
        self.pid = self.service.lease.pid
        self.alive = True


class PoolModel(RuleBasedStateMachine):
    """A real pool, beside what its user knows: what is held, and which processes were ever seen."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = forebay.ServicePool(max_size=MAX_SIZE, reset_timeout=0.1, name="model")
        self.held: list[Held] = []
        self.seen: set[int] = set()
        self.tokens = 0

    @precondition(lambda self: len(self.held) < MAX_SIZE)
    @rule(kind=st.integers(0, len(KINDS) - 1))
    def acquire(self, kind: int) -> None:
        held = Held(self.pool, kind)
        self.seen |= {held.pid, parent(held.pid)}
        assert held.pid not in [other.pid for other in self.held], "one service in two hands"
        if kind == 2:
            assert held.service.read() == [], "what an earlier holder wrote"
        self.held.append(held)

    @precondition(lambda self: len(self.held) == MAX_SIZE and all(held.alive for held in self.held))
    @rule()
    def acquire_of_a_full_pool(self) -> None:
        with pytest.raises(forebay.DeadlineError), self.pool.acquire(KINDS[0], timeout=0.02):
            pass

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0, MAX_SIZE))
    def call(self, index: int) -> None:
        held = self.held[index % len(self.held)]
        self.tokens += 1
        try:
            if held.kind == 2:
                held.service.note(str(self.tokens))
                assert held.service.read()[-1] == str(self.tokens)
            else:
                assert held.service.add(self.tokens) == self.tokens + held.kind + 1
        except forebay.DiedError:
            assert not held.alive, "a death that nobody caused"
        else:
            assert held.alive, "an answer from a dead service"

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0, MAX_SIZE), how=st.sampled_from(["well", "hang", "fail", "die"]))
    def release(self, index: int, how: str) -> None:
        held = self.held.pop(index % len(self.held))
        if held.kind == 2 and held.alive:
            held.service.next_reset(how)
        held.acquired.__exit__(None, None, None)
        with pytest.raises(forebay.StaleError):
            held.service.lease.submit("read")

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
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def test_a_pool_keeps_its_promises_whatever_dies(few: settings) -> None:
    """Any order of leases, crashes, hung resets and kills: no wrong answer, nothing left."""
    run_state_machine_as_test(PoolModel, settings=few)
