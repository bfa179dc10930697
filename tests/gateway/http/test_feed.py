"""The stream of all requests' events, against a server that is a list of batches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.errors import ConfigError
from forebay.executor.client.follow import item_of
from forebay.executor.wire.errors import refusal_error
from forebay.gateway.asgi.application import Application
from forebay.gateway.metrics.answered import HttpMetrics
from forebay.gateway.routes.every import TABLE
from forebay.gateway.routes.streams import Streams
from forebay.gateway.token import Role, Token

TOKEN = Token("ann", Role.READ, b"", 0.0)


class Server:
    """Answers what a test says; what it was asked is kept."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches
        self.asked: list[Any] = []

    async def resolve(self, text: str) -> str:
        return text.rjust(12, "0")

    @asynccontextmanager
    async def stream(self, *call: Any) -> AsyncIterator[AsyncIterator[Any]]:
        self.asked.append(call)

        async def items() -> AsyncIterator[Any]:
            for batch in self.batches:
                if isinstance(batch, Exception):
                    raise batch
                yield batch

        yield items()


def get(server: Server, path: str, query: str = "", **headers: str) -> tuple[int, str]:
    """The status and the body of an answer."""
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        access: Any = SimpleNamespace(check=lambda *_: TOKEN, lasts=lambda *_: True)
        context: Any = SimpleNamespace(
            server=server,
            access=access,
            streams=Streams(access),
            metrics=HttpMetrics(),
        )
        scope = {
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [
                (name.replace("_", "-").lower().encode(), value.encode())
                for name, value in headers.items()
            ],
        }
        await Application(context, TABLE)(scope, receive, send)

    asyncio.run(run())
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent).decode()


def events(body: str) -> list[tuple[str, str]]:
    """The ids and kinds of a stream."""
    found = []
    for block in body.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if fields:
            json.loads(fields["data"])
            found.append((fields.get("id", ""), fields["event"]))
    return found


def event(seq: int, kind: str = "accepted") -> dict[str, Any]:
    return {"seq": seq, "event": kind, "at_ms": 1, "id": "000000000001", "name": "add"}


def test_events_have_their_numbers_and_the_query_is_the_filter() -> None:
    """A reader that comes back names the last one that it had."""
    server = Server([[event(5), event(6, "started")], [event(9, "ended")]])
    status, body = get(
        server, "/v1/events", "names=add,many&ids=1&submitter=ann", Last_Event_ID="4"
    )
    assert status == 200
    assert events(body) == [("5", "accepted"), ("6", "started"), ("9", "ended"), ("", "end")]
    wanted = {"names": ["add", "many"], "ids": ["000000000001"], "submitter": "ann"}
    assert server.asked == [("feed", wanted, 4)]


def test_two_events_of_one_batch_are_no_refusal() -> None:
    """A refusal travels as a list of two as well."""
    batch = [event(5), event(6)]
    assert item_of(batch, "the server") == batch
    with pytest.raises(ConfigError):
        item_of([1, {"code": "invalid", "message": "no"}], "the server")


def test_a_gap_is_an_event_and_what_follows_it_has_its_number() -> None:
    """A reader knows what it missed, and does not miss it again."""
    gap = {"event": "gap", "first": 3, "last": 7}
    _, body = get(Server([[gap, event(8)]]), "/v1/events", "cursor=2")
    assert events(body)[:2] == [("7", "gap"), ("8", "accepted")]


def test_a_refused_reader_gets_a_problem() -> None:
    """A number that was not given yet is no empty stream."""
    refusal = refusal_error({"code": "invalid", "message": "the newest is 7", "object": "cursor"})
    status, body = get(Server([refusal]), "/v1/events", "cursor=9")
    assert (status, json.loads(body)["code"]) == (422, "invalid")


@pytest.mark.parametrize("query", ["colour=red", "cursor=x", "submitter=a&submitter=b"])
def test_a_wrong_query_is_named(query: str) -> None:
    """A mistyped filter is no stream of everything."""
    status, body = get(Server([]), "/v1/events", query)
    assert (status, json.loads(body)["code"]) == (422, "invalid")


def test_a_reader_of_one_request_goes_on_with_the_kinds_that_it_had() -> None:
    """Its last id is the server's cursor of that stream, and the stream ends as the server's."""
    told = [{"event": "progress", "done": 3, "seq": 5}, {"event": "status", "seq": 6}]
    for headers, cursor in (({}, None), ({"Last_Event_ID": "4"}, 4)):
        server = Server(told)
        _, body = get(server, "/v1/requests/1/events", **headers)
        assert events(body) == [("5", "progress"), ("6", "status"), ("", "end")]
        assert server.asked == [("events", "000000000001", cursor)]


def test_a_gap_of_one_request_has_no_number() -> None:
    """Who leaves between it and how the request stands is told both again."""
    gap = {"event": "gap", "first": 5, "last": 9}
    stands = {"event": "status", "status": "succeeded", "seq": 9}
    _, body = get(Server([gap, stands]), "/v1/requests/1/events", Last_Event_ID="4")
    assert events(body) == [("", "gap"), ("9", "status"), ("", "end")]


def test_a_reader_that_has_had_the_end_gets_the_end_of_the_stream() -> None:
    """And not that of the request a second time."""
    status, body = get(Server([]), "/v1/requests/1/events", Last_Event_ID="9")
    assert (status, events(body)) == (200, [("", "end")])
