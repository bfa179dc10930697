"""The ledger: what it takes down from several processes, and what it finds wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay
from forebay.testing import Ledger, Verdict
from forebay.testing._verdict import Entry
from tests.executor.serving import Serving
from tests.pool.scripts import ROOT

APP = """
import os
import time

import forebay
from forebay.testing import Ledger

app = forebay.App("counted")


@app.request(lane="short")
def work(ctx: forebay.Context, key: str, fails: bool = False) -> str:
    Ledger(os.environ["LEDGER"]).begun(key, ctx)
    if fails:
        raise LookupError(key)
    return key


@app.request(lane="short")
def doubled(ctx: forebay.Context, key: str) -> str:
    for _ in range(2):
        Ledger(os.environ["LEDGER"]).begun(key, ctx)
    return "another"


@app.request()
def stuck(ctx: forebay.Context, key: str) -> None:
    Ledger(os.environ["LEDGER"]).begun(key, ctx)
    time.sleep(60)
"""

WRITES = """
import os, signal, sys
from forebay.testing import Ledger
ledger = Ledger(sys.argv[1])
for number in range(1000):
    ledger.begun(f"{sys.argv[2]}-{number}")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def test_a_clean_account_has_nothing_wrong(ledger: Ledger) -> None:
    """Counts are what was written, and a request that may run again may."""
    ledger.accepted("a", "1")
    ledger.begun("a")
    ledger.ended("a", "1", "succeeded", is_right=True)
    ledger.accepted("b", "2", max_runs=None)
    ledger.begun("b")
    ledger.begun("b")
    ledger.ended("b", "2", "failed", cause="signal")
    ledger.refused("c", "full")
    ledger.unknown("d", "gone")
    verdict = ledger.verdict()
    assert verdict.wrong == []
    assert (verdict.accepted, verdict.refused, verdict.unknown) == (2, 1, 1)
    assert (verdict.begun, verdict.begun_again) == (3, 1)
    assert verdict.ended == {"succeeded": 1, "failed": 1}
    assert verdict.causes == {"failed, signal": 1}


@pytest.mark.parametrize(
    ("entries", "wrong"),
    [
        ([Entry("accepted", "a", "1", 1)], "a: accepted as 1, and never ended"),
        (
            [Entry("unknown", "a", "", 1), Entry("begun", "a", "1"), Entry("begun", "a", "2")],
            "a: begun 2 times and may begin once: 1; 2",
        ),
        (
            [Entry("refused", "a", "full"), Entry("begun", "a")],
            "a: refused (full), and begun once",
        ),
        (
            [
                Entry("accepted", "a", "1", 1),
                Entry("accepted", "a", "2", 1),
                Entry("ended", "a", "1", "succeeded"),
            ],
            "a: accepted under several ids: 1, 2",
        ),
        (
            [
                Entry("accepted", "a", "1", 1),
                Entry("ended", "a", "1", "succeeded"),
                Entry("ended", "a", "1", "failed", "signal"),
            ],
            "a: told several ends: failed signal; succeeded",
        ),
        (
            [
                Entry("accepted", "a", "1", 1),
                Entry("ended", "a", "1", "succeeded", "", False),
            ],
            "a: succeeded with a wrong result",
        ),
    ],
)
def test_each_thing_that_must_not_be_is_named(entries: list[Entry], wrong: str) -> None:
    """Whoever reads the verdict learns which request it is, and what happened to it."""
    assert Verdict.of(entries).wrong == [wrong]
    with pytest.raises(AssertionError, match=wrong.split(":")[0]):
        Verdict.of(entries).raise_if_wrong()


def test_a_success_without_a_run_is_wrong_where_all_runs_are_counted(ledger: Ledger) -> None:
    """An answer that no function gave; where some functions count, it says nothing."""
    ledger.accepted("a", "1")
    ledger.ended("a", "1", "succeeded")
    assert ledger.verdict().wrong == []
    assert ledger.verdict(counts_runs=True).wrong == ["a: succeeded, and never begun"]


