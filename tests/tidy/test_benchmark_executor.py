"""The executor's benchmarks load every system alike, check the answers, and count all CPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks import processes
from benchmarks.executor.load import Queue, flood, one_at_a_time
from benchmarks.executor.sizing import Measured, Size

BURN_S = 0.3
BURN = f"import time\nwhile time.process_time() < {BURN_S}: pass"


class Counted:
    """Answers at once, and notes how many were in flight."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.most = 0
        self.asked = 0

    def submit(self, number: int) -> int:
        self.asked += 1
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        return number

    def take(self, handle: int) -> int:
        self.in_flight -= 1
        return handle


def test_a_flood_keeps_as_many_in_flight_as_it_says():
    """Who may have more on the way is faster for nothing."""
    counted = Counted()
    queue = Queue(counted.submit, counted.take)
    figures = flood(queue, requests=100, in_flight=16, warm_up=10)
    assert (counted.most, counted.in_flight, counted.asked) == (16, 0, 110)
    assert figures["no-op/rate"] > 0


def wrong_at_five() -> Queue[int]:
    """Answers rightly but once."""
    return Queue(lambda number: number, lambda handle: handle + (handle == 5))


def test_a_wrong_answer_to_a_flood_is_no_result():
    """A system that answers anything is not fast."""
    with pytest.raises(ValueError, match="request 5 was answered with 6"):
        flood(wrong_at_five(), requests=10, in_flight=4, warm_up=0)


def test_a_wrong_answer_to_one_at_a_time_is_no_result():
    """Nor is it soon."""
    with pytest.raises(ValueError, match="call 5 was answered wrongly"):
        one_at_a_time(wrong_at_five(), requests=10, warm_up=0)


def test_the_processor_time_of_ended_children_is_counted():
    """A system that starts a process for each request does not get that for nothing."""
    before = processes.tree_cpu_ns()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert processes.tree_cpu_ns() - before >= BURN_S * 1e9 * 0.9


def test_the_table_of_sizes_is_for_a_million():
    """Disk is scaled; memory, which has limits, is not."""
    before, after = Size(1_000, 0, 5_000_000), Size(21_000_001_000, 1_000_000_000, 7_000_000)
    line = Measured("return a number", 500_000, 250.0, before, after).line()
    assert line == ("return a number", "2,000", "42.00", "2.00", "2.0")
