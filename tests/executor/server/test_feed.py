"""The server's events, as its readers get them: numbered, filtered, and no missing one untold."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import BrokenError, ConfigError, Error, LimitError
from forebay.executor.client.async_client import AsyncClient
from forebay.executor.client.client import Client
from forebay.executor.client.follow import item_of
from tests.executor.server.dispatching import calling, dispatching
from tests.executor.serving import Serving, until
from tests.loops import Run, run

__all__ = ["run"]

APP = '''
import os
import time
from pathlib import Path

import forebay

app = forebay.App("feed")


class Counter(forebay.Service):
    """Counts."""

    def next(self) -> int:
        return os.getpid()


app.service(Counter, max_size=1)


@app.request()
def lease(ctx: forebay.Context) -> int:
    """Which process a service is."""
    with ctx.acquire(Counter) as counter:
        return counter.next()


@app.request(lane="short")
def add(a: int = 1, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@app.request(lane="short", retries=1, backoff="10ms")
def fail() -> None:
    """Raise, each time."""
    raise ValueError("no")


@app.request(lane="short")
def other() -> None:
    """Nothing."""


@app.request()
def flood(ctx: forebay.Context, steps: int, gate: str = "") -> None:
    """Report each step, then the last one until there is a file: a full socket takes no report."""
    for step in range(steps):
        ctx.tell(step + 1, steps, "", "step")
    while gate and not Path(gate).exists():
        ctx.tell(steps, steps, "", "step")
        time.sleep(0.01)
'''


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server with the application above."""
    with Serving(tmp_path, APP) as made:
        yield made


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    """A client of it."""
    with Client(f"unix://{serving.socket}", start=False, timeout=20.0) as made:
        yield made


def taken(
    events: Generator[dict[str, Any], None, None], last: str, count: int = 1
) -> list[dict[str, Any]]:
    """Events up to the so many-th of a kind; the reading ends there."""
    got = []
    with contextlib.closing(events):
        for event in events:
            got.append(event)
            count -= event["event"] == last
            if not count:
                return got
    raise AssertionError(f"the stream ended before {last!r}: {got}")


def test_a_request_is_told_from_its_acceptance_to_its_end(client: Client) -> None:
    """The events of one request come in the order in which they happened."""
    events = client.follow()
    request = client.submit("fail")
    got = [one for one in taken(events, "ended") if one.get("id") == request.id]
    assert [one["event"] for one in got] == ["accepted", "started", "queued", "started", "ended"]
    accepted, started, queued, again, ended = got
    assert (accepted["name"], accepted["lane"]) == ("fail", "short")
    assert (started["attempt"], queued["attempt"], again["attempt"]) == (1, 1, 2)
    assert queued["reason"] == ended["cause"] == "raised"
    assert (ended["status"], ended["attempt"]) == ("failed", 2)
    assert 0 <= ended["queued_ms"] <= ended["at_ms"] - accepted["at_ms"]


def test_filters_leave_out_what_is_not_wanted(client: Client) -> None:
    """The server sends no event that its reader would throw away."""
    by_name = client.follow(names=["other", "nobody"])
    by_kind = client.follow(events=["ended", "refused"])
    first = client.submit("add")
    assert first.result(timeout=20) == 3
    by_id = client.follow(ids=first.id, cursor=0)
    with pytest.raises(ConfigError):
        client.submit("ad")
    second = client.submit("other")
    assert second.result(timeout=20) is None
    assert {one["name"] for one in taken(by_name, "ended")} == {"other"}
    kinds = [(one["event"], one["name"]) for one in taken(by_kind, "ended", 2)]
    assert kinds == [("ended", "add"), ("refused", "ad"), ("ended", "other")]
    assert {one["id"] for one in taken(by_id, "ended")} == {first.id}
    nobody = client.follow(submitter="nobody", cursor=0)
    third = client.submit("add")
    assert third.result(timeout=20) == 3
    nobody.close()


