"""Readers of events while their server is killed again and again: nothing missed without a gap."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.executor.client.client import Client
from tests.gateway.http.http_serving import HttpServing

pytestmark = pytest.mark.leaks(reason="the server starts processes when it needs them")

KILLS = int(os.environ.get("FOREBAY_FEED_KILLS", "3"))
"""`make chaos` has 20."""

APP = '''
import time
from pathlib import Path

import forebay

app = forebay.App("followed")


@app.request(lane="short")
def add(a: int = 1, b: int = 2) -> int:
    return a + b


@app.request(retries=1000, backoff="10ms", idempotent=True)
def steady(ctx: forebay.Context, gate: str) -> None:
    """Tell each step until there is a file, in as many runs as it takes."""
    step = 0
    while not Path(gate).exists():
        step += 1
        ctx.tell(step, None, "", "step")
        time.sleep(0.01)
'''

Event = dict[str, Any]
FOLLOWED = ("started", "queued", "ended")
"""What a follower of one request is told as changes of the status."""


class Reader(threading.Thread):
    """Reads until its stream ends, or the test does."""

    def __init__(self, events: Callable[[], Iterator[Event]], over: threading.Event) -> None:
        super().__init__()
        self.got: list[Event] = []
        self.error: BaseException | None = None
        self._events = events
        self._over = over

    def run(self) -> None:
        try:
            for event in self._events():
                self.got.append(event)
                if self._over.is_set():
                    return
        except BaseException as error:
            self.error = error

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The first and the last number of each."""
        return [(one["first"], one["last"]) for one in self.got if one["event"] == "gap"]

    @property
    def numbers(self) -> list[int]:
        """Of its events."""
        return [one["seq"] for one in self.got if "seq" in one]

    def check(self, *, follows: bool) -> None:
        """Its numbers grow, and a gap begins behind what it had; one of a follower has none."""
        assert self.error is None, self.error
        last = 0
        for event in self.got:
            if event["event"] == "gap":
                assert event["first"] == last + 1 <= event["last"]
                last = last if follows else event["last"]
            elif "seq" in event:
                assert event["seq"] > last
                last = event["seq"]

    def check_has(self, due: set[int]) -> None:
        """Each of these events that happened while it read has come, or is in a gap."""
        had = self.numbers
        due = {number for number in due if had[0] < number <= had[-1]}
        missed = due.difference(had)
        assert not {
            number
            for number in missed
            if not any(first <= number <= last for first, last in self.gaps)
        }

    def check_runs(self, added: list[str]) -> None:
        """Of each server it had all events of the requests that ran there, to where it was cut."""
        servers: list[dict[str, list[str]]] = [{}]
        for event in self.got:
            if event["event"] == "gap":
                servers.append({})
            elif event.get("name") == "add":
                servers[-1].setdefault(event["id"], []).append(event["event"])
        assert any(servers)
        for at, runs in enumerate(servers):
            ids = list(runs)
            first = added.index(ids[0]) if ids else 0
            assert ids == added[first : first + len(ids)]
            whole = ids[at == 0 : -1]  # it began within the first one, and a kill cuts the last
            assert all(runs[id_] == ["accepted", "started", "ended"] for id_ in whole)


@pytest.mark.timeout(60 + 15 * KILLS)
def test_readers_of_a_server_that_is_killed_are_told_the_gap(tmp_path: Path) -> None:
    """Of everything, of a name and of a request, on the socket and over HTTP; nothing twice."""
    gate, over = tmp_path / "gate", threading.Event()
    with (
        HttpServing(tmp_path, APP) as serving,
        Client(f"unix://{serving.socket}", start=False, timeout=60.0) as local,
        Client(serving.url, token=serving.token, timeout=60.0) as remote,
    ):
        request = local.submit("steady", gate=str(gate))
        every, named, following = [], [], []
        for client in (local, remote):
            every.append(Reader(lambda client=client: client.follow(), over))
            named.append(Reader(lambda client=client: client.follow(names="add"), over))
            events = client.get(request.id).events
            following.append(Reader(events, threading.Event()))  # the end of the request ends it
        readers = [*every, *named, *following]
        for reader in readers:
            reader.start()
        added: list[str] = []
        for _ in range(KILLS):
            run_until_all_have_read(local, readers, added)
            serving.kill()
            serving.start()
        run_until_all_have_read(local, readers, added)
        gate.touch()
        assert request.result(timeout=60) is None
        over.set()
        run_until_all_have_read(local, readers, added)
        for reader in readers:
            reader.join(60)
    check(every, named, following, request.id)
    for reader in (*every, *named):
        reader.check_runs(added)


def run_until_all_have_read(client: Client, readers: list[Reader], added: list[str]) -> None:
    """Run one request after the other until each reader has got something, or has ended."""
    before = [len(one.got) for one in readers]
    while any(
        one.is_alive() and len(one.got) == had for one, had in zip(readers, before, strict=True)
    ):
        request = client.submit("add")
        added.append(request.id)
        assert request.result(timeout=60) == 3


def check(every: list[Reader], named: list[Reader], following: list[Reader], id_: str) -> None:
    """Each against what the readers of everything were told."""
    events = {
        one["seq"]: one
        for reader in every
        for one in reader.got
        if "seq" in one and one["event"] != "progress"  # of which a newer one takes the place
    }
    of_name = {number for number, one in events.items() if one.get("name") == "add"}
    changes = {
        number
        for number, one in events.items()
        if one.get("id") == id_ and one["event"] in FOLLOWED
    }
    for reader in (*every, *named, *following):
        reader.check(follows=reader in following)
        assert len(reader.gaps) == KILLS
    for reader in every:
        reader.check_has(set(events))
    for reader in named:
        reader.check_has(of_name)
        assert of_name.intersection(reader.numbers)
        assert {one["name"] for one in reader.got if "seq" in one} == {"add"}
    for reader in following:
        reader.check_has(changes)
        assert (reader.got[-1]["event"], reader.got[-1]["status"]) == ("status", "succeeded")
