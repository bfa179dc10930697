"""An environment over a pooled service, and what the loss of its service does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import forebay
from forebay.gym import AcquireFunction, ServiceEnv
from tests.pool.processes import alive, eventually

from .walk_service import Walk

HUGE = 2**31


class WalkEnv(ServiceEnv[int, int]):
    """Reach 5; the reward is the place."""

    action_space = gymnasium.spaces.Discrete(100)
    observation_space = gymnasium.spaces.Discrete(2 * HUGE, start=-HUGE)
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def begin(self, service: Any, options: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        if options and options.get("die"):
            service.move(13)
        return service.begin(), {}

    def advance(self, service: Any, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        place = service.move(int(action))
        return place, float(place), place == 5, False, {}

    def lost_observation(self) -> int:
        return 0


class GentleWalkEnv(WalkEnv):
    """Without the moves that die, hang or raise."""

    action_space = gymnasium.spaces.Discrete(12)


@pytest.fixture
def pool() -> Iterator[forebay.ServicePool]:
    pool = forebay.ServicePool(max_size=2)
    yield pool
    pool.close()


@pytest.fixture
def env(pool: forebay.ServicePool) -> Iterator[WalkEnv]:
    env = WalkEnv(Walk, acquire=pool.acquire, call_timeout=20.0)
    yield env
    env.close()


class Counting:
    """Counts what is lent and given back."""

    def __init__(self, acquire: AcquireFunction):
        self.out = 0
        self.lent = 0
        self._acquire = acquire

    @contextmanager
    def acquire(self, what: Any, *, timeout: float) -> Iterator[Any]:
        with self._acquire(what, timeout=timeout) as service:
            self.out += 1
            self.lent += 1
            try:
                yield service
            finally:
                self.out -= 1


def test_it_passes_gymnasiums_checker(pool: forebay.ServicePool) -> None:
    """The base keeps Gymnasium's interface."""
    env = GentleWalkEnv(Walk, acquire=pool.acquire)
    check_env(env, skip_render_check=True)
    env.close()


def test_no_service_is_borrowed_before_the_first_reset(pool: forebay.ServicePool) -> None:
    """A program may make many environments and use few."""
    counting = Counting(pool.acquire)
    env = WalkEnv(Walk, acquire=counting.acquire)
    assert (counting.lent, env.service) == (0, None)
    env.reset()
    env.reset()
    assert (counting.lent, counting.out) == (1, 1)
    env.close()
    assert counting.out == 0


def test_closing_twice_is_fine_and_a_reset_borrows_again(env: WalkEnv) -> None:
    """Close gives the lease back; it does not end the environment."""
    env.close()
    env.reset()
    env.close()
    env.close()
    assert env.reset()[0] == 0


def test_steps_reach_the_service(env: WalkEnv) -> None:
    """Observation, reward and end come from it."""
    env.reset(seed=1)
    assert env.step(3) == (3, 3.0, False, False, {})
    assert env.step(2) == (5, 5.0, True, False, {})


def test_a_step_before_reset_is_an_error(env: WalkEnv) -> None:
    """Gymnasium's own error, whether never reset, closed or lost."""
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(1)
    env.reset()
    env.close()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(1)


def test_a_death_in_step_truncates_and_says_why(env: WalkEnv) -> None:
    """The loop of the agent goes on; the reason is at hand."""
    env.reset()
    observation, reward, terminated, truncated, info = env.step(13)
    assert (observation, reward, terminated, truncated) == (0, 0.0, False, True)
    assert info["error_type"] == "DiedError"
    assert info["error_details"]["signal"] == signal.SIGKILL
    assert info["error"]
    assert env.losses == 1
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(1)
    assert env.reset()[0] == 0
    assert env.step(2)[0] == 2


def test_a_hang_in_step_truncates_at_the_deadline(pool: forebay.ServicePool) -> None:
    """The hung service never comes back to anybody."""
    env = WalkEnv(Walk, acquire=pool.acquire, call_timeout=0.3, lost_reward=-1.0)
    env.reset()
    hung = env.service.lease.pid
    _, reward, _, truncated, info = env.step(99)
    assert (reward, truncated, info["error_type"]) == (-1.0, True, "DeadlineError")
    env.reset()
    assert env.service.lease.pid != hung
    env.close()


def test_what_the_service_raises_is_raised_and_the_episode_goes_on(env: WalkEnv) -> None:
    """A mistake in an action is no loss of the service."""
    env.reset()
    with pytest.raises(ValueError, match="no such move"):
        env.step(77)
    assert env.step(2)[0] == 2
    assert env.losses == 0


def test_reset_tries_another_service(env: WalkEnv) -> None:
    """A service that died between two episodes is noticed by the reset, not by the agent."""
    env.reset()
    os.kill(env.service.lease.pid, signal.SIGKILL)
    assert env.reset()[0] == 0
    assert env.losses <= 1