def test_what_a_reader_asks_for_is_checked(client: Client) -> None:
    """The refusal names what is wrong."""
    newest = taken_newest(client)
    for wrong, error, text in [
        ({"cursor": newest + 10**9}, ConfigError, str(newest + 10**9)),
        ({"cursor": -1}, ConfigError, "unsigned|number"),
        ({"events": ["end"]}, ConfigError, '"end"'),
        ({"names": []}, ConfigError, "names"),
        ({"ids": [f"{one:012d}" for one in range(65)]}, LimitError, "filter_ids_max"),
    ]:
        with pytest.raises(error, match=text):
            next(client.follow(**wrong))  # type: ignore[arg-type]


def taken_newest(client: Client) -> int:
    """The number of an event that has happened."""
    events = client.follow(events="ended")
    assert client.submit("add").result(timeout=20) == 3
    number: int = taken(events, "ended")[-1]["seq"]
    return number


def test_a_reader_that_comes_back_has_missed_nothing(client: Client) -> None:
    """Numbers follow each other, whatever happens between two readings."""
    cursor = first = taken_newest(client)
    requests = 200
    worker = threading.Thread(target=_run_many, args=(client, requests))
    worker.start()
    numbers: list[int] = []
    by_request: dict[str, list[str]] = defaultdict(list)
    ended = 0
    while ended < requests:
        events = client.follow(cursor=cursor)
        for event in itertools.islice(events, 1 + cursor % 60):
            assert event["event"] != "gap"
            cursor = event["seq"]
            numbers.append(cursor)
            if "id" in event:
                by_request[event["id"]].append(event["event"])
                ended += event["event"] == "ended"
            if ended == requests:
                break  # nothing more has to come
        events.close()
    worker.join()
    assert numbers == list(range(first + 1, first + 1 + len(numbers)))
    assert set(map(tuple, by_request.values())) == {("accepted", "started", "ended")}


def _run_many(client: Client, count: int) -> None:
    with contextlib.suppress(Error):
        for request in client.submit_many("add", [{"a": one} for one in range(count)]):
            request.exception(timeout=60)


def test_a_reader_that_reads_nothing_is_told_a_gap_and_holds_nobody(tmp_path: Path) -> None:
    """Beyond its credit it costs its number, and what it has missed is named."""
    flood = 100_000
    with dispatching(tmp_path) as (dispatcher, _), calling(tmp_path) as caller:
        with caller.channel.stream("feed", ({}, None), credit=1) as stuck:
            begin, *_ = next(stuck)
            # Its credit is for one item.
            for _ in range(flood):
                dispatcher.note_event("service_leased", service="s", pid=1)
            assert caller.run("add", {"first": 1, "second": 2}) == ("succeeded", 3)
            events = itertools.chain.from_iterable(stuck)
            before = list(itertools.takewhile(lambda one: one["event"] != "gap", events))
            after = next(events)
            numbers = [one["seq"] for one in before]
            assert numbers == list(range(begin["seq"] + 1, begin["seq"] + 1 + len(numbers)))
            figures = {name: value for name, _, value in dispatcher.metrics()["gauges"]}
            assert figures["forebay_feed_events"] == 65_536
        counters = {name: value for name, _, value in dispatcher.metrics()["counters"]}
    assert counters["forebay_feed_gaps_total"] == 1
    assert len(before) < flood
    assert after["seq"] > begin["seq"] + len(before) + 1


def test_a_flood_of_progress_leaves_the_newest_and_is_no_gap(
    client: Client, tmp_path: Path
) -> None:
    """Who looks late sees how far it is; who looks for ends sees each of them."""
    gate = tmp_path / "gate"
    ends = client.follow(events=["ended", "accepted"])
    request = client.submit("flood", steps=5_000, gate=str(gate))
    for progress in request.progress():
        if progress.done == 5_000:
            break
    first = next(request.progress())
    assert first.done == 5_000
    gate.touch()
    assert request.result(timeout=20) is None
    late = client.follow(ids=request.id, cursor=0)
    told = [one for one in taken(late, "ended") if one["event"] == "progress"]
    assert [one["done"] for one in told] == [5_000]
    assert [one["event"] for one in taken(ends, "ended")] == ["accepted", "ended"]


