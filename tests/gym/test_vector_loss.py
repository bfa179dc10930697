"""What a vector environment does when one of its environments dies, hangs or raises."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import forebay
from forebay.gym import PooledVectorEnv, make_vec

from . import worlds

pytestmark = pytest.mark.leaks(reason="the module's pool keeps services from test to test")

GOES_ON, DIES, RAISES, HANGS = range(4)
SICK = [worlds.Sick] * 3


@pytest.fixture(scope="module")
def pool() -> Iterator[forebay.ServicePool]:
    with forebay.ServicePool(max_size=8, reset_timeout=20, name="loss test") as made:
        yield made


def acts(*actions: int) -> Any:
    return np.array(actions)


def usable(envs: PooledVectorEnv) -> None:
    """Reset everything and take a step."""
    envs.reset(seed=1)
    _, rewards, *_ = envs.step(acts(*[GOES_ON] * envs.num_envs))
    assert rewards.tolist() == [1.0] * envs.num_envs


def test_a_death_names_the_environment_its_cause_and_its_last_words(
    pool: forebay.ServicePool,
) -> None:
    """Not "broken pipe": which one, how it ended, and what it said."""
    envs = make_vec(SICK, pool=pool)
    envs.reset(seed=1)
    with pytest.raises(forebay.DiedError, match="environment 1 of 3 was lost") as caught:
        envs.step(acts(GOES_ON, DIES, GOES_ON))
    assert caught.value.exit_code == 7
    assert "the wheels came off" in caught.value.stderr_tail
    assert caught.value.environment == 1  # type: ignore[attr-defined]
    with pytest.raises(gymnasium.error.ResetNeeded, match="environment 1"):
        envs.step(acts(0, 0, 0))
    usable(envs)
    assert envs.losses == 1
    envs.close()


def test_the_others_go_on_after_a_masked_reset_of_the_lost_one(pool: forebay.ServicePool) -> None:
    """One death costs one episode: the others keep their processes and their state."""
    envs = make_vec(SICK, pool=pool)
    envs.reset(seed=1)
    envs.set_attr("note", "kept")
    with pytest.raises(forebay.DiedError):
        envs.step(acts(GOES_ON, GOES_ON, DIES))
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"\[2\]"):
        envs.get_attr("note")
    envs.reset(options={"reset_mask": np.array([False, False, True])})
    assert envs.get_attr("note") == ("kept", "kept", "as made")
    assert envs.get_attr("steps") == (1, 1, 0)
    assert envs.step(acts(0, 0, 0))[1].tolist() == [1.0, 1.0, 1.0]
    envs.close()


def test_an_environment_that_raises_keeps_its_process_and_needs_a_reset(
    pool: forebay.ServicePool,
) -> None:
    """The error is the one that was raised there, with its traceback; nothing was lost."""
    envs = make_vec(SICK, pool=pool)
    envs.reset(seed=1)
    envs.set_attr("note", "kept")
    with pytest.raises(ValueError, match=r"environment 0 of 3 failed: no such gear") as caught:
        envs.step(acts(RAISES, GOES_ON, GOES_ON))
    assert "worlds.py" in caught.value.__notes__[0]
    assert "options['reset_mask']" in caught.value.__notes__[1]
    with pytest.raises(gymnasium.error.ResetNeeded, match="environment 0 failed"):
        envs.step(acts(0, 0, 0))
    usable(envs)
    assert envs.get_attr("note") == ("kept",) * 3
    envs.close()


def test_a_hung_environment_is_ended_when_its_time_is_over(pool: forebay.ServicePool) -> None:
    """It costs the call's timeout once; neither it nor its process is ever waited for again."""
    envs = make_vec(SICK, pool=pool, call_timeout=3)
    envs.reset(seed=1)
    hung = envs._group.slots[2]
    assert hung is not None
    process = os.pidfd_open(hung.lease.pid)
    with pytest.raises(forebay.DeadlineError, match="environment 2 of 3 did not answer"):
        envs.step(acts(GOES_ON, GOES_ON, HANGS))
    wait_for(process)
    usable(envs)
    envs.close()


def test_the_timeout_of_a_wait_ends_those_that_have_not_answered(pool: forebay.ServicePool) -> None:
    """step_wait(timeout) as with AsyncVectorEnv, but the rest stays usable."""
    envs = make_vec(SICK, pool=pool)
    envs.reset(seed=1)
    envs.step_async(acts(HANGS, GOES_ON, GOES_ON))
    with pytest.raises(TimeoutError, match="environment 0") as caught:
        envs.step_wait(timeout=0.3)
    assert isinstance(caught.value, forebay.DeadlineError)
    assert isinstance(caught.value, multiprocessing.TimeoutError)  # what was caught before
    assert "the other environments are usable" in caught.value.__notes__[-1]
    usable(envs)
    envs.step_async(acts(HANGS, GOES_ON, GOES_ON))
    envs.close(terminate=True)


def test_several_losses_are_all_told(pool: forebay.ServicePool) -> None:
    """The first is raised, the others stand in its notes."""
    envs = make_vec(SICK, pool=pool)
    envs.reset(seed=1)
    with pytest.raises(forebay.DiedError, match="environment 0") as caught:
        envs.step(acts(DIES, RAISES, DIES))
    notes = "\n".join(caught.value.__notes__)
    assert "environment 1 of 3 failed: no such gear" in notes
    assert "environment 2 of 3 was lost" in notes
    usable(envs)
    envs.close()


