"""What is known of requests, their results in every form, and what changes them."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from msgspec import msgpack

from tests.gateway.http.http_serving import HttpServing


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServing]:
    """One server for the module."""
    with HttpServing(tmp_path_factory.mktemp("serving")) as serving:
        yield serving


pytestmark = pytest.mark.leaks(reason="the server of the module is there until its last test")


def test_where_a_request_stands(serving: HttpServing, tmp_path: Path) -> None:
    """`?wait` answers as soon as it has ended, and at the latest after its time."""
    id_ = serving.submit("hold", path=str(tmp_path / "go"))
    began = time.monotonic()
    assert serving.call("GET", f"/v1/requests/{id_}?wait=0.2").json["status"] == "running"
    assert time.monotonic() - began >= 0.2
    (tmp_path / "go").touch()
    told = serving.call("GET", f"/v1/requests/{id_}?wait=30", timeout=40).json
    assert (told["schema"], told["id"], told["status"]) == (1, id_, "succeeded")
    assert serving.call("GET", "/v1/requests/@last").json["id"] == id_
    assert serving.call("GET", f"/v1/requests/{id_[:11]}").json["id"][:11] == id_[:11]


@pytest.mark.parametrize("path", ["/show", "/why", "/arguments"])
def test_all_that_is_known(serving: HttpServing, path: str) -> None:
    """What the commands show is there for programs."""
    id_ = serving.submit("add", a=5)
    serving.result(id_)
    told = serving.call("GET", f"/v1/requests/{id_}{path}").json
    assert told["schema"] == 1
    assert told["id"] == id_
    if path != "/why":
        assert told["arguments"] == {"a": 5}


def test_unknown_requests_are_404(serving: HttpServing) -> None:
    """A mistyped id is no fault of the server."""
    for path in ("000000000001", "!", "zzz", "000000000001/result", "000000000001/logs"):
        answer = serving.call("GET", f"/v1/requests/{path}")
        assert (answer.status, answer.json["code"]) == (404, "unknown"), path


def test_pages_go_through_all_requests(serving: HttpServing) -> None:
    """A program lists a million requests by pages, none of them twice."""
    ids = [serving.submit("add", a=n) for n in range(7)]
    for id_ in ids:
        serving.result(id_)
    found: list[str] = []
    cursor = ""
    while len(found) < 7:
        page = serving.call("GET", f"/v1/requests?limit=3&name=add{cursor}").json
        found += [row["id"] for row in page["requests"]]
        cursor = f"&cursor={page['next']}"
    assert found[:7] == ids[::-1]
    ended = serving.call("GET", "/v1/requests?status=failed,dead&status=cancelled").json
    assert {row["status"] for row in ended["requests"]} <= {"failed", "dead", "cancelled"}


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "colour=red", "status=lost"])
def test_a_wrong_filter_is_named(serving: HttpServing, query: str) -> None:
    """A mistyped filter is no empty page."""
    answer = serving.call("GET", f"/v1/requests?{query}")
    assert (answer.status, answer.json["code"]) == (422, "invalid")


def test_a_result_that_is_not_there_yet(serving: HttpServing, tmp_path: Path) -> None:
    """A client that polls is told so, and when to come again."""
    id_ = serving.submit("hold", path=str(tmp_path / "go"))
    answer = serving.call("GET", f"/v1/requests/{id_}/result")
    assert (answer.status, answer.json["code"]) == (409, "not_ended")
    assert answer.headers["retry-after"] == "1"
    answer = serving.call("GET", f"/v1/requests/{id_}/result?wait=0.1")
    assert (answer.status, answer.json["code"]) == (409, "not_ended")
    answer = serving.call("GET", f"/v1/requests/{id_}/result?wait=0")
    assert (answer.status, answer.json["code"]) == (409, "not_ended")
    (tmp_path / "go").touch()
    assert serving.result(id_).json == "held"
    for wait in ("0", "0.001"):
        assert serving.call("GET", f"/v1/requests/{id_}/result?wait={wait}").json == "held"


def test_an_array_in_every_form(serving: HttpServing) -> None:
    """A program takes the form that it reads best."""
    id_ = serving.submit("many", count=4)
    plain = serving.result(id_)
    content = numpy.arange(4, dtype="<i4").tobytes()
    assert plain.json == {
        "dtype": "<i4",
        "shape": [4],
        "data": base64.b64encode(content).decode(),
    }
    assert serving.result(id_, Accept="application/octet-stream").body == content
    npy = serving.result(id_, Accept="application/x-npy")
    assert numpy.load(io.BytesIO(npy.body)).tolist() == [0, 1, 2, 3]
    packed = serving.result(id_, Accept="application/msgpack")
    assert packed.headers["content-type"] == "application/msgpack"
    msgpack.decode(packed.body)
    answer = serving.result(id_, Accept="image/png")
    assert (answer.status, answer.json["code"]) == (406, "not_acceptable")


def test_a_large_result_comes_from_its_file_and_in_ranges(serving: HttpServing) -> None:
    """A download that broke goes on where it was."""
    id_ = serving.submit("many", count=1_000_000)
    content = numpy.arange(1_000_000, dtype="<i4").tobytes()
    whole = serving.result(id_, Accept="application/octet-stream")
    assert whole.headers["content-length"] == str(len(content))
    assert whole.headers["accept-ranges"] == "bytes"
    assert whole.body == content
    accept = {"Accept": "application/octet-stream"}
    part = serving.result(id_, Range="bytes=1000000-2999999", **accept)
    assert part.status == 206
    assert part.headers["content-range"] == f"bytes 1000000-2999999/{len(content)}"
    assert part.body == content[1_000_000:3_000_000]
    assert serving.result(id_, Range="bytes=-5", **accept).body == content[-5:]
    assert serving.result(id_, Range="bytes=3999990-", **accept).body == content[3_999_990:]
    assert serving.result(id_, Range="bytes=0-1,5-6", **accept).status == 200
    behind = serving.result(id_, Range="bytes=4000000-", **accept)
    assert behind.status == 416
    assert behind.headers["content-range"] == f"bytes */{len(content)}"
    head = serving.call("HEAD", f"/v1/requests/{id_}/result", **accept)
    assert (head.status, head.headers["content-length"], head.body) == (200, "4000000", b"")


def test_a_failure_is_a_problem(serving: HttpServing) -> None:
    """A program tells a failed request from a failed call by the code."""
    answer = serving.result(serving.submit("fail", text="broken"))
    assert (answer.status, answer.json["code"]) == (422, "failed")
    assert answer.json["failure"]["message"] == "broken"


def test_requests_are_cancelled_and_queued_again(serving: HttpServing, tmp_path: Path) -> None:
    """An operator needs no shell on the machine."""
    id_ = serving.submit("hold", path=str(tmp_path / "go"))
    answer = serving.call("POST", f"/v1/requests/{id_}/cancel")
    assert answer.status == 202
    assert answer.json["cancelled"] in ("now", "asked")
    ended = serving.result(id_)
    assert (ended.status, ended.json["code"]) == (422, "cancelled")
    assert serving.call("POST", f"/v1/requests/{id_}/cancel").json["cancelled"] == "ended"
    (tmp_path / "go").touch()
    assert serving.call("POST", f"/v1/requests/{id_}/retry").status == 202
    assert serving.result(id_).json == "held"
    answer = serving.call("POST", f"/v1/requests/{id_}/retry")
    assert (answer.status, answer.json["code"]) == (409, "invalid_state")


def test_the_server_is_described(serving: HttpServing) -> None:
    """What the commands show of a server."""
    assert serving.call("GET", "/v1/info").json["http"] == serving.url
    names = [one["name"] for one in serving.call("GET", "/v1/manifest").json["requests"]]
    assert "add" in names
    for what in ("workers", "services", "schedules"):
        assert what in serving.call("GET", f"/v1/{what}").json
    described = serving.call("GET", "/openapi.json").json
    assert described["openapi"].startswith("3.1")
    assert "/v1/requests/add" in described["paths"]


def test_schedules_rest_and_go_on(serving: HttpServing) -> None:
    """By the names of their requests."""
    told = serving.call("POST", "/v1/schedules/yearly/pause").json
    assert [one["paused"] for one in told["schedules"]] == [True]
    told = serving.call("POST", "/v1/schedules/yearly/resume").json
    assert [one["paused"] for one in told["schedules"]] == [False]
    assert serving.call("POST", "/v1/schedules/nobody/pause").status == 404


def test_ended_requests_are_removed(serving: HttpServing) -> None:
    """By a rule, as the command."""
    id_ = serving.submit("add", a=1)
    serving.result(id_)
    rule = {"ids": [id_], "dry_run": True}
    assert serving.call("POST", "/v1/prune", rule).json["pruned"] == 1
    assert serving.call("GET", f"/v1/requests/{id_}").status == 200
    assert serving.call("POST", "/v1/prune", {"ids": [id_]}).json["pruned"] == 1
    assert serving.call("GET", f"/v1/requests/{id_}").status == 404
    assert serving.call("POST", "/v1/prune", {"older_than": "soon"}).status == 422
    assert serving.call("POST", "/v1/prune", b"{").status == 400


def test_health_and_readiness_need_no_token(serving: HttpServing) -> None:
    """A probe has none, and learns nothing else."""
    assert serving.call("GET", "/healthz", token=None).status == 200
    ready = serving.call("GET", "/readyz", token=None)
    assert (ready.status, ready.json) == (200, {"ready": True})


def test_other_paths_and_methods(serving: HttpServing) -> None:
    """Which methods there are is told."""
    answer = serving.call("GET", "/v2/requests")
    assert (answer.status, answer.json["code"]) == (404, "unknown")
    answer = serving.call("DELETE", "/v1/requests")
    assert (answer.status, answer.json["code"]) == (405, "method")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    head = serving.call("HEAD", "/v1/info")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) > 100


def test_a_stream_tells_state_and_progress(serving: HttpServing, tmp_path: Path) -> None:
    """A page shows how far a request is without asking again and again."""
    id_ = serving.submit("talk", path=str(tmp_path / "go"))
    kinds = []
    with serving.events(f"/v1/requests/{id_}/events") as events:
        for event in events:
            kinds.append(event["event"])
            if event["event"] == "progress":
                assert event["data"]["done"] == 1
                (tmp_path / "go").touch()
    assert kinds[-1] == "end"
    assert "progress" in kinds


def test_logs_are_followed_and_resumed(serving: HttpServing, tmp_path: Path) -> None:
    """A reader that comes back with the last id misses nothing, and gets nothing twice."""
    id_ = serving.submit("talk", path=str(tmp_path / "go"))
    with serving.events(f"/v1/requests/{id_}/logs") as events:
        first = next(events)
    assert first["data"] == {"offset": 0, "text": "grün\n"}
    assert first["id"] == "6"
    (tmp_path / "go").touch()
    with serving.events(f"/v1/requests/{id_}/logs", Last_Event_ID="3") as events:
        told = list(events)
    assert told[-1]["event"] == "end"
    text = "".join(one["data"]["text"] for one in told[:-1])
    assert text == "�n\nende\n"
    plain = serving.call("GET", f"/v1/requests/{id_}/logs?offset=6")
    assert plain.headers["content-type"] == "text/plain; charset=utf-8"
    assert plain.body == b"ende\n"


def test_a_client_that_leaves_while_it_waits_disturbs_nobody(
    serving: HttpServing, tmp_path: Path
) -> None:
    """The request goes on, and the wait ends with its connection."""
    go = tmp_path / "go"
    id_ = serving.submit("hold", path=str(go))
    with serving.raw() as connection:
        connection.sendall(serving.head("GET", f"/v1/requests/{id_}?wait=60"))
        time.sleep(0.1)
    go.touch()
    assert serving.result(id_).json == "held"


def test_the_link_of_serve_opens_a_browser_once(serving: HttpServing) -> None:
    """Whoever finds the link in a terminal's history later gets nothing by it."""
    from forebay.gateway.login import new_link

    link = new_link(serving.state, serving.url, "local").removeprefix(serving.url)
    looked = serving.call("HEAD", link, token=None)  # as chats do that show what a link leads to
    assert (looked.status, "set-cookie" in looked.headers) == (401, False)
    answer = serving.call("GET", link, token=None)
    assert answer.status == 303
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert serving.call("GET", "/v1/info", token=None, Cookie=cookie).status == 200
    assert serving.call("GET", link, token=None).status == 401
    denied = serving.call("POST", "/v1/requests/add", {"a": 1}, token=None, Cookie=cookie)
    assert (denied.status, denied.json["code"]) == (403, "forbidden")
    json.dumps(denied.json)