def test_a_follower_of_one_request_comes_back_by_the_number_of_its_last_event(
    client: Client, tmp_path: Path
) -> None:
    """With the kinds that it had before, what it missed and nothing twice, up to the end."""
    gate = tmp_path / "gate"
    request = client.submit("flood", steps=1, gate=str(gate))
    with contextlib.closing(client.follow(ids=request.id, events="progress", cursor=0)) as told:
        next(told)
    with client._channel().stream("events", (request.id,)) as stream:
        first = list(itertools.islice(stream, 2))
    assert [one["event"] for one in first] == ["status", "progress"]
    cursor = first[-1]["seq"]
    gate.touch()
    assert request.result(timeout=20) is None

    def rest(cursor: int) -> list[dict[str, Any]]:
        with client._channel().stream("events", (request.id, cursor)) as stream:
            return list(stream)

    *progress, end = rest(cursor)
    assert {one["event"] for one in progress} <= {"progress"}
    assert (end["event"], end["status"]) == ("status", "succeeded")
    numbers = [cursor, *(one["seq"] for one in progress), end["seq"]]
    assert numbers == sorted(set(numbers))
    assert rest(end["seq"]) == []
    (stands,) = request.events()
    assert stands["seq"] >= end["seq"]
    assert rest(stands["seq"]) == []
    with pytest.raises(ConfigError, match="cursor"):
        [item_of(one, "") for one in rest(end["seq"] + 10**9)]


def test_a_follower_of_one_request_is_told_what_a_killed_server_took_along(
    serving: Serving, tmp_path: Path
) -> None:
    """A gap, how the request stands, and its end, whether that came before or behind the kill."""
    gate = tmp_path / "gate"
    with Client(f"unix://{serving.socket}", start=False, timeout=60.0) as client:
        ended = client.submit("add")
        cursor = list(ended.events())[-1]["seq"]
        running = client.submit("flood", steps=1, gate=str(gate)).events()
        before = next(one["seq"] for one in running if one["event"] == "progress")
        serving.kill()
        serving.start()
        gap, *_, end = (one for one in running if one["event"] != "progress")
        assert (gap["event"], end["event"], end["status"]) == ("gap", "status", "failed")
        assert before < gap["first"] <= gap["last"] <= end["seq"]
        with client._channel().stream("events", (ended.id, cursor)) as stream:
            gap, end = stream
        assert (gap["event"], gap["first"]) == ("gap", cursor + 1)
        assert (end["status"], end["seq"]) == ("succeeded", gap["last"])


def test_a_loop_reads_too(run: Run, serving: Serving) -> None:
    """With the same arguments, and the same events."""

    async def main() -> None:
        async with AsyncClient(f"unix://{serving.socket}", start=False) as client:
            request = await client.submit("add")
            await request.result()
            async for event in client.follow(ids=request.id, cursor=0):
                assert event["id"] == request.id
                if event["event"] == "ended":
                    break
            with pytest.raises(ConfigError, match='"end"'):
                async for _ in client.follow(events="end"):
                    pass

    run(main())


def test_a_reader_ends_with_its_client(serving: Serving) -> None:
    """A server that does not come back is an error, in the client's time."""
    with Client(f"unix://{serving.socket}", start=False, timeout=1.0) as client:
        events = client.follow()
        serving.kill()
        with pytest.raises(BrokenError):
            list(events)
    serving.start()


