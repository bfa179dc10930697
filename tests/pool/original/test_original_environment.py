"""What CompilerGym's tests ask of environments and their forks (pull request 583), asked of ours.

Each test bears the name of the original. There a fork is another session on the same process; ours
is a process of its own, so that what one does to it cannot reach the other, and that is tested in
place of the sharing. Versions, benchmarks and reward spaces have no counterpart here, and the seven
of `bench_test.py` are rows of `python -m benchmarks pool`.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import gymnasium
import pytest

import forebay
from forebay.gym import ServiceEnv
from tests.pool.original.original_services import Tuning
from tests.pool.processes import alive, eventually


class TuningEnv(ServiceEnv[int, int]):
    """The reward of an action is the cost it saved."""

    action_space = gymnasium.spaces.Discrete(100)
    observation_space = gymnasium.spaces.Discrete(2_000)

    def begin(self, service: Any, options: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        service.begin()
        return service.cost(), {}

    def advance(self, service: Any, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        reward = service.apply(int(action))
        return service.cost(), float(reward), False, False, {}

    def lost_observation(self) -> int:
        return 0


@pytest.fixture
def env(pool: forebay.ServicePool) -> Iterator[TuningEnv]:
    with contextlib.closing(TuningEnv(Tuning, acquire=pool.acquire, call_timeout=20)) as made:
        yield made


# --- tests/service/connection_pool_test.py, those with an environment -------------------------


def test_service_pool_with_env_is_not_closed(pool: forebay.ServicePool) -> None:
    """A `with` block over an environment releases its service; the process lives."""
    with contextlib.closing(TuningEnv(Tuning, acquire=pool.acquire)) as env:
        env.reset()
        pid = env.service.lease.pid
    assert alive(pid)
    assert pool.stats()["live"] == 1


def test_service_pool_environment_restarts_service(
    pool: forebay.ServicePool, env: TuningEnv
) -> None:
    """After its service ended, reset gets a new one; that is in the pool, the old one is not."""
    env.reset()
    old = env.service.lease.pid
    os.kill(old, signal.SIGKILL)
    env.reset()
    new = env.service.lease.pid
    assert {service["pid"] for service in pool.services()} == {new}
    assert new != old


# --- tests/llvm/service_connection_test.py ----------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_service_env_dies_reset(env: TuningEnv, how: signal.Signals) -> None:
    """A step after the death ends the episode with the default observation and reward 0.

    The next reset works. There the episode is `done`, ours `truncated`, since no goal was reached.
    A pool has no service that it did not start, so the original's unmanaged one is left out.
    """
    env.reset()
    os.kill(env.service.lease.pid, how)
    observation, reward, terminated, truncated, info = env.step(1)
    assert (observation, reward, terminated, truncated) == (0, 0.0, False, True)
    assert info["error_type"] == "DiedError"
    assert info["error_details"]["signal"] == how
    env.reset()
    assert env.step(7)[1] == 7.0


# --- tests/llvm/fork_env_test.py --------------------------------------------------------------


def test_with_statement(pool: forebay.ServicePool) -> None:
    """A fork used in a `with` block ends there, its origin does not."""
    with pool.acquire(Tuning) as tuning:
        with tuning.lease.fork() as [fork]:
            copy = fork.lease.pid
            assert fork.apply(1) == 1
        assert eventually(lambda: not alive(copy))
        assert tuning.apply(2) == 2


def test_fork_child_process_is_not_orphaned(pool: forebay.ServicePool) -> None:
    """A fork outlives the lease of its origin, and ends when its own does."""
    with contextlib.ExitStack() as stack:
        with pool.acquire(Tuning) as tuning:
            tuning.act(5)
            [fork] = stack.enter_context(tuning.lease.fork())
            origin, copy = tuning.lease.pid, fork.lease.pid
        assert alive(origin), "released, not ended"
        assert fork.about()[1] == [5], "the reset of the origin is not the fork's"
    assert eventually(lambda: not alive(copy))
    assert alive(origin)


def test_fork_chain_child_processes_are_not_orphaned(pool: forebay.ServicePool) -> None:
    """In a chain of four forks each ends with its own user, in any order, and none is left."""
    with pool.acquire(Tuning) as tuning, contextlib.ExitStack() as stack:
        chain = [tuning]
        for action in range(4):
            [fork] = stack.enter_context(chain[-1].lease.fork())
            fork.act(action)
            chain.append(fork)
        assert chain[-1].about()[1] == [0, 1, 2, 3]
        pids = [each.lease.pid for each in chain]
        assert len(set(pids)) == 5
        chain[2].lease.close()
        assert eventually(lambda: not alive(pids[2]))
        assert chain[3].about()[1] == [0, 1, 2], "a fork needs no origin"
    assert eventually(lambda: not any(map(alive, pids[1:])))
    assert alive(pids[0])


def test_fork_before_reset(pool: forebay.ServicePool) -> None:
    """A service that was never called can be forked."""
    with pool.acquire(Tuning) as tuning, tuning.lease.fork() as [fork]:
        assert fork.about() == tuning.about() == ("crc32", [], 1_005)


def test_fork_closed_service(pool: forebay.ServicePool) -> None:
    """There the actions are replayed on a new service; ours raises, and says what is closed."""
    with pool.acquire(Tuning) as tuning:
        lease = tuning.lease
    with pytest.raises(forebay.StaleError, match="Tuning"):
        lease.fork()
    with pool.acquire(Tuning) as tuning:
        with pytest.raises(forebay.DiedError):
            tuning.die()
        with pytest.raises(forebay.DiedError), tuning.lease.fork():
            pass


def test_fork_spaces_are_same(pool: forebay.ServicePool) -> None:
    """A fork offers what its origin offers."""
    with pool.acquire(Tuning) as tuning, tuning.lease.fork() as [fork]:
        assert dir(fork) == dir(tuning)


def test_fork_state(pool: forebay.ServicePool) -> None:
    """A fork has the state of its origin, and then each its own."""
    with pool.acquire(Tuning) as tuning:
        tuning.apply(3)
        with tuning.lease.fork() as [fork]:
            assert fork.about() == tuning.about()
            fork.apply(4)
            assert (tuning.about()[1], fork.about()[1]) == ([3], [3, 4])
            tuning.apply(5)
            assert (tuning.about()[1], fork.about()[1]) == ([3, 5], [3, 4])


def test_fork_reset(pool: forebay.ServicePool) -> None:
    """A new episode in one leaves the other's alone."""
    with pool.acquire(Tuning) as tuning:
        tuning.act(1)
        with tuning.lease.fork() as [fork]:
            fork.act(2)
            fork.begin()
            assert (tuning.about()[1], fork.about()[1]) == ([1], [])
            tuning.begin()
            assert tuning.about()[1] == []


