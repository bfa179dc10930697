"""`make_vec`: step for step what SyncVectorEnv does, in processes that stay warm."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import forebay
from forebay.gym import PooledVectorEnv, SpacesError, make_vec

from . import worlds

pytestmark = pytest.mark.leaks(reason="the module's pool keeps services from test to test")

MODES = list(AutoresetMode)
EnvFunction = Callable[[], Any]


@pytest.fixture(scope="module")
def pool() -> Iterator[forebay.ServicePool]:
    with forebay.ServicePool(max_size=24, reset_timeout=20, name="vector test") as made:
        yield made


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=30)


def same(ours: Any, theirs: Any) -> None:
    """Equal in value, type, dtype and shape."""
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        assert ours.dtype == object
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    elif isinstance(theirs, np.ndarray):
        assert (type(ours), ours.dtype) == (type(theirs), theirs.dtype)
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs


def run_both(
    env_fns: list[EnvFunction],
    pool: forebay.ServicePool,
    mode: AutoresetMode,
    steps: int,
    **options: Any,
) -> None:
    """Drive both with the same seeds and actions, and compare everything they return."""
    theirs = SyncVectorEnv(env_fns, autoreset_mode=mode)
    ours = make_vec(env_fns, autoreset_mode=mode, pool=pool, **options)
    try:
        same(ours.reset(seed=5), theirs.reset(seed=5))
        theirs.action_space.seed(3)
        for number in range(steps):
            actions = theirs.action_space.sample()
            expected = theirs.step(actions)
            same(ours.step(actions), expected)
            ended = np.logical_or(expected[2], expected[3])
            if mode is AutoresetMode.DISABLED and ended.any():
                asked = {"reset_mask": ended, "number": number}
                same(ours.reset(options=dict(asked)), theirs.reset(options=dict(asked)))
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name.lower())
def test_cartpole_is_step_for_step_that_of_sync_vector_env(
    pool: forebay.ServicePool, mode: AutoresetMode
) -> None:
    """Observations, rewards, ends, final observations and infos, over many episodes."""
    run_both([cartpole] * 4, pool, mode, steps=200)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("kind", worlds.SPACES)
def test_every_kind_of_space_is_step_for_step_that_of_sync_vector_env(
    pool: forebay.ServicePool, kind: str, mode: AutoresetMode
) -> None:
    """Spaces of fixed shape through shared memory, others with the answers: nobody can tell."""
    run_both([functools.partial(worlds.make, kind)] * 3, pool, mode, steps=40)


def test_a_limit_on_concurrency_changes_no_result(pool: forebay.ServicePool) -> None:
    """Environments that are called two at a time answer as when they are called at once."""
    run_both([cartpole] * 5, pool, AutoresetMode.SAME_STEP, steps=60, max_concurrency=2)


def test_spaces_and_metadata_are_those_of_sync_vector_env(pool: forebay.ServicePool) -> None:
    """What a training loop asks before the first step."""
    env_fns = [functools.partial(worlds.make, "dict")] * 3
    theirs = SyncVectorEnv(env_fns)
    with_ours = make_vec(env_fns, pool=pool)
    try:
        for name in ("num_envs", "render_mode", "metadata", "single_action_space"):
            assert getattr(with_ours, name) == getattr(theirs, name)
        for name in ("action_space", "observation_space", "single_observation_space"):
            assert getattr(with_ours, name) == getattr(theirs, name)
        assert with_ours.observation_space.contains(with_ours.reset(seed=1)[0])
    finally:
        with_ours.close()


def test_differing_spaces_batch_as_with_sync_vector_env(pool: forebay.ServicePool) -> None:
    """observation_mode='different' and a pair of spaces."""
    env_fns = [functools.partial(worlds.Wide, high) for high in (1.0, 2.0)]
    pair = (
        gymnasium.spaces.Box(-9, 9, (2, 2), np.float32),
        gymnasium.spaces.Box(-9, 9, (2,), np.float32),
    )
    for mode in ("different", pair):
        theirs = SyncVectorEnv(env_fns, observation_mode=mode)  # type: ignore[arg-type]
        ours = make_vec(env_fns, observation_mode=mode, pool=pool)
        assert ours.observation_space == theirs.observation_space
        assert ours.single_observation_space == theirs.single_observation_space
        same(ours.reset(seed=2), theirs.reset(seed=2))
        ours.close()


@pytest.mark.parametrize(
    ("arguments", "mode", "says"),
    [
        ({"high": 2.0}, "same", "observation_mode='different'"),
        ({"width": 3}, "different", "shape and dtype"),
        ({"actions": 5}, "same", "action space"),
    ],
)
def test_environments_that_do_not_agree_are_refused(
    pool: forebay.ServicePool, arguments: dict[str, Any], mode: str, says: str
) -> None:
    """One that differs is named when the vector environment is made, not when it goes wrong."""
    env_fns = [worlds.Wide, functools.partial(worlds.Wide, **arguments)]
    with pytest.raises(SpacesError, match=says) as caught:
        make_vec(env_fns, observation_mode=mode, pool=pool)
    assert isinstance(caught.value, RuntimeError)  # as with AsyncVectorEnv
    assert "environment 1" in str(caught.value)


def test_call_attributes_and_render_reach_every_environment(pool: forebay.ServicePool) -> None:
    """call, get_attr, set_attr and render, with the results in order."""
    envs = make_vec([functools.partial(worlds.make, "discrete")] * 3, pool=pool)
    envs.reset(seed=1)
    envs.step(np.array([2, 2, 2]))
    assert envs.call("add", 10, times=2) == (21, 21, 21)
    envs.set_attr("difficulty", [1, 2, 3])
    assert envs.get_attr("difficulty") == (1, 2, 3)
    envs.set_attr("difficulty", "hard")
    assert envs.get_attr("difficulty") == ("hard",) * 3
    assert [frame.max() for frame in envs.render()] == [1, 1, 1]
    assert envs.np_random_seed == (1, 2, 3)
    with pytest.raises(forebay.RemoteError, match="use the method"):
        envs.call("step", 1)
    envs.close()


def test_seeds_may_be_one_each_and_none(pool: forebay.ServicePool) -> None:
    """A list of seeds, one of them None, is what each environment gets."""
    envs = make_vec([functools.partial(worlds.make, "box")] * 3, pool=pool)
    first, _ = envs.reset(seed=[7, None, 9])
    second, _ = envs.reset(seed=[7, None, 9])
    np.testing.assert_array_equal(first[[0, 2]], second[[0, 2]])
    assert not np.array_equal(first[1], second[1])
    with pytest.raises(forebay.ConfigError, match="2 seeds were given for 3"):
        envs.reset(seed=[1, 2])
    envs.close()


def test_a_mask_resets_only_those_that_it_names(pool: forebay.ServicePool) -> None:
    """The others keep their observation, and the caller's options are not changed."""
    envs = make_vec([functools.partial(worlds.make, "box")] * 3, pool=pool)
    before, _ = envs.reset(seed=1)
    options = {"reset_mask": np.array([False, True, False]), "level": 2}
    after, infos = envs.reset(seed=50, options=options)
    assert (after == before).all(axis=(1, 2)).tolist() == [True, False, True]
    assert infos["_asked"].tolist() == [False, True, False]
    assert "reset_mask" in options
    for mask in (np.zeros(3, bool), np.ones(2, bool)):
        with pytest.raises(forebay.ConfigError, match="reset_mask"):
            envs.reset(options={"reset_mask": mask})
    with pytest.raises(TypeError, match="array of bool"):
        envs.reset(options={"reset_mask": [True, False, False]})
    envs.close()


