"""Whatever dies, each call of an executor has its own answer or a death, and none is lost."""

from __future__ import annotations

import os
import random
import signal
from concurrent.futures import Future, wait

import forebay
from tests.executor.futures import functions
from tests.pool.processes import parent

WAIT_S = 40.0
CALLS, KILLS = 1_500, 15


def kill_one_of(ended: list[Future[tuple[int, int]]], chance: random.Random) -> bool:
    """Kill the worker of a call that has ended lately; whether one was there."""
    lately = [future for future in ended[-20:] if future.exception() is None]
    if not lately:
        return False
    try:
        os.kill(chance.choice(lately).result()[1], signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def outcomes(futures: list[Future[tuple[int, int]]]) -> int:
    """Check that each future has its own result or a death; how many have died."""
    died = 0
    for number, future in enumerate(futures):
        error = future.exception(0)
        if error is None:
            assert future.result()[0] == number
        else:
            assert isinstance(error, forebay.DiedError)
            died += 1
    return died


def test_killed_workers_cost_a_call_each_and_nothing_else():
    """However many die, wherever in a call they are."""
    chance = random.Random(11)
    kills = 0
    with forebay.Executor(4) as executor:
        futures = [executor.submit(functions.nap, number) for number in range(CALLS)]
        left = set(futures)
        while left:
            done = wait(left, timeout=0.03).done
            left -= done
            ended = [future for future in futures if future in done]
            kills += kills < KILLS and kill_one_of(ended, chance)
    assert kills > 0
    assert outcomes(futures) <= kills


def test_a_killed_keeper_costs_what_its_workers_ran():
    """The rest of the queue goes on with another keeper, template and workers."""
    with forebay.Executor(2) as executor:
        _, worker = executor.submit(functions.nap, 0).result(WAIT_S)
        futures = [executor.submit(functions.nap, number) for number in range(300)]
        os.kill(parent(worker), signal.SIGKILL)
        assert not wait(futures, timeout=WAIT_S).not_done
        assert outcomes(futures) <= 2
