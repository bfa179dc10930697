"""The plan of an experiment, which its seed decides."""

from __future__ import annotations

import pytest

import forebay
from forebay.testing.experiment.schedule import FAULTS, chosen_faults, draw


def test_a_seed_draws_the_same_plan_again() -> None:
    """A run that failed can be run again, in another process and on another machine."""
    plan = draw(7, 60.0, FAULTS.values())
    assert plan == draw(7, 60.0, FAULTS.values())
    assert plan != draw(8, 60.0, FAULTS.values())
    first = plan[0]
    assert (round(first.at, 3), first.what) == FIRST_OF_7


FIRST_OF_7 = (0.268, "kill-gateway")


def test_a_fault_that_is_left_out_moves_no_other() -> None:
    """A machine that allows fewer faults, or a narrower search, meets the others at their times."""
    alone = chosen_faults(["kill-server"])
    all_ = draw(7, 60.0, FAULTS.values())
    assert draw(7, 60.0, alone) == [planned for planned in all_ if planned.what == "kill-server"]


def test_each_fault_comes_at_least_once_and_never_twice_at_a_time() -> None:
    """A run of seconds shows every fault, and none is begun before it was undone."""
    for seed in range(50):
        plan = draw(seed, 3.0, FAULTS.values())
        assert {planned.what for planned in plan} == set(FAULTS)
        for what in FAULTS:
            of_one = [planned for planned in plan if planned.what == what]
            ends = [planned.at + planned.lasts for planned in of_one]
            assert all(end <= planned.at for end, planned in zip(ends, of_one[1:], strict=False))


def test_faults_come_as_often_as_they_say() -> None:
    """Rates are per minute; what lasts is added to the time between two."""
    plan = draw(1, 6_000.0, chosen_faults(["kill-worker"]))
    assert 1_800 < len(plan) < 2_200


def test_a_fault_that_there_is_not_is_refused_with_their_names() -> None:
    """Nobody runs an experiment without the fault that was misspelt."""
    with pytest.raises(forebay.ConfigError, match=r"'kill-srever'.*kill-server"):
        chosen_faults(["kill-srever"])