def test_copies_are_new_arrays_and_without_copy_they_are_the_same(
    pool: forebay.ServicePool,
) -> None:
    """A replay buffer may keep what it gets, unless it asked for no copies."""
    env_fns = [functools.partial(worlds.make, "box")] * 2
    actions = np.zeros((2, 2), np.float32)
    for copy in (True, False):
        envs = make_vec(env_fns, copy=copy, pool=pool)
        first, _ = envs.reset(seed=1)
        kept = first.copy()
        second = envs.step(actions)[0]
        assert (first is second) is not copy
        assert np.array_equal(first, kept) is copy
        envs.close()


def test_asynchronous_halves_refuse_what_is_out_of_order(pool: forebay.ServicePool) -> None:
    """step_async twice, step_wait alone, and anything after close, with gymnasium's own errors."""
    envs = make_vec([cartpole] * 2, pool=pool)
    envs.reset_async(seed=1)
    with pytest.raises(gymnasium.error.AlreadyPendingCallError):
        envs.step_async(np.array([0, 1]))
    envs.reset_wait()
    with pytest.raises(gymnasium.error.NoAsyncCallError):
        envs.step_wait()
    envs.step_async(np.array([0, 1]))
    assert envs.step_wait(timeout=20)[0].shape == (2, 4)
    envs.step_async(np.array([0, 1]))
    envs.close()
    envs.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        envs.reset()


def test_actions_of_other_types_reach_the_environments_as_they_are(
    pool: forebay.ServicePool,
) -> None:
    """A list, another dtype: what SyncVectorEnv would pass on; too few are refused."""
    env_fns = [functools.partial(worlds.make, "discrete")] * 2
    theirs, ours = SyncVectorEnv(env_fns), make_vec(env_fns, pool=pool)
    same(ours.reset(seed=4), theirs.reset(seed=4))
    for actions in ([2, 3], np.array([3, 2], np.int32), (4, 5)):
        same(ours.step(actions), theirs.step(actions))
    with pytest.raises(forebay.ConfigError, match="3 actions were given for 2"):
        ours.step([2, 2, 2])
    ours.close()


def test_a_wrapper_of_gymnasium_works_on_it(pool: forebay.ServicePool) -> None:
    """Vector wrappers take it for what it says it is."""
    envs = make_vec([cartpole] * 2, pool=pool)
    wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    wrapped.reset(seed=1)
    for _ in range(60):
        infos = wrapped.step(np.array([0, 0]))[4]
        if "episode" in infos:
            break
    assert infos["episode"]["l"].max() > 5
    assert isinstance(wrapped.unwrapped, PooledVectorEnv)
    wrapped.close()