def test_reset_gives_up_after_its_attempts(pool: forebay.ServicePool) -> None:
    """A service that can never start an episode is an error, not a loop."""
    counting = Counting(pool.acquire)
    env = WalkEnv(Walk, acquire=counting.acquire, reset_attempts=3)
    with pytest.raises(forebay.DiedError):
        env.reset(options={"die": True})
    assert (env.losses, counting.lent, counting.out) == (3, 3, 0)
    env.close()


def test_zero_attempts_are_refused() -> None:
    """The mistake is told where it is made."""
    with pytest.raises(ValueError, match="reset_attempts is 0"):
        WalkEnv(Walk, reset_attempts=0)


def test_two_environments_have_two_services(pool: forebay.ServicePool) -> None:
    """The state of one is not that of the other."""
    first, second = (WalkEnv(Walk, acquire=pool.acquire) for _ in range(2))
    first.reset()
    second.reset()
    first.step(4)
    assert second.step(1)[0] == 1
    first.close()
    second.close()


def test_no_free_service_in_time_is_an_error_at_once(pool: forebay.ServicePool) -> None:
    """Waiting again would only be the same wait, `reset_attempts` times as long."""
    asked = []

    def busy(what: Any, *, timeout: float) -> Any:
        asked.append(timeout)
        return pool.acquire(what, timeout=timeout)

    holders = [WalkEnv(Walk, acquire=pool.acquire) for _ in range(2)]
    for holder in holders:
        holder.reset()
    env = WalkEnv(Walk, acquire=busy, acquire_timeout=0.1)
    with pytest.raises(forebay.DeadlineError):
        env.reset()
    assert (asked, env.losses) == ([0.1], 0)
    holders[0].close()
    env.reset()
    env.close()
    holders[1].close()


def test_a_service_that_dies_at_its_start_is_tried_again(pool: forebay.ServicePool) -> None:
    """A start that fails by accident costs an attempt, not the program."""
    failures = [forebay.DiedError("service died before it was ready")]

    def flaky(what: Any, *, timeout: float) -> Any:
        if failures:
            raise failures.pop()
        return pool.acquire(what, timeout=timeout)

    env = WalkEnv(Walk, acquire=flaky)
    assert env.reset()[0] == 0
    env.close()


def test_a_fork_goes_on_from_the_same_state(env: WalkEnv) -> None:
    env.reset(seed=1)
    env.step(1)
    forked = env.fork()
    try:
        assert forked.step(1)[0] == env.step(1)[0], "not the same state"
        place = env.step(2)[0]
        assert forked.step(1)[0] != place, "not their own ways"
        assert forked.service.lease.pid != env.service.lease.pid
        forked.reset()
        env.step(1)
    finally:
        forked.close()
    assert env.step(1)[2] in (True, False), "closing a fork leaves the parent alone"


def test_a_fork_before_the_first_reset_borrows_its_own(env: WalkEnv) -> None:
    forked = env.fork()
    try:
        assert forked.service is None
        env.reset()
        forked.reset()
        assert forked.service.lease.pid != env.service.lease.pid
    finally:
        forked.close()


def test_forks_of_forks_are_not_orphaned(env: WalkEnv) -> None:
    env.reset()
    first = env.fork()
    second = first.fork()
    pids = [first.service.lease.pid, second.service.lease.pid]
    first.close()
    second.step(1)
    second.close()
    assert eventually(lambda: not any(map(alive, pids)))
    env.step(1)


def test_a_fork_samples_actions_of_its_own(env: WalkEnv) -> None:
    env.action_space = gymnasium.spaces.Discrete(HUGE)
    env.action_space.seed(3)
    env.reset()
    same, other, another = env.fork(same_seed=True), env.fork(), env.fork()
    try:
        sampled = [forked.action_space.sample() for forked in (env, same, other, another)]
        assert sampled[0] == sampled[1]
        assert len(set(sampled)) == 3
    finally:
        for forked in (same, other, another):
            forked.close()


def test_a_fork_leaves_a_space_of_the_class_alone(env: WalkEnv) -> None:
    first, second = WalkEnv.action_space, gymnasium.spaces.Discrete(100)
    first.seed(3)
    second.seed(3)
    env.fork().close()
    assert [first.sample() for _ in range(3)] == [second.sample() for _ in range(3)]


def test_a_fork_keeps_its_numbers_where_asked_for(env: WalkEnv) -> None:
    env.reset(seed=3)
    same, other = env.fork(same_seed=True), env.fork()
    try:
        drawn = env.np_random.random()
        assert same.np_random.random() == drawn
        assert other.np_random.random() != drawn
    finally:
        same.close()
        other.close()
