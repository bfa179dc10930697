"""How long a client goes on with a gateway that breaks, is quiet or was restarted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from forebay_client import Client
from forebay_client.http.limits import PAUSE_S
from forebay_client.http.messages import Answer, Call
from forebay_client.http.patience import Patience
from tests.client.scripted_server import (
    CLOSE,
    ScriptedServer,
    accepted,
    as_json,
    chunk,
    scripted,
    stream,
)

IDLE = 8
PAST = "Thu, 01 Jan 1970 00:00:00 GMT"


def test_a_restart_of_the_gateway_costs_one_attempt(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one, and a pause, for each connection that it has left."""
    together = threading.Barrier(IDLE)

    def left(_: Any) -> list[bytes]:
        together.wait(20)
        return [as_json({"pid": 1}), CLOSE]

    server.answers = [left] * IDLE
    threads = [threading.Thread(target=client.info) for _ in range(IDLE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(client._session._idle) == IDLE
    pauses: list[float] = []
    monkeypatch.setattr(client._io, "pause", pauses.append)
    server.answers = [as_json({"pid": 2})]
    assert client.info() == {"pid": 2}
    assert pauses == []
    assert len(client._session._idle) == 1


def test_a_connection_that_breaks_at_once_is_no_hot_loop(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt on a new connection is followed by a pause."""
    server.answers = [as_json({"pid": 1}), CLOSE, CLOSE, CLOSE, accepted("a")]
    client.info()
    pauses: list[float] = []
    monkeypatch.setattr(client._io, "pause", pauses.append)
    assert client.submit("echo").id == "a"
    assert pauses == list(PAUSE_S[:2])
    assert len({one.headers["idempotency-key"] for one in server.received[1:]}) == 1


def test_a_stream_without_events_lives_by_its_comments() -> None:
    """The time that a gateway may be away does not begin with a break of long ago."""

    def quiet(_: Any) -> Iterator[bytes]:
        yield from stream(end=False)[:-1]
        yield chunk(b":\n\n")
        time.sleep(1.1)
        yield CLOSE

    with scripted() as server, Client(server.url, timeout=1.0) as client:
        server.answers = [
            stream(("1", "accepted", {}), end=False),
            quiet,
            stream(("2", "ended", {})),
        ]
        assert [one["event"] for one in client.follow()] == ["accepted", "ended"]
        assert [one.headers.get("last-event-id") for one in server.received] == [None, "1", "1"]


def test_an_event_without_an_id_leaves_the_place(server: ScriptedServer, client: Client) -> None:
    """Else the stream would go on with now, and lack what happened meanwhile."""
    server.answers = [
        stream(("7", "accepted", {}), end=False),
        [*stream(end=False)[:-1], chunk(b"event: started\ndata: {}\n\n"), CLOSE],
        stream(("8", "ended", {})),
    ]
    assert [one["event"] for one in client.follow()] == ["accepted", "started", "ended"]
    assert server.received[2].headers["last-event-id"] == "7"


@pytest.mark.parametrize("asked", ["0", PAST])
def test_a_pause_of_nothing_grows(asked: str) -> None:
    """A gateway that says "now" again and again is not asked as fast as it answers."""
    patience = Patience(30.0, None)
    answer = Answer(503, {"retry-after": asked})
    call = Call("GET", "/v1/info")
    assert [patience.after_answer(answer, call) for _ in PAUSE_S] == list(PAUSE_S)
