"""The modules of the dashboard that read: answers of the gateway, and the list of requests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.browser.browsing import Opened, call


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
/** Of this test's lists alone: those of others may still read. */
const name = `answered ${Math.random()}`;
/** Answer what a list of this name reads, by a function of its query; others are asked as ever. */
const answered = async (answer, work) => {
  const real = window.fetch;
  const asked = [];
  window.fetch = async (url, options) => {
    const query = new URL(url).searchParams;
    if (query.get("name") !== name) return real(url, options);
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
  Response.json({ requests: ids.map((id) => ({ id, name, status: "queued" })), next });
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
            const list = new RequestList({ name });
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
            const list = new RequestList({ name });
            list.renew();
            list.reach(true);
            await until(() => list.length === 2);
            return list.length;
          },
        )""",
    )
    assert told == 2


def test_what_is_known_stays_where_the_newest_page_does_not_reach_it(modules: Opened) -> None:
    """Rows that were found far below would be gone after each event of another request."""
    told = listed(
        modules,
        """({ RequestList }) => answered(
          (query, turn) => page(turn === 1 ? ["000000000009"] : [], "000000000008"),
          async (asked) => {
            const list = new RequestList({ name });
            await list.renew();
            await list.renew();
            return [asked.length, list.length];
          },
        )""",
    )
    assert told == [21, 1]


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
            await new RequestList({ name, since: "1h" }).renew();
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
            const alone = new RequestList({ name });
            await alone.renewAll();
            const gaveUp = [asked.length, alone.state, alone.hasMore];
            const end = new RequestList({ name }).follow(feed);
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
            const caught = await read("v1/requests", {{ name }}).catch((it) => it);
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
            const list = new RequestList({ name });
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
