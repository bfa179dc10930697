"""Items of generators over HTTP: lines of what there is, events that follow and resume."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.store.items_app import kill
from tests.gateway.http.http_serving import HttpServing

CLIENT = Path(__file__).parents[3] / "clients" / "python"
APP = (Path(__file__).parents[2] / "executor" / "store" / "items_app.py").read_text()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServing]:
    """One server for the module."""
    with HttpServing(tmp_path_factory.mktemp("serving"), APP) as serving:
        yield serving


pytestmark = pytest.mark.leaks(reason="the server of the module is there until its last test")


def lines(serving: HttpServing, path: str) -> list[dict[str, object]]:
    """The objects of an answer in lines."""
    answer = serving.call("GET", path)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in answer.body.splitlines()]


def test_what_there_is_comes_in_lines(serving: HttpServing) -> None:
    """A script reads it line by line, and goes on behind a number."""
    id_ = serving.submit("count", until=2_000)
    serving.result(id_)
    path = f"/v1/requests/{id_}/items"
    expected = [{"epoch": 1, "number": it + 1, "item": it} for it in range(2_000)]
    assert lines(serving, path) == expected
    assert lines(serving, f"{path}?after=1998") == expected[1998:]
    assert lines(serving, f"{path}?after=3&epoch=1") == expected[3:]
    assert lines(serving, f"{path}?after=3&limit=2") == expected[3:5]
    assert lines(serving, f"{path}?after=3&limit=1500") == expected[3:1503]
    assert serving.call("HEAD", path).body == b""
    assert serving.call("GET", f"/v1/requests/{id_}/show").json["items"]["count"] == 2_000


def test_items_without_a_form_in_json_are_told_by_their_size(serving: HttpServing) -> None:
    """One of them does not end the others."""
    id_ = serving.submit("arrays", sizes=[2, 400_000])
    serving.result(id_)
    small, large = lines(serving, f"/v1/requests/{id_}/items")
    assert small["item"]["shape"] == [2]  # type: ignore[index]
    assert large["item"]["shape"] == [400_000]  # type: ignore[index]


def test_events_follow_and_go_on_behind_the_last_id(serving: HttpServing, tmp_path: Path) -> None:
    """A browser that reconnects sends the last id by itself, and misses nothing."""
    gate = str(tmp_path / "gate")
    for number in (1, 2):
        Path(f"{gate}.{number}").touch()
    id_ = serving.submit("gated", gate=gate, until=3)
    path = f"/v1/requests/{id_}/items"
    with serving.events(path) as events:
        begun, first, second = next(events), next(events), next(events)
    assert (begun["event"], begun["id"], begun["data"]) == ("epoch", "1-0", {"epoch": 1})
    assert (first["event"], first["id"], second["id"]) == ("item", "1-1", "1-2")
    assert first["data"]["number"] == first["data"]["item"]["number"] == 1
    with serving.events(path, Last_Event_ID="1-1") as events:
        assert next(events)["id"] == "1-2"
        Path(f"{gate}.3").touch()
        told = list(events)
    assert [one["event"] for one in told] == ["item", "status", "end"]
    assert (told[0]["id"], told[1]["data"]) == ("1-3", {"status": "succeeded"})


def test_events_say_that_it_begins_again(serving: HttpServing, tmp_path: Path) -> None:
    """A page forgets what it shows."""
    gate = str(tmp_path / "gate")
    Path(f"{gate}.1").touch()
    id_ = serving.submit("again", gate=gate, until=2)
    path = f"/v1/requests/{id_}/items"
    with serving.events(path) as events:
        assert next(events)["event"] == "epoch"
        kill(next(events)["data"]["item"]["pid"])
        again = next(events)
        assert (again["event"], again["data"]) == ("epoch", {"epoch": 2})
        assert next(events)["id"] == "2-1"
        Path(f"{gate}.2").touch()
        assert [one["event"] for one in events] == ["item", "status", "end"]
    with serving.events(path, Last_Event_ID="1-1") as events:
        assert [one.get("id") for one in events][:3] == ["2-0", "2-1", "2-2"]


@pytest.mark.parametrize("last", ["7", "1-", "-1", "1-x", "1-2-3"])
def test_another_id_is_refused(serving: HttpServing, last: str) -> None:
    """It is not taken for the beginning."""
    id_ = serving.submit("plain")
    answer = serving.call(
        "GET", f"/v1/requests/{id_}/items", Accept="text/event-stream", Last_Event_ID=last
    )
    assert (answer.status, answer.json["code"]) == (422, "invalid")
    assert answer.json["object"] == "Last-Event-ID"


def test_items_of_no_request_are_404(serving: HttpServing) -> None:
    """As everything else of it."""
    answer = serving.call("GET", "/v1/requests/000000000001/items")
    assert (answer.status, answer.json["code"]) == (404, "unknown")


def test_commands_over_http_print_items(serving: HttpServing, tmp_path: Path) -> None:
    """As of a server on this machine: as they come, behind a number, with the exit code."""

    def forebay(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "forebay.cli", words[0], "--url", serving.url, *words[1:]]
        folders = os.pathsep.join([serving.environment["PYTHONPATH"], str(CLIENT)])
        environment = serving.environment | {
            "FOREBAY_TOKEN": serving.token,
            "PYTHONPATH": folders,
        }
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=40, check=False
        )

    ran = forebay("run", "count", "--until", "3")
    assert (ran.returncode, ran.stdout) == (0, "0\n1\n2\n"), ran.stderr
    items = forebay("items", "-f", "@last", "--after", "1", "--json")
    assert items.returncode == 0, items.stderr
    told = [json.loads(line) for line in items.stdout.splitlines()]
    assert [(one["epoch"], one["number"], one["item"]) for one in told] == [(1, 2, 1), (1, 3, 2)]
    failed = forebay("run", "raises", "--until", "2")
    assert (failed.returncode, failed.stdout) == (1, "0\n1\n")
    assert "no more of them" in failed.stderr


def test_items_come_as_messagepack_too(serving: HttpServing) -> None:
    """JSON has one text for bytes and for text."""
    id_ = serving.submit("sized", sizes=[0, 3])
    serving.result(id_)
    path = f"/v1/requests/{id_}/items?form=msgpack"
    expected = [
        {"epoch": 1, "number": 1, "msgpack": "xAA="},
        {"epoch": 1, "number": 2, "msgpack": "xAMAAAA="},
    ]
    assert lines(serving, path) == expected
    with serving.events(path) as events:
        assert [one["data"] for one in events if one["event"] == "item"] == expected


def test_an_item_above_a_size_is_told_by_it(serving: HttpServing) -> None:
    """A page that shows the last ones does not load 4 MB of each."""
    id_ = serving.submit("sized", sizes=[10, 1_000_000])
    serving.result(id_)
    for form in ("json", "msgpack"):
        path = f"/v1/requests/{id_}/items?max_bytes=1000&form={form}"
        small, large = lines(serving, path)
        assert set(small) == {"epoch", "number", "item" if form == "json" else "msgpack"}
        assert large == {"epoch": 1, "number": 2, "bytes": 1_000_005}


def test_events_of_what_there_is_end_there(serving: HttpServing, tmp_path: Path) -> None:
    """A reader that goes on after a break does not wait for the rest."""
    gate = str(tmp_path / "gate")
    Path(f"{gate}.1").touch()
    id_ = serving.submit("gated", gate=gate, until=2)
    path = f"/v1/requests/{id_}/items"
    with serving.events(path) as events:
        assert [next(events)["event"] for _ in range(2)] == ["epoch", "item"]
    with serving.events(f"{path}?follow=false") as events:
        told = list(events)
    assert [one["event"] for one in told] == ["epoch", "item", "status", "end"]
    assert told[2]["data"] == {"status": "running"}
    Path(f"{gate}.2").touch()
    serving.result(id_)


@pytest.mark.parametrize(
    ("query", "name", "limit"),
    [("form=xml", "form", "json or msgpack"), ("follow=1", "follow", "true or false")],
)
def test_another_word_is_refused(serving: HttpServing, query: str, name: str, limit: str) -> None:
    """It is not taken for the default."""
    id_ = serving.submit("plain")
    answer = serving.call("GET", f"/v1/requests/{id_}/items?{query}")
    assert (answer.status, answer.json["object"], answer.json["limit"]) == (422, name, limit)


def test_items_that_cannot_be_read_are_told_in_the_stream(serving: HttpServing) -> None:
    """A client that connected again would meet the same fault, for ever."""
    id_ = serving.submit("sized", sizes=[100_000] * 3)
    serving.result(id_)
    file = serving.state / "items" / id_
    with file.open("r+b") as damaged:
        damaged.seek(64 + 2 * (file.stat().st_size - 64) // 3)
        damaged.write(b"\xff" * 4)
    with serving.events(f"/v1/requests/{id_}/items?form=msgpack") as events:
        told = list(events)
    assert [one["event"] for one in told] == ["epoch", "item", "item", "refused", "end"]
    assert (told[3]["data"]["code"], told[3]["data"]["object"]) == ("store", id_)
    with serving.events(f"/v1/requests/{id_}/items?after=2") as events:
        assert [one["event"] for one in events] == ["epoch", "refused", "end"]
    with file.open("r+b") as damaged:
        damaged.write(b"\xff" * 8)
    answer = serving.call("GET", f"/v1/requests/{id_}/items", Accept="text/event-stream")
    assert (answer.status, answer.json["code"]) == (503, "store")


def test_the_description_has_the_items(serving: HttpServing) -> None:
    """A generator of clients finds them."""
    told = serving.call("GET", "/openapi.json").json
    assert "application/x-ndjson" in str(told["paths"]["/v1/requests/{id}/items"])
