"""The modules of the dashboard that draw nothing: numbers as text, lines of a log, the history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forebay.gateway.dashboard.history import FIGURES
from tests.gateway.browser.browsing import Opened, expect, opened
from tests.gateway.http.http_serving import HttpServing

MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def modules(chromium: Any, serving: HttpServing) -> Iterator[Opened]:
    """A page whose modules are called."""
    with opened(chromium, serving) as it:
        expect(it.part("view-overview")).to_be_visible()
        yield it


def call(it: Opened, module: str, body: str, given: Any = None) -> Any:
    """What a function of JavaScript gives, whose arguments are a module and what is given."""
    return it.page.evaluate(
        f"async (given) => {{ const module = await import('{it.serving.url}/ui/{module}');"
        f" return ({body})(module, given); }}",
        given,
    )


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


@pytest.mark.parametrize(
    ("filter_", "events", "status"),
    [
        ({}, [{"event": "accepted", "lane": "short", "submitter": "ann"}], "queued"),
        (
            {"status": "running"},
            [{"event": "started", "attempt": 1, "queued_ms": 5}],
            "running",
        ),
        (
            {"status": "running"},
            [
                {"event": "started", "attempt": 1, "queued_ms": None},
                {
                    "event": "ended",
                    "status": "failed",
                    "attempt": 1,
                    "run_ms": 5,
                    "cause": "raised",
                },
            ],
            None,
        ),
        ({"name": "other"}, [{"event": "started", "attempt": 1, "queued_ms": 5}], None),
        ({"submitter": "ann"}, [{"event": "started", "attempt": 1, "queued_ms": 5}], None),
        ({"lane": "long"}, [{"event": "progress", "done": 1, "total": 2}], None),
        ({"since": "1h"}, [{"event": "started", "attempt": 1, "queued_ms": 5}], None),
        (
            {"submitter": "ann", "since": "1h"},
            [{"event": "accepted", "lane": "short", "submitter": "ann"}],
            "queued",
        ),
    ],
)
def test_events_change_the_list(
    modules: Opened, filter_: dict[str, str], events: list[dict[str, Any]], status: str | None
) -> None:
    """The list would show what was, or what its filter leaves out."""
    told = call(
        modules,
        "data/request-list.js",
        """async ({ RequestList }, [filter, events]) => {
          const list = new RequestList(filter);
          list.apply(events);
          return list.get("0000000000zz")?.status ?? null;
        }""",
        [filter_, [{"id": "0000000000zz", "name": "tune", "at_ms": 1, **it} for it in events]],
    )
    assert told == status


def test_newer_rows_are_held_back_and_let_in(modules: Opened) -> None:
    """The row under the pointer would be another one at the moment of the click."""
    told = call(
        modules,
        "data/request-list.js",
        """({ RequestList }) => {
          const list = new RequestList({});
          const accept = (id) => list.apply([{ event: "accepted", id, name: "tune", at_ms: 1 }]);
          accept("000000000001");
          list.hold(true);
          accept("000000000002");
          accept("000000000003");
          const before = [list.length, list.held];
          list.hold(false);
          return [...before, list.length, list.held, list.at(0).id];
        }""",
    )
    assert told == [1, 2, 3, 0, "000000000003"]


ANSWERED = """
/** Answer what a list of this name reads, by a function of its query; others are asked as ever. */
const answered = async (answer, work) => {
  const real = window.fetch;
  const asked = [];
  window.fetch = async (url, options) => {
    const query = new URL(url).searchParams;
    if (query.get("name") !== "answered") return real(url, options);
    asked.push(Object.fromEntries(query));
    return answer(asked.at(-1), asked.length);
  };
  try {
    return await work(asked);
  } finally {
    window.fetch = real;
  }
};
const page = (ids, next) =>
  Response.json({ requests: ids.map((id) => ({ id, name: "answered", status: "queued" })), next });