def test_fork_custom_benchmark(pool: forebay.ServicePool) -> None:
    """What the service was made with is the fork's too."""
    with pool.acquire(Tuning.spec("my own program")) as tuning, tuning.lease.fork() as [fork]:
        assert fork.about()[0] == "my own program"
        fork.begin()
        assert fork.about()[0] == "my own program"


def test_fork_twice_test(pool: forebay.ServicePool) -> None:
    """Two forks of one service, and a fork of a fork, agree."""
    with pool.acquire(Tuning) as tuning:
        tuning.act(9)
        with tuning.lease.fork(2) as [left, right], left.lease.fork() as [leaf]:
            assert left.about() == right.about() == leaf.about() == tuning.about()


def test_fork_modified_ir_is_the_same(pool: forebay.ServicePool) -> None:
    """The same actions lead origin and fork to the same place."""
    with pool.acquire(Tuning) as tuning:
        tuning.act(1)
        with tuning.lease.fork() as [fork]:
            for service in (tuning, fork):
                service.act(2)
            assert tuning.about() == fork.about()


def test_fork_rewards(pool: forebay.ServicePool) -> None:
    """The same actions earn origin and fork the same."""
    with pool.acquire(Tuning) as tuning:
        tuning.apply(1)
        with tuning.lease.fork() as [fork]:
            assert [tuning.apply(action) for action in (2, 3)] == [2, 3]
            assert [fork.apply(action) for action in (2, 3)] == [2, 3]


