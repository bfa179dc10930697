"""The modules of the dashboard that draw nothing: numbers as text, lines of a log, the history."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.gateway.dashboard.history import FIGURES
from tests.gateway.browser.browsing import Opened, call

MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        ("bytes", None, "\N{EN DASH}"),
        ("bytes", 0, "0 B"),
        ("bytes", 999, "999 B"),
        ("bytes", 1_000, "1.0 kB"),
        ("bytes", 999_600, "1.0 MB"),
        ("bytes", 312_000_000, "312 MB"),
        ("bytes", 25_300_000_000, "25 GB"),
        ("seconds", None, "\N{EN DASH}"),
        ("seconds", 0.34, "340 ms"),
        ("seconds", 4.25, "4.3 s"),
        ("seconds", 59.9, "59 s"),
        ("seconds", 200, "3 min 20 s"),
        ("seconds", 7_200, "2 h"),
        ("seconds", 97_200, "1 d 3 h"),
        ("growing", 0.9, "0 s"),
        ("growing", 61, "1 min 1 s"),
        ("count", 1_234_567, "1,234,567"),
        ("signalName", 9, "SIGKILL"),
    ],
)
def test_figures_have_units(modules: Opened, function: str, value: Any, text: str) -> None:
    """A reader would take bytes for megabytes."""
    told = call(modules, "core/format.js", f"(module, given) => module.{function}(given)", value)
    assert told == text


def lines_of(it: Opened, pieces: list[list[Any]]) -> Any:
    """The lines of a log that came in pieces of a text and, maybe, its offset and its end."""
    return call(
        it,
        "data/log-lines.js",
        """({ LogLines }, pieces) => {
          const lines = new LogLines();
          for (const piece of pieces) lines.append(...piece);
          return Array.from({ length: lines.length }, (_, at) => lines.at(at));
        }""",
        pieces,
    )


def test_a_log_is_what_a_terminal_would_have_left_of_it(modules: Opened) -> None:
    """A bar that redraws its line would fill the log with thousands of copies."""
    assert lines_of(modules, [["a\nb"], ["c\n"]]) == ["a", "bc"]
    assert lines_of(modules, [["10 %\r20 %\r30 %\ndone\r\n"]]) == ["30 %", "done"]
    assert lines_of(modules, [["\x1b[31mred\x1b[0m \x1b]0;title\x07end"]]) == ["red end"]
    assert lines_of(modules, [["<b>bold</b>\n"]]) == ["<b>bold</b>"]


def test_what_is_missing_of_a_log_is_said(modules: Opened) -> None:
    """Two halves of different lines would look like one."""
    told = lines_of(modules, [["first\nhal", 0, 9], ["f\nlast\n", 1000, 1007]])
    assert told[:2] == ["first", "hal"]
    assert "991 bytes" in told[2]
    assert told[3:] == ["f", "last"]


def test_a_log_keeps_the_newest_lines(modules: Opened) -> None:
    """A request that prints for a day would take the memory of the browser."""
    kept, dropped, last = call(
        modules,
        "data/log-lines.js",
        """({ LogLines }) => {
          const lines = new LogLines();
          lines.append("line\\n".repeat(250_000) + "last\\n");
          return [lines.length, lines.dropped, lines.at(lines.length - 1)];
        }""",
    )
    assert kept <= 200_000
    assert kept + dropped == 250_001
    assert last == "last"


def test_a_search_goes_on_with_the_log(modules: Opened) -> None:
    """Each line is searched once, and a match is the same line after others were dropped."""
    told = call(
        modules,
        "data/log-search.js",
        """async ({ LogSearch }, url) => {
          const { LogLines } = await import(url);
          const lines = new LogLines();
          let looked = 0;
          const watched = {
            get length() { return lines.length; },
            get finished() { return lines.finished; },
            get dropped() { return lines.dropped; },
            at: (index) => { looked += 1; return lines.at(index); },
          };
          const search = new LogSearch(watched, "FOUND");
          const after = (text) => {
            lines.append(text);
            looked = 0;
            return [[...search.renew()], looked];
          };
          const told = ["found\\nother\\nfou", "nd", "\\nfou", "l\\n"].map(after);
          const [many] = after("line\\n".repeat(200_000) + "found\\n");
          return [told, many, lines.at(many.at(-1) - lines.dropped)];
        }""",
        f"{modules.serving.url}/ui/data/log-lines.js",
    )
    assert told == [
        [[[0], 3], [[0, 2], 1], [[0, 2], 2], [[0, 2], 1]],
        [200_004],
        "found",
    ]


def part_of_history(first: int, values: list[int | None], pid: str = "7") -> dict[str, Any]:
    """What the gateway tells of its history, with one worker."""
    figures = dict.fromkeys(FIGURES, values)
    return {
        "every_s": 5,
        "first": first,
        "next": first + len(values),
        "until": "1970-01-01T01:00:00.000Z",
        **figures,
        "workers": {pid: values},
    }


@pytest.mark.parametrize(
    ("parts", "first", "values"),
    [
        ([part_of_history(10, [1, 2]), part_of_history(12, [3])], 10, [1, 2, 3]),
        ([part_of_history(10, [1, 2]), part_of_history(12, [])], 10, [1, 2]),
        ([part_of_history(10, [1]), part_of_history(13, [4])], 10, [1, None, None, 4]),
        ([part_of_history(10, [1, 2]), part_of_history(5, [9])], 5, [9]),
        ([part_of_history(10, [1]), part_of_history(2000, [9])], 2000, [9]),
    ],
)
def test_a_history_is_put_together(
    modules: Opened, parts: list[dict[str, Any]], first: int, values: list[int | None]
) -> None:
    """A chart would show a minute twice, or join what is an hour apart."""
    told = call(
        modules,
        "data/history.js",
        """({ History }, parts) => {
          const history = new History();
          return parts.map((part) => history.take(part)).at(-1);
        }""",
        parts,
    )
    assert told["first"] == first
    assert told["ready"] == values
    assert told["workers"]["7"] == values


def test_the_times_of_a_history_are_of_its_newest_sample(modules: Opened) -> None:
    """Numbers of samples go on steadily: a clock that was set has them hours beside it."""
    parts = [
        part_of_history(100, [1]) | {"until": "1970-01-01T00:00:50.000Z"},
        part_of_history(102, [3]) | {"until": "1970-01-01T01:00:00.000Z"},
    ]
    told = call(
        modules,
        "data/history.js",
        """({ History, timesOf }, parts) => {
          const history = new History();
          return parts.map((part) => timesOf(history.take(part))).at(-1);
        }""",
        parts,
    )
    assert told == [3590, 3595, 3600]


def test_a_history_that_begins_before_is_asked_for_whole(modules: Opened) -> None:
    """A gateway that was started anew with its clock set back answers with nothing at first."""
    told = call(
        modules,
        "data/history.js",
        """({ History }, parts) => {
          const history = new History();
          return parts.map((part) => [history.take(part).ready, history.next ?? null]);
        }""",
        [part_of_history(10, [1, 2]), part_of_history(5, []), part_of_history(3, [7, 8])],
    )
    assert told == [[[1, 2], 12], [[], None], [[7, 8], 5]]


def test_what_waits_is_the_same_in_the_chart_and_above_it(modules: Opened) -> None:
    """Also a request that waits for a time or another request, and not for a worker."""
    part = part_of_history(1, [5, None, 7]) | {"parked": [2, None, 0]}
    assert call(modules, "data/history.js", "({ waitingOf }, part) => waitingOf(part)", part) == [
        7,
        None,
        7,
    ]


def test_a_history_has_no_more_than_an_hour(modules: Opened) -> None:
    """A page that is open all day would grow."""
    told = call(
        modules,
        "data/history.js",
        """({ History }, [begin, next]) => {
          const history = new History();
          history.take(begin);
          return history.take(next);
        }""",
        [part_of_history(0, [1] * 720), part_of_history(720, [2] * 5)],
    )
    assert told["first"] == 5
    assert told["ready"] == [1] * 715 + [2] * 5


def shown(**changed: Any) -> dict[str, Any]:
    """A request as `show` tells it, accepted at the beginning of 1970."""
    return {
        "status": "queued",
        "attempts": 0,
        "accepted_at": moment(0),
        "started_at": None,
        "ended_at": None,
        "failure": None,
        "reason": None,
        "runs": [],
    } | changed


def moment(minutes: int) -> str:
    """So long after the beginning of 1970."""
    return f"1970-01-01T00:{minutes:02}:00.000Z"


DIED = {"kind": "died", "cause": "signal", "signal": 9}
RUN = {"attempt": 1, "started_at": moment(1), "ended_at": moment(2), "failure": DIED}


@pytest.mark.parametrize(
    ("request_", "segments"),
    [
        (shown(reason="waiting: for a worker"), [("wait", 0, 10, "for a worker")]),
        (
            shown(status="running", attempts=1, started_at=moment(3)),
            [("wait", 0, 3, "for its turn"), ("run", 3, 10, "running")],
        ),
        (
            shown(status="queued", attempts=1, runs=[RUN], reason="waiting: its time is in 5 s"),
            [
                ("wait", 0, 1, "for its turn"),
                ("run", 1, 2, "died: SIGKILL"),
                ("pause", 2, 10, "its time is in 5 s"),
            ],
        ),
        (
            shown(
                status="succeeded",
                attempts=2,
                runs=[RUN],
                started_at=moment(4),
                ended_at=moment(5),
            ),
            [
                ("wait", 0, 1, "for its turn"),
                ("run", 1, 2, "died: SIGKILL"),
                ("pause", 2, 4, "until the next run"),
                ("run", 4, 5, "succeeded"),
            ],
        ),
        (shown(status="cancelled", ended_at=moment(2)), [("wait", 0, 2, "cancelled")]),
    ],
)
def test_a_life_is_waits_runs_and_pauses(
    modules: Opened, request_: dict[str, Any], segments: list[tuple[str, int, int, str]]
) -> None:
    """The timeline would show a wait where it ran."""
    told = call(
        modules,
        "data/segments.js",
        "({ segmentsOf }, [shown, now]) => segmentsOf(shown, now)",
        [request_, 10 * MINUTE_MS],
    )
    found = [(it["kind"], it["from"] / MINUTE_MS, it["to"] / MINUTE_MS, it["note"]) for it in told]
    assert found == segments