const soon = (ms = 50) => new Promise((resolve) => setTimeout(resolve, ms));
const until = async (holds) => {
  for (let turn = 0; turn < 600 && !holds(); turn += 1) await soon(100);
};
"""
"""Functions for a list whose answers the test gives."""


def listed(it: Opened, body: str) -> Any:
    """What a function of the module of the list gives, which may use `ANSWERED`."""
    function = f"async (module) => {{ {ANSWERED} return ({body})(module); }}"
    return call(it, "data/request-list.js", function)


def test_a_list_at_its_end_reads_on_only_while_that_gives_rows(modules: Opened) -> None:
    """With the server away, or a rare filter, the page would ask without a pause."""
    told = listed(
        modules,
        """({ RequestList }) => answered(
          ({ cursor }) => {
            if (!cursor) return page(["000000000009"], "000000000009");
            if (cursor === "000000000009") return page(["000000000008"], "000000000008");
            throw new TypeError("nobody answers");
          },
          async (asked) => {
            const list = new RequestList({ name: "answered" });
            await list.renew();
            const tries = [];
            const reach = async (isAtEnd) => {
              list.reach(isAtEnd);
              await soon();
              tries.push(asked.length);
            };
            for (const isAtEnd of [true, true, true, true, false, true]) await reach(isAtEnd);
            return [tries, list.length, list.isSpent];
          },
        )""",
    )
    assert told == [[2, 3, 3, 3, 3, 4], 2, True]


def test_a_list_reads_on_behind_another_reading(modules: Opened) -> None:
    """Nothing else says once more that the reader is at the end."""
    told = listed(
        modules,
        """({ RequestList }) => answered(
          ({ cursor }) => (cursor ? page(["000000000008"], null) : page(["000000000009"], "9")),
          async () => {
            const list = new RequestList({ name: "answered" });
            list.renew();
            list.reach(true);
            await until(() => list.length === 2);
            return list.length;
          },
        )""",
    )
    assert told == 2


def test_a_span_of_time_is_by_the_clock_of_the_server(modules: Opened) -> None:
    """With a browser whose clock is wrong the list would have none, or too many."""
    late_ms = listed(
        modules,
        """({ RequestList }) => answered(() => page([], null), async (asked) => {
          const real = Date.now;
          Date.now = () => real() + 7_200_000;
          const clock = await import(new URL("core/clock.js", document.baseURI));
          clock.setServerTime(new Date(real()).toISOString());
          try {
            await new RequestList({ name: "answered", since: "1h" }).renew();
          } finally {
            Date.now = real;
            clock.setServerTime(new Date().toISOString());
          }
          return Date.now() - Date.parse(asked[0].since);
        })""",
    )
    assert 3_599_000 < late_ms < 3_660_000


def test_a_list_that_finds_nothing_gives_up_and_ends_with_its_filter(modules: Opened) -> None:
    """It would read the whole store, and go on after the reader chose another filter."""
    told = listed(
        modules,
        """({ RequestList }) => answered(
          async (query, turn) => {
            await soon(turn < 22 ? 1 : 500);
            return page([], String(turn).padStart(12, "0"));
          },
          async (asked) => {
            const feed = { watch: () => () => {} };
            const alone = new RequestList({ name: "answered" });
            await alone.renewAll();
            const gaveUp = [asked.length, alone.state, alone.hasMore];
            const end = new RequestList({ name: "answered" }).follow(feed);
            await until(() => asked.length >= 22);
            end();
            const before = asked.length;
            await soon(700);
            return [gaveUp, before < 40, asked.length === before];
          },
        )""",
    )
    assert told == [[20, "ready", True], True, True]


@pytest.mark.parametrize(
    ("answer", "lost"),
    [
        ("new Response('<p>Sign in</p>')", True),
        ("new Response('{\"requests\": [')", True),
        ("new Response('away', { status: 502 })", True),
        ("new Response('away', { status: 503 })", True),
        ("new Response('late', { status: 504 })", True),
        ("Response.json({ code: 'server' }, { status: 503 })", True),
        ("Response.json({ code: 'draining' }, { status: 503 })", False),
        ("new Response('wrong', { status: 500 })", False),
    ],
)
def test_what_is_no_answer_of_the_gateway_is_a_lost_connection(
    modules: Opened, answer: str, lost: bool
) -> None:
    """An error of another kind would end the reading of the figures for good."""
    told = call(
        modules,
        "core/api.js",
        f"""async ({{ read, Problem }}) => {{
          {ANSWERED}
          return answered(() => {answer}, async () => {{
            const caught = await read("v1/requests", {{ name: "answered" }}).catch((it) => it);
            return [caught instanceof Problem, caught.isLost];
          }});
        }}""",
    )
    assert told == [True, lost]


def test_a_list_that_missed_something_is_read_again_with_a_pause(modules: Opened) -> None:
    """And again where that could not be read: nothing else would tell it."""
    told = listed(
        modules,
        """async ({ RequestList }) => {
          const times = [];
          const answer = (query, turn) => {
            times.push(performance.now());
            if (turn === 2) throw new TypeError("nobody answers");
            return page(["000000000002", "000000000001"].slice(turn === 3 ? 0 : 1), null);
          };
          return answered(answer, async (asked) => {
            let tell;
            const feed = { watch: (told) => { tell = told; return () => {}; } };
            const list = new RequestList({ name: "answered" });
            const end = list.follow(feed);
            await until(() => list.length === 1);
            for (let gap = 0; gap < 5; gap += 1) tell([], true);
            await until(() => list.length === 2);
            end();
            const pauses = times.slice(1).map((time, at) => time - times[at]);
            return [asked.length, Math.min(...pauses) > 2500];
          });
        }""",
    )
    assert told == [3, True]
