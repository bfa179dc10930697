"""Items of generators over HTTP: lines of what there is, events that follow and resume."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.store.items_app import kill
from tests.gateway.http.http_serving import HttpServing

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


def test_commands_over_http_say_where_items_are(serving: HttpServing) -> None:
    """The client over HTTP does not read them; its commands do not pass that over."""

    def forebay(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "forebay.cli", words[0], "--url", serving.url, *words[1:]]
        environment = serving.environment | {"FOREBAY_TOKEN": serving.token}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=40, check=False
        )

    ran = forebay("run", "gated", "--gate", "none", "--until", "0")
    assert (ran.returncode, ran.stdout) == (0, "returned\n"), ran.stderr
    assert "GET /v1/requests/ID/items" in ran.stderr
    items = forebay("items", "@last")
    assert (items.returncode, items.stdout) == (2, "")
    assert "GET /v1/requests/ID/items" in items.stderr


def test_the_description_has_the_items(serving: HttpServing) -> None:
    """A generator of clients finds them."""
    told = serving.call("GET", "/openapi.json").json
    assert "application/x-ndjson" in str(told["paths"]["/v1/requests/{id}/items"])