def test_fork_previous_cost_reward_update(pool: forebay.ServicePool) -> None:
    """A fork's first reward counts from the cost at the fork, not from the start."""
    with pool.acquire(Tuning) as tuning:
        assert tuning.apply(10) == 10
        with tuning.lease.fork() as [fork]:
            assert fork.apply(1) == 1
            assert tuning.apply(2) == 2


def test_fork_previous_cost_lazy_reward_update(pool: forebay.ServicePool) -> None:
    """A reward that was not asked for before the fork is due in both."""
    with pool.acquire(Tuning) as tuning:
        tuning.act(10)
        with tuning.lease.fork() as [fork]:
            fork.act(1)
            assert fork.reward() == 11
            assert tuning.reward() == 10


def test_forked_service_dies(pool: forebay.ServicePool) -> None:
    """There both lose the service that they share; ours lose only what died."""
    with pool.acquire(Tuning) as tuning:
        tuning.act(1)
        with tuning.lease.fork() as [fork]:
            with pytest.raises(forebay.DiedError, match="code 6"):
                fork.die()
            assert tuning.about()[1] == [1]
        with tuning.lease.fork() as [fork]:
            os.kill(tuning.lease.pid, signal.SIGKILL)
            assert eventually(lambda: not alive(tuning.lease.pid))
            assert fork.about()[1] == [1]


# --- examples/example_compiler_gym_service/env_tests.py ---------------------------------------


def test_invalid_arguments(pool: forebay.ServicePool) -> None:
    """A service that cannot be made with its arguments says so, as the error that it raised."""
    wrong = Tuning.spec(no_such_argument=1)
    with pytest.raises(TypeError, match="no_such_argument"), pool.acquire(wrong):
        pass
    assert pool.stats()["live"] == 0


@pytest.mark.parametrize("closed", [False, True])
def test_step_before_reset(env: TuningEnv, *, closed: bool) -> None:
    """A step without an episode is an error, not a new service in silence."""
    if closed:
        env.reset()
        env.close()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    assert env.service is None


def test_double_reset(env: TuningEnv) -> None:
    """Two resets in a row are two starts on one service."""
    first, _ = env.reset()
    pid = env.service.lease.pid
    second, _ = env.reset()
    assert (first, env.service.lease.pid) == (second, pid)


def test_double_reset_with_step(env: TuningEnv) -> None:
    """The step between two resets leaves nothing behind."""
    first, _ = env.reset()
    assert env.step(5)[1] == 5.0
    second, _ = env.reset()
    assert first == second
    assert env.step(5)[1] == 5.0


def test_step_out_of_range(env: TuningEnv) -> None:
    """An action that the service refuses is the caller's error, and the episode goes on."""
    env.reset()
    with pytest.raises(ValueError, match="action 100 is out of range"):
        env.step(100)
    assert env.step(1)[1] == 1.0


def test_default_observation_and_reward(env: TuningEnv) -> None:
    """What a lost step gives lies in the spaces."""
    env.reset()
    env.service.lease.submit("die").exception()
    observation, reward, _, truncated, _ = env.step(1)
    assert env.observation_space.contains(observation)
    assert (reward, truncated) == (0.0, True)


def test_observations_and_rewards(env: TuningEnv) -> None:
    """They come from the service, step by step."""
    start, _ = env.reset()
    for action in (1, 2, 3):
        observation, reward, *_ = env.step(action)
        assert reward == action
    assert observation == start - 6