@pytest.mark.parametrize("ending", [DIES, RAISES, HANGS])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
def test_with_restart_a_lost_environment_is_a_truncated_episode(
    pool: forebay.ServicePool, mode: AutoresetMode, ending: int
) -> None:
    """Training goes on: the step returns, says what happened, and the next one works."""
    envs = make_vec(SICK, pool=pool, autoreset_mode=mode, restart=True, call_timeout=3)
    before, _ = envs.reset(seed=1)
    after, rewards, terminated, truncated, infos = envs.step(acts(GOES_ON, ending, GOES_ON))
    assert (rewards.tolist(), terminated.tolist()) == ([1.0, 0.0, 1.0], [False] * 3)
    assert truncated.tolist() == [False, True, False]
    if mode is AutoresetMode.SAME_STEP:
        np.testing.assert_array_equal(infos["final_obs"][1], before[1])
        told = infos["final_info"]
        assert not np.array_equal(after[1], before[1])
    else:
        np.testing.assert_array_equal(after[1], before[1])
        told = infos
    names = {DIES: "DiedError", RAISES: "RemoteValueError", HANGS: "DeadlineError"}
    assert told["error_type"].tolist() == [None, names[ending], None]
    assert "environment 1 of 3" in told["error"][1]
    if mode is AutoresetMode.DISABLED:
        with pytest.raises(gymnasium.error.ResetNeeded, match="environment 1"):
            envs.step(acts(0, 0, 0))
        envs.reset(options={"reset_mask": truncated})
    _, rewards, _, truncated, infos = envs.step(acts(0, 0, 0))
    assert rewards.tolist() == [1.0, 0.0 if mode is AutoresetMode.NEXT_STEP else 1.0, 1.0]
    assert (truncated.any(), "error" in infos, envs.losses) == (False, False, 1)
    envs.close()


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
def test_a_lost_environment_keeps_its_last_words_where_observations_travel(
    pool: forebay.ServicePool, mode: AutoresetMode
) -> None:
    """Observations of no fixed shape: those of the others are of this step, its own is the last."""
    lossy, sound = (
        make_vec([worlds.SickWords] * 2, pool=pool, autoreset_mode=mode, restart=True)
        for _ in range(2)
    )
    before, _ = lossy.reset(seed=1)
    sound.reset(seed=1)
    expected = sound.step(acts(GOES_ON, GOES_ON))[0]
    after, _, _, truncated, infos = lossy.step(acts(DIES, GOES_ON))
    assert (after[1], truncated.tolist()) == (expected[1], [True, False])
    same_step = mode is AutoresetMode.SAME_STEP
    assert (infos["final_obs"][0] if same_step else after[0]) == before[0]
    lossy.close()
    sound.close()


def test_with_restart_a_reset_survives_a_death(pool: forebay.ServicePool) -> None:
    """A process that was killed between two episodes is replaced by the reset that finds it."""
    envs = make_vec(SICK, pool=pool, restart=True)
    envs.reset(seed=1)
    slot = envs._group.slots[1]
    assert slot is not None
    process = os.pidfd_open(slot.lease.pid)
    signal.pidfd_send_signal(process, signal.SIGKILL)
    wait_for(process)
    first, _ = envs.reset(seed=3)
    second, _ = envs.reset(seed=3)
    np.testing.assert_array_equal(first, second)
    envs.close()


def test_a_function_that_raises_is_named_and_nothing_is_kept(pool: forebay.ServicePool) -> None:
    """The error of the constructor, with the environment's number, and every lease given back."""
    with pytest.raises(LookupError, match=r"environment 1 of 2.*level file is missing"):
        make_vec([worlds.Sick, worlds.Unready], pool=pool)
    stats = pool.stats()
    assert stats["live"] == stats["idle"] + stats["settling"]


def test_a_wait_that_is_interrupted_loses_what_was_called_and_a_reset_mends_it(
    pool: forebay.ServicePool,
) -> None:
    """Ctrl-C in a notebook: the next reset works, and no answer comes to the wrong call."""

    def interrupt(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    envs = make_vec(SICK, pool=pool)
    envs.reset(seed=1)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            envs.step(acts(HANGS, GOES_ON, GOES_ON))
    finally:
        signal.signal(signal.SIGALRM, before)
    usable(envs)
    envs.close()


def wait_for(process: int) -> None:
    """Wait until the process of a pidfd has ended, and close it."""
    import select

    ended, _, _ = select.select([process], [], [], 10)
    os.close(process)
    assert ended


def test_more_environments_than_the_pool_may_have_are_refused(pool: forebay.ServicePool) -> None:
    """At once and with the way out, not by a timeout."""
    with pytest.raises(forebay.ConfigError, match=r"max_size=8.*ServicePool\(max_size=9\)"):
        make_vec([worlds.Sick] * 9, pool=pool)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"worker": print}, "custom worker"),
        ({"context": "thread"}, "context is 'thread'"),
        ({"max_concurrency": 0}, "max_concurrency is 0"),
        ({"observation_mode": "other"}, "observation_mode is 'other'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    pool: forebay.ServicePool, arguments: dict[str, Any], says: str
) -> None:
    """With the name, the value and what to do."""
    with pytest.raises(forebay.ConfigError, match=says):
        make_vec(SICK, pool=pool, **arguments)
    with pytest.raises(forebay.ConfigError, match="env_fns is empty"):
        make_vec([], pool=pool)
    with pytest.raises(forebay.ConfigError, match="is no environment function"):
        make_vec([3], pool=pool)  # type: ignore[list-item]
