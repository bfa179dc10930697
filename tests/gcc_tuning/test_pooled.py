"""The tuning over real services of a real pool."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import forebay
from examples.gcc_tuning.backends import LocalBackend, ServiceBackend
from examples.gcc_tuning.compiler import Compiler
from examples.gcc_tuning.env import GccEnv
from examples.gcc_tuning.flags import options_of
from examples.gcc_tuning.results import ResultCache
from examples.gcc_tuning.search import Search
from examples.gcc_tuning.toolchain import Toolchain
from examples.gcc_tuning.tune import tune

from .conftest import PROGRAMS, MakeGcc

SEQUENCES = int(os.environ.get("FOREBAY_GCC_SEQUENCES", "20"))
"""`make soak` takes 200."""
SEEDS = range(1, 1 + int(os.environ.get("FOREBAY_GCC_SEEDS", "1")))
"""`make soak` takes three."""
N_PROGRAMS = int(os.environ.get("FOREBAY_GCC_PROGRAMS", "2"))
"""`make soak` takes all eight."""


@pytest.fixture
def pool() -> Iterator[forebay.ServicePool]:
    pool = forebay.ServicePool(max_size=2)
    yield pool
    pool.close()


@pytest.fixture
def env(pool: forebay.ServicePool, source_dir: Path) -> Iterator[GccEnv]:
    env = GccEnv(str(source_dir), "small", tuned=options_of()[:30], acquire=pool.acquire)
    yield env
    env.close()


def test_the_environment_passes_gymnasiums_checker(env: GccEnv) -> None:
    """Any agent written for Gymnasium can use it."""
    check_env(env, skip_render_check=True)


def test_leaving_every_option_alone_saves_nothing(env: GccEnv) -> None:
    """The reward is measured against -Os."""
    env.reset(seed=1)
    _, reward, terminated, truncated, info = env.step(np.zeros(30, dtype=np.int64))
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["outcome"] == "good"


def test_rewards_add_up_to_what_was_saved(env: GccEnv) -> None:
    """An agent that maximises the return minimises the program."""
    env.action_space.seed(3)
    _, info = env.reset(seed=1)
    base = size = info["bytes"]
    total = 0.0
    for _ in range(6):
        _, reward, _, _, info = env.step(env.action_space.sample())
        total += reward
        if info["outcome"] == "good":
            size = info["bytes"]
    assert total == pytest.approx((base - size) / base)


def test_an_observation_holds_sections_opcodes_and_flags(env: GccEnv) -> None:
    """What the agent sees is what was measured."""
    observation, info = env.reset(seed=1)
    assert observation["sections"].sum() <= sum(info["sections"].values())
    assert observation["opcodes"].sum() == sum(info["opcodes"].values()) > 0
    action = np.ones(30, dtype=np.int64)
    observation, *_ = env.step(action)
    assert (observation["flags"] == action).all()


def test_a_refused_step_is_an_observation(
    pool: forebay.ServicePool, source_dir: Path, make_gcc: MakeGcc
) -> None:
    """The episode goes on, with the message at hand."""
    tuned = [option for option in options_of() if option.name == "-fgcse"]
    gcc = make_gcc("echo no such thing; exit 1")
    env = GccEnv(str(source_dir), "small", tuned=tuned, gcc=gcc, acquire=pool.acquire)
    try:
        env.reset()
        gcse = tuned[0].flags().index("-fgcse") + 1 if "-fgcse" in tuned[0].flags() else 0
        _, reward, _, truncated, info = env.step(np.array([gcse]))
        if gcse:
            assert (info["outcome"], info["message"]) == ("refused", "no such thing")
        assert (reward, truncated) == (0.0, False)
    finally:
        env.close()


def test_a_killed_service_ends_the_episode_and_the_next_reset_works(env: GccEnv) -> None:
    """CompilerGym's contract: a crash in step is told in info, and reset starts anew."""
    env.reset(seed=1)
    killed = env.service.lease.pid
    os.kill(killed, signal.SIGKILL)
    observation, reward, terminated, truncated, info = env.step(np.zeros(30, dtype=np.int64))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["error_type"] == "DiedError"
    assert info["error_details"]["signal"] == signal.SIGKILL
    assert env.observation_space.contains(observation)
    env.reset(seed=1)
    assert env.service.lease.pid != killed