def test_metrics_count_what_has_happened(client: Client) -> None:
    """By name and outcome, with the times of requests, and how the lanes stand."""
    for _ in range(3):
        assert client.submit("add").result(timeout=20) == 3
    client.submit("fail").exception(timeout=20)
    with pytest.raises(ConfigError):
        client.submit("ad")
    metrics = client.ask("metrics")
    numbers = {
        (name, *labels.values()): value
        for kind in ("counters", "gauges")
        for name, labels, value in metrics[kind]
    }
    assert numbers["forebay_requests_submitted_total", "add"] == 3
    assert numbers["forebay_requests_finished_total", "add", "succeeded"] == 3
    assert numbers["forebay_requests_finished_total", "fail", "failed"] == 1
    assert numbers["forebay_requests_refused_total", "unknown"] == 1
    assert numbers["forebay_requests_queued", "short"] == 0
    assert numbers["forebay_requests_waiting", "time"] == 0
    assert numbers["forebay_requests_oldest_queued_seconds", "short"] == 0
    assert numbers["forebay_memory_resident_bytes",] > 0
    assert numbers["forebay_transport_connections", "unix"] >= 1  # those of workers, too
    histograms = {(name, *labels.values()): rest for name, labels, *rest in metrics["histograms"]}
    buckets, total_s, count = histograms["forebay_request_run_seconds", "add"]
    assert count == 3
    assert total_s >= 0
    assert [one for _, one in buckets] == sorted(one for _, one in buckets)
    assert histograms["forebay_request_queue_seconds", "fail"][2] == 2, "each attempt has waited"
    assert histograms["forebay_store_commit_seconds",][2] > 0


def test_queued_requests_are_counted_by_what_they_wait_for(client: Client) -> None:
    """The gauges follow the queue, and go back to nothing with it."""
    from forebay.executor.client.options import Submit

    waits = client.submit("other", options=Submit(delay=3600))
    after = client.submit("other", options=Submit(after=[waits.id]))

    def waiting() -> dict[str, float]:
        return {
            labels["reason"]: value
            for name, labels, value in client.ask("metrics")["gauges"]
            if name == "forebay_requests_waiting"
        }

    of_others = {"worker": 0, "key": 0, "name": 0, "children": 0}
    assert waiting() == {"request": 1, "time": 1, **of_others}
    waits.cancel()
    after.exception(timeout=20)
    assert set(waiting().values()) == {0}


def test_a_worker_that_dies_is_told_and_counted(client: Client) -> None:
    """With its process and the cause."""
    events = client.follow(events=["worker_started", "worker_ended"])
    assert client.submit("add").result(timeout=20) == 3
    (worker,) = [one for one in client.ask("workers")["workers"] if one["lane"] == "short"]
    os.kill(worker["pid"], 9)
    ended = taken(events, "worker_ended")[-1]
    assert (ended["pid"], ended["lane"], ended["cause"]) == (worker["pid"], "short", "signal")

    def deaths() -> list[Any]:
        counters = client.ask("metrics")["counters"]
        return [rest for name, *rest in counters if name == "forebay_process_deaths_total"]

    until(lambda: deaths() == [[{"role": "worker", "cause": "signal"}, 1]])


def test_what_happens_to_services_is_told(client: Client) -> None:
    """Who is lent, comes back and dies, with its process."""
    events = client.follow(events=["service_leased", "service_returned", "service_ended"])
    pid = client.submit("lease").result(timeout=60)

    def states() -> list[str]:
        seen = client.ask("services")["services"]
        return [one["state"] for one in seen if one["pid"] == pid]

    until(lambda: states() == ["idle"], why=states)
    os.kill(pid, 9)
    got = [one for one in taken(events, "service_ended") if one["pid"] == pid]
    *lent, ended = [one["event"] for one in got]
    # Once when it was made ready, once for the request.
    assert lent == ["service_leased", "service_returned"] * (len(lent) // 2)
    assert lent
    assert (ended, got[-1]["cause"]) == ("service_ended", "signal")
    assert {one["service"] for one in got} == {"Counter"}
