"""Vector environments on pooled services against gymnasium's AsyncVectorEnv.

Making: four environments of one class, gymnasium's CartPoleEnv itself, are made and reset (the
wrappers of `gymnasium.make` check a new environment in its first reset, which is work of both
sides and 20 to 30 us of ours for each). Ours borrows four services that are warm
and idle: those of the round before, which have been given back and have made their environments
anew by then, outside of the time; so has the peer ended its processes. `p50_at_once` is ours
without that pause: made again right after `close`, so that the new environments are waited for.
Stepping: eight of CartPole-v1 in eight processes, observations in shared memory, random actions,
episodes begun anew as they end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.stopwatch import Figures, summary, time_calls

MADE = 4
STEPPED = 8
ACTIONS = 64
MS = 1_000_000  # nanoseconds
IDLE_TIMEOUT_S = 10.0
Make = Callable[[list[Any]], Any]


def cart_pole() -> Any:
    """The environment that both sides step."""
    import gymnasium

    return gymnasium.make("CartPole-v1")


def _pooled(env_fns: list[Any]) -> Any:
    from forebay.gym import make_vec

    return make_vec(env_fns)


def _asynchronous(context: str) -> Make:
    from gymnasium.vector import AsyncVectorEnv

    return lambda env_fns: AsyncVectorEnv(env_fns, shared_memory=True, context=context)


def _time_makes(make: Make, *, makes: int, warm_up: int, settle: Callable[[], None]) -> Figures:
    from gymnasium.envs.classic_control.cartpole import CartPoleEnv

    samples: list[int] = []
    for number in range(warm_up + makes):
        settle()
        started = time.perf_counter_ns()
        envs = make([CartPoleEnv] * MADE)
        observations, _ = envs.reset(seed=number)
        samples.append(time.perf_counter_ns() - started)
        if not envs.observation_space.contains(observations):
            raise ValueError(f"make {number} gave {observations!r}")
        envs.close()
    return summary(samples[warm_up:], unit_ns=MS)


def _until_idle() -> None:
    """Wait until every service that was given back can be lent again."""
    from forebay.gym import environment_pool

    pool = environment_pool()
    deadline = time.monotonic() + IDLE_TIMEOUT_S
    while (stats := pool.stats())["idle"] < stats["live"]:
        pool.core.drive()
        if time.monotonic() > deadline:
            raise ValueError(f"services do not come back: {stats}")
        time.sleep(0.0005)


def pooled_makes(makes: int, warm_up: int) -> Figures:
    """Ours: four warm services borrowed, and their environments reset."""
    at_once = _time_makes(_pooled, makes=makes, warm_up=warm_up, settle=lambda: None)
    figures = _time_makes(_pooled, makes=makes, warm_up=warm_up, settle=_until_idle)
    return figures | {"p50_at_once": at_once["p50"]}


def forked_makes(makes: int, warm_up: int) -> Figures:
    """AsyncVectorEnv whose processes are forked from this one, which is small."""
    make = _asynchronous("fork")
    return _time_makes(make, makes=makes, warm_up=warm_up, settle=lambda: None)


def spawned_makes(makes: int, warm_up: int) -> Figures:
    """AsyncVectorEnv whose processes are fresh interpreters."""
    make = _asynchronous("spawn")
    return _time_makes(make, makes=makes, warm_up=warm_up, settle=lambda: None)


def _time_steps(make: Make, *, steps: int, warm_up: int) -> Figures:
    envs = make([cart_pole] * STEPPED)
    envs.reset(seed=1)
    envs.action_space.seed(1)
    actions = [envs.action_space.sample() for _ in range(ACTIONS)]

    def step(number: int) -> bool:
        observations, rewards, _, _, _ = envs.step(actions[number % ACTIONS])
        return bool(observations.shape == (STEPPED, 4) and rewards.shape == (STEPPED,))

    figures = time_calls(step, calls=steps, warm_up=warm_up)
    envs.close()
    return figures | {"steps_per_s": STEPPED * 1e6 / figures["mean"]}


def pooled_steps(steps: int, warm_up: int) -> Figures:
    """Ours: one call to each of eight services."""
    return _time_steps(_pooled, steps=steps, warm_up=warm_up)


def forked_steps(steps: int, warm_up: int) -> Figures:
    """AsyncVectorEnv(shared_memory=True)."""
    return _time_steps(_asynchronous("fork"), steps=steps, warm_up=warm_up)


def _contestant(
    name: str, function: str, full: dict[str, int], quick: dict[str, int]
) -> Contestant:
    return Contestant(name, f"benchmarks.pool.gym:{function}", OWN, full, quick)


MAKES = {"makes": 200, "warm_up": 10}
STEPS = {"steps": 5_000, "warm_up": 300}
STEPS_QUICK = {"steps": 2_000}

POOLED = _contestant("forebay, make 4", "pooled_makes", MAKES, {"makes": 60})
FORKED = _contestant(
    "AsyncVectorEnv, fork", "forked_makes", {"makes": 20, "warm_up": 2}, {"makes": 8}
)
SPAWNED = _contestant(
    "AsyncVectorEnv, spawn", "spawned_makes", {"makes": 4, "warm_up": 0}, {"makes": 2}
)
POOLED_STEPS = _contestant("forebay, step 8", "pooled_steps", STEPS, STEPS_QUICK)
FORKED_STEPS = _contestant("AsyncVectorEnv, step 8", "forked_steps", STEPS, STEPS_QUICK)

CLAIMS = [
    Claim("pool.gym.make4.vs_async_vector_env_fork", POOLED, FORKED, "p50", "ms"),
    Claim("pool.gym.make4.vs_async_vector_env_spawn", POOLED, SPAWNED, "p50", "ms"),
    Claim(
        "pool.gym.step8.vs_async_vector_env",
        POOLED_STEPS,
        FORKED_STEPS,
        "steps_per_s",
        "1/s",
        higher_is_better=True,
    ),
]