def test_an_end_that_no_fault_explains_is_wrong(ledger: Ledger) -> None:
    """A death by a signal is expected under kills, and a wrong value never is."""
    for key, cause in (("a", "signal"), ("b", "WrongValueError")):
        ledger.accepted(key, key)
        ledger.ended(key, key, "failed", cause=cause)
    verdict = ledger.verdict(may_end=lambda status, cause: cause == "signal")
    assert verdict.wrong == ["b: ended as failed, WrongValueError"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 2), st.booleans()))
)
def test_lost_and_doubled_are_counted_as_a_model_counts_them(
    told: list[tuple[str, int, int, bool]],
) -> None:
    """Whatever order the entries of several processes come in."""
    entries: list[Entry] = []
    runs: dict[str, int] = {}
    ended: set[str] = set()
    for key, begun, ends, _ in told:
        entries += [Entry("begun", key)] * begun
        entries.append(Entry("accepted", key, key, 1))
        entries += [Entry("ended", key, key, "failed", "signal")] * ends
        runs[key] = runs.get(key, 0) + begun
        ended |= {key} if ends else set()
    if told and told[0][3]:
        entries.reverse()
    verdict = Verdict.of(entries)
    assert verdict.accepted == len(runs)
    assert verdict.lost == len(runs.keys() - ended)
    assert verdict.doubled == sum(count > 1 for count in runs.values())
    assert len(verdict.wrong) == verdict.lost + verdict.doubled


def test_processes_that_are_killed_lose_no_entry(ledger: Ledger) -> None:
    """Four write at once, and each ends by SIGKILL behind its last entry."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", WRITES, ledger.path, str(number)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        )
        for number in range(4)
    ]
    assert [program.wait(60) for program in programs] == [-signal.SIGKILL] * 4
    keys = [entry.key for entry in ledger.entries()]
    assert len(keys) == len(set(keys)) == 4000


def test_what_a_client_is_told_is_taken_down(tmp_path: Path, ledger: Ledger) -> None:
    """Submissions, ends and refusals of a real server, and a function that began twice."""
    serving = Serving(tmp_path, APP)
    serving.environment["LEDGER"] = ledger.path
    with serving, forebay.Client(f"unix://{serving.socket}", start=False) as client:
        right = ledger.submit(client, "work", "a", arguments={"key": "a"})
        failed = ledger.submit(client, "work", "b", arguments={"key": "b", "fails": True})
        twice = ledger.submit(client, "doubled", "c", arguments={"key": "c"})
        assert ledger.submit(client, "work", "d", arguments={"nonsense": 1}) is None
        assert right is not None
        assert failed is not None
        assert twice is not None
        assert ledger.settle("a", right, expected="a") == "succeeded"
        assert ledger.settle("b", failed, expected="b") == "failed"
        assert ledger.settle("c", twice, expected="c") == "succeeded"
    verdict = ledger.verdict(may_end=lambda status, cause: cause.endswith("LookupError"))
    assert (verdict.accepted, verdict.refused, verdict.begun) == (3, 1, 4)
    assert [text.partition(";")[0].partition(": ")[0] for text in verdict.wrong] == ["c", "c"]
    assert verdict.doubled == 1


def test_an_end_that_did_not_come_in_time_is_no_end(tmp_path: Path, ledger: Ledger) -> None:
    """It may be asked for again; until then the request counts as lost."""
    serving = Serving(tmp_path, APP)
    serving.environment["LEDGER"] = ledger.path
    with serving, forebay.Client(f"unix://{serving.socket}", start=False) as client:
        request = ledger.submit(client, "stuck", "a", arguments={"key": "a"})
        assert request is not None
        assert ledger.settle("a", request, timeout=0.1) is None
        assert ledger.verdict().lost == 1
        request.cancel()
        assert ledger.settle("a", request, timeout=20) == "cancelled"
    assert ledger.verdict().lost == 0
