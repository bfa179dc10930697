"""A fresh process for each trial: what the demo compares warm services with."""

from __future__ import annotations

from examples.gcc_tuning.backends import FreshBackend, LocalBackend
from examples.gcc_tuning.results import ResultCache
from tests.gcc_tuning.conftest import PROGRAMS


def test_a_fresh_process_measures_what_this_one_measures() -> None:
    """A comparison of other results would be none."""
    local = LocalBackend(PROGRAMS, ResultCache())
    try:
        for flags in (["-Os"], ["-Os", "-fgcse"]):
            assert FreshBackend(PROGRAMS).compile("lz", flags) == local.compile("lz", flags)
    finally:
        local.close()


def test_a_crash_costs_one_trial() -> None:
    """That is the isolation that it is compared for."""
    crashing = FreshBackend(PROGRAMS, command=("sh", "-c", "kill -9 $$"))
    assert crashing.compile("lz", ["-Os"]) is None


def test_a_trial_that_never_ends_is_given_up() -> None:
    """A search must not wait for ever for one process."""
    endless = FreshBackend(PROGRAMS, command=("sh", "-c", "exec sleep 60"), timeout=0.2)
    assert endless.compile("lz", ["-Os"]) is None