def test_the_cache_outlives_the_lease(pool: forebay.ServicePool, source_dir: Path) -> None:
    """The next holder finds a service that knows the results already."""
    spec = Compiler.spec(source_dir=str(source_dir))
    with pool.acquire(spec) as compiler:
        assert not compiler.compile("small", ["-Os"])["cached"]
        pid = compiler.lease.pid
    with pool.acquire(spec) as compiler:
        result = compiler.compile("small", ["-Os"])
        assert result["cached"] == (compiler.lease.pid == pid)


def test_an_unknown_program_is_a_value_error_here_too(
    pool: forebay.ServicePool, source_dir: Path
) -> None:
    """A mistake of the caller costs no service."""
    with pool.acquire(Compiler.spec(source_dir=str(source_dir))) as compiler:
        with pytest.raises(ValueError, match="there are: small"):
            compiler.compile("nowhere", ["-Os"])
        assert compiler.compile("small", ["-Os"])["outcome"] == "good"


def test_a_service_killed_in_a_search_costs_one_trial(
    pool: forebay.ServicePool, source_dir: Path
) -> None:
    """The search goes on with another service, and ends."""
    backend = ServiceBackend(pool.acquire, Compiler.spec(source_dir=str(source_dir)))
    searches: dict[str, Search] = {}
    killed: list[int] = []

    def tick() -> None:
        if not killed and backend.pid is not None and len(searches["small"].history) >= 3:
            killed.append(backend.pid)
            os.kill(backend.pid, signal.SIGKILL)

    tuning = tune(
        ["small"], lambda: backend, options=options_of()[:40], budget=40, seed=1, threads=1,
        searches=searches, tick=tick,
    )  # fmt: skip
    assert killed
    assert tuning.trials == 40
    assert searches["small"].outcomes["lost"] == len(backend.losses) == 1
    assert isinstance(backend.losses[0], forebay.DiedError)
    assert backend.pid is None


def test_a_backend_that_fails_ends_the_run_and_its_threads() -> None:
    """An error in one thread is raised to the caller; no thread stays."""

    class Broken:
        closed = 0

        def compile(self, program: str, flags: object) -> None:
            raise RuntimeError(f"broken at {program}")

        def close(self) -> None:
            Broken.closed += 1

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="broken at"):
        tune(["a", "b"], Broken, options=options_of(), budget=3, seed=1, threads=2)
    assert threading.active_count() == before
    assert Broken.closed == 2


def compare(pool: forebay.ServicePool, sequences: int) -> None:
    """Compile random actions in pooled services and from nothing; sizes and outcomes agree."""
    draw = random.Random(20)
    choices = [option.flags() for option in options_of()]
    spec = Compiler.spec(source_dir=str(PROGRAMS))
    for _ in range(sequences):
        program = draw.choice(["hash_table", "lz", "sha256"])
        fresh = Toolchain(PROGRAMS)
        with pool.acquire(spec) as compiler:
            for _ in range(2):
                flags = ["-Os", *(draw.choice(choice) for choice in draw.sample(choices, 10))]
                pooled, alone = compiler.compile(program, flags), fresh.compile(program, flags)
                assert {**pooled, "cached": False} == {**alone, "cached": False}
        fresh.clean()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pooled_and_fresh_compilers_agree(pool: forebay.ServicePool) -> None:
    """A warm service answers what a fresh one would to random sequences of actions."""
    compare(pool, SEQUENCES)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_most_programs_beat_os(seed: int) -> None:
    """The example's promise; every best program is checked by itself."""
    cache = ResultCache()
    programs = [path.stem for path in sorted(PROGRAMS.glob("*.c"))][:N_PROGRAMS]
    tuning = tune(
        programs, lambda: LocalBackend(PROGRAMS, cache), options=options_of(), budget=80, seed=seed,
        threads=2,
    )  # fmt: skip
    better = [one for one in tuning.found.values() if 0 < one.best_bytes < one.base_bytes]
    assert 4 * len(better) >= 3 * len(programs)
