"""Warm services are shared by equal functions, and nothing of one use is seen by the next."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import forebay
from forebay.gym import make_vec

from . import worlds

pytestmark = pytest.mark.leaks(reason="the module's pool keeps services from test to test")


@pytest.fixture(scope="module")
def pool() -> Iterator[forebay.ServicePool]:
    with forebay.ServicePool(max_size=8, reset_timeout=20, name="reuse test") as made:
        yield made


def settle(pool: forebay.ServicePool) -> None:
    """Wait until every service that was given back can be lent again."""
    deadline = time.monotonic() + 20
    while (stats := pool.stats())["idle"] < stats["live"]:
        assert time.monotonic() < deadline, stats
        pool.core.drive()
        time.sleep(0.001)  # the next look


def pids(env_fns: list[Callable[[], Any]], pool: forebay.ServicePool, act: Any = None) -> set[int]:
    """Make, do something, give back: the processes that did it."""
    envs = make_vec(env_fns, pool=pool)
    try:
        envs.reset(seed=1)
        if act is not None:
            act(envs)
        return {slot.lease.pid for slot in envs._group.slots if slot is not None}
    finally:
        envs.close()
        settle(pool)


def test_equal_functions_share_warm_services(pool: forebay.ServicePool) -> None:
    """Two lambdas with the same code are the same environment; other values are another one."""

    def functions(high: float) -> list[Callable[[], Any]]:
        return [lambda: worlds.Wide(high) for _ in range(2)]

    first = pids(functions(1.0), pool)
    starts = pool.stats()["starts"]
    assert pids(functions(1.0), pool) == first
    assert pool.stats()["starts"] == starts
    assert pids(functions(2.0), pool).isdisjoint(first)


def test_what_a_function_refers_to_is_part_of_the_key(pool: forebay.ServicePool) -> None:
    """A list that has changed since is seen: such a function is pickled each time."""
    highs = [1.0]

    def function() -> Any:
        return worlds.Wide(highs[0])

    first = pids([function], pool)
    assert pids([function], pool) == first
    highs[0] = 3.0

    def check(envs: Any) -> None:
        assert envs.single_observation_space.high.max() == 3.0

    assert pids([function], pool, check).isdisjoint(first)


def test_a_new_use_never_sees_the_state_of_an_old_one(pool: forebay.ServicePool) -> None:
    """The same process, another environment: attributes, episodes and generators are new."""
    env_fns: list[Any] = [worlds.Hasty] * 2

    def spoil(envs: Any) -> None:
        envs.set_attr("difficulty", 99)
        envs.step(np.array([1, 1]))

    first = pids(env_fns, pool, spoil)
    envs = make_vec(env_fns, pool=pool)
    assert set(envs.get_attr("pid")) == first
    assert envs.get_attr("difficulty") == (1, 1)
    assert envs.get_attr("steps") == (0, 0)
    seeds = envs.np_random_seed
    envs.close()
    settle(pool)
    envs = make_vec(env_fns, pool=pool)
    assert set(envs.np_random_seed).isdisjoint(seeds)
    envs.close()


def test_generators_of_the_process_are_fresh_for_each_environment(
    pool: forebay.ServicePool,
) -> None:
    """Copies of one template do not draw the same numbers, nor does a process twice."""
    drawn: set[float] = set()
    for _ in range(2):
        envs = make_vec([worlds.Loose] * 3, pool=pool)
        drawn |= {number for pair in envs.get_attr("drawn") for number in pair}
        envs.close()
    assert len(drawn) == 12


def test_an_environment_is_made_anew_off_the_callers_path(pool: forebay.ServicePool) -> None:
    """`close` does not wait for it, and what it makes is there for the next use."""
    envs = make_vec([worlds.Hasty], pool=pool)
    before = envs.get_attr("made")[0]
    envs.close()
    settle(pool)
    asked = time.monotonic()
    envs = make_vec([worlds.Hasty], pool=pool)
    made = envs.get_attr("made")[0]
    envs.close()
    assert before < made < asked


def test_changed_code_is_not_run_by_services_of_the_old_code(
    pool: forebay.ServicePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that was edited and reloaded gets processes that import it anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "edited_world.py"
    text = "from tests.gym.worlds import Wide\ndef make():\n    return Wide({high})\n"
    module.write_text(text.format(high=1.0))
    edited = importlib.import_module("edited_world")
    try:
        fresh = forebay.ServicePool(max_size=2, name="edited")  # its template knows the path
        with fresh:
            first = pids([edited.make], fresh)
            module.write_text(text.format(high=20.0))
            importlib.reload(edited)

            def check(envs: Any) -> None:
                assert envs.single_observation_space.high.max() == 20.0

            assert pids([edited.make], fresh, check).isdisjoint(first)
    finally:
        del sys.modules["edited_world"]


def test_environments_that_this_program_registered_are_known_there(
    pool: forebay.ServicePool,
) -> None:
    """`gymnasium.make` of an id that only the caller's program has registered."""
    gymnasium.register("forebay-test/Wide-v0", entry_point=worlds.Wide)
    try:
        envs = make_vec([lambda: gymnasium.make("forebay-test/Wide-v0", high=4.0)] * 2, pool=pool)
        assert envs.single_observation_space.high.max() == 4.0
        envs.close()
    finally:
        del gymnasium.registry["forebay-test/Wide-v0"]


def test_spaces_of_two_uses_do_not_share_a_generator(pool: forebay.ServicePool) -> None:
    """Seeding the action space of one vector environment leaves the next one's alone."""
    samples = []
    for _ in range(2):
        envs = make_vec([functools.partial(worlds.make, "box")] * 2, pool=pool)
        samples.append(envs.action_space.sample())
        envs.action_space.seed(1)
        envs.close()
    assert not np.array_equal(*samples)


def test_a_function_that_cannot_travel_is_refused_by_name(pool: forebay.ServicePool) -> None:
    """A lock in its closure: the message says what and why."""
    lock = threading.Lock()

    def function() -> Any:
        with lock:
            return worlds.Hasty()

    with pytest.raises(forebay.ConfigError, match=r"function.*cannot be pickled"):
        make_vec([function], pool=pool)


def test_a_forgotten_vector_environment_gives_its_services_back(
    pool: forebay.ServicePool,
) -> None:
    """As AsyncVectorEnv closes itself when it is collected."""
    settle(pool)
    envs = make_vec([worlds.Hasty] * 2, pool=pool)
    assert pool.stats()["idle"] <= pool.stats()["live"] - 2
    del envs
    settle(pool)


def test_environments_that_start_are_waited_for_together(pool: forebay.ServicePool) -> None:
    """Four that take a second each are there after little more than one, not after four."""
    pids([worlds.Hasty], pool)  # the template runs
    begun = time.monotonic()
    assert len(pids([worlds.Slow] * 4, pool, lambda envs: None)) == 4
    # Made once more when they come back, which `pids` waits for: two seconds, where one after the
    # other would be eight.
    assert time.monotonic() - begun < 6


def test_a_forked_child_leaves_its_parents_environments_alone(pool: forebay.ServicePool) -> None:
    """It may close them and end as it likes; the parent's next step works."""
    envs = make_vec([worlds.Hasty] * 2, pool=pool)
    envs.reset(seed=1)
    child = os.fork()
    if child == 0:
        try:
            envs.close()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert envs.step(np.array([1, 1]))[1].shape == (2,)
    envs.close()
