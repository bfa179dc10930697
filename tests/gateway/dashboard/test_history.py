"""The last hour of a server in rings: against a list that keeps everything, and at its limits."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.gateway.dashboard.history import FIGURES, SAMPLES, WORKERS_MAX, History

FIRST = 1000


def figures(ended: int = 0, **more: Any) -> dict[str, Any]:
    """What a server says of itself."""
    lanes = {"short": {"ready": 1, "running": 2}, "long": {"ready": 3, "running": 4}}
    counts = {"parked": 8, "succeeded": ended, "failed": 0, "cancelled": 0, "dead": 0}
    return {"lanes": lanes, "resident_bytes": 7, "memory_limit_bytes": None, **counts, **more}


def worker(pid: int | None, private_bytes: int = 5) -> dict[str, Any]:
    return {"pid": pid, "private_bytes": private_bytes}


def test_a_history_that_has_nothing_says_so() -> None:
    """The page shows that nothing was measured yet, and no line at zero."""
    told = History(FIRST).told(None)
    assert (told["first"], told["next"], told["until"]) == (FIRST, FIRST, None)
    assert [told[name] for name in FIGURES] == [[]] * len(FIGURES)
    assert told["workers"] == {}


def test_a_sample_has_sums_of_all_lanes_and_what_has_ended_since_the_one_before() -> None:
    """Ends are counted by the server since its start, which no chart shows."""
    history = History(FIRST)
    history.add(FIRST, "a", figures(10, failed=1), [worker(1)])
    history.add(FIRST + 1, "b", figures(14, failed=2, dead=1), [worker(1, 6), worker(None)])
    told = history.told(None)
    assert told["ready"] == [4, 4]
    assert told["parked"] == [8, 8]
    assert told["running"] == [6, 6]
    assert told["finished"] == [None, 6]
    assert told["failed"] == [None, 2]
    assert told["memory_limit_bytes"] == [None, None]
    assert told["workers"] == {"1": [5, 6]}
    assert told["until"] == "b"


def test_a_server_that_begins_anew_has_not_ended_less_than_nothing() -> None:
    """Nor does what has ended during a gap belong to one sample."""
    history = History(FIRST)
    for number, ended in ((0, 100), (1, 3), (2, 5), (5, 50), (6, 51)):
        history.add(FIRST + number, "", figures(ended), [])
    assert history.told(None)["finished"] == [None, None, 2, None, None, None, 1]
    assert history.told(None)["ready"] == [4, 4, 4, None, None, 4, 4]


def test_a_reader_gets_what_it_has_not() -> None:
    """A page that looks each two seconds is sent an hour once."""
    history = History(FIRST)
    for number in range(5):
        history.add(FIRST + number, "", figures(resident_bytes=number), [])
    told = history.told(FIRST + 3)
    assert (told["first"], told["next"], told["resident_bytes"]) == (FIRST + 3, FIRST + 5, [3, 4])
    assert history.told(FIRST + 5)["resident_bytes"] == []
    later = history.told(FIRST + 99)  # of a gateway that ran longer than this one
    assert (later["first"], later["resident_bytes"]) == (FIRST + 5, [])
    assert history.told(0)["first"] == FIRST


def test_a_sample_that_comes_twice_or_late_changes_nothing() -> None:
    """The clock of the machine is no matter of the history."""
    history = History(FIRST)
    history.add(FIRST + 1, "", figures(), [])
    history.add(FIRST + 1, "", figures(resident_bytes=9), [])
    history.add(FIRST, "", figures(resident_bytes=9), [])
    assert history.told(None)["resident_bytes"] == [None, 7]


def test_workers_have_a_limit() -> None:
    """An application whose workers live for a second each does not fill the gateway's memory."""
    history = History(FIRST)
    history.add(FIRST, "", figures(), [worker(pid) for pid in range(WORKERS_MAX + 9)])
    assert len(history.told(None)["workers"]) == WORKERS_MAX
    for number in range(1, 200):
        history.add(FIRST + number, "", figures(), [worker(1000 + number)])
        told = history.told(None)["workers"]
        assert len(told) <= WORKERS_MAX
        assert told[str(1000 + number)][-1] == 5
    history.add(FIRST + 200 + SAMPLES, "", figures(), [])
    assert history.told(None)["workers"] == {}


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, SAMPLES + 5),
            st.dictionaries(st.integers(1, 5), st.integers(0, 2**40), max_size=5),
        ),
        max_size=12,
    ),
    since=st.none() | st.integers(0, 20 * SAMPLES),
)
def test_the_rings_tell_what_a_list_would(
    steps: list[tuple[int, dict[int, int]]], since: int | None
) -> None:
    """However long the gaps are, and however often a ring has gone round."""
    history, kept, number = History(FIRST), {}, FIRST - 1
    for pause, workers in steps:
        number += 1 + pause
        history.add(
            number, "", figures(resident_bytes=number), [worker(*it) for it in workers.items()]
        )
        kept[number] = workers
    first = max(FIRST, number + 1 - SAMPLES)
    if since is not None:
        first = min(max(first, since), number + 1)
    told = history.told(since)
    wanted = range(first, number + 1)
    assert (told["first"], told["next"]) == (first, number + 1)
    assert told["resident_bytes"] == [one if one in kept else None for one in wanted]
    pids = {pid for one in wanted for pid in kept.get(one, ())}
    assert told["workers"] == {
        str(pid): [kept.get(one, {}).get(pid) for one in wanted] for pid in pids
    }
