"""What goes over the wire, and what a client does where that breaks or is refused."""

from __future__ import annotations

import threading
import time
from typing import Any

import msgspec
import pytest

from forebay_client import Client, Submit, errors
from forebay_client.http import limits
from tests.client.conftest import TOKEN
from tests.client.scripted_server import (
    CLOSE,
    ScriptedServer,
    accepted,
    answer,
    as_json,
    problem,
    stream,
)
from tests.transport.certificates import Authority

MSGPACK = "application/msgpack"


def packed(value: Any) -> bytes:
    """A result."""
    return answer(200, msgspec.msgpack.encode(value), MSGPACK)


def test_a_submission_is_what_the_contract_says(server: ScriptedServer, client: Client) -> None:
    """Arguments in MessagePack, options in the query, a key of its own, the token."""
    server.answers = [accepted("0123456789ab")]
    options = Submit(priority=2, memory="300MB", after=["a", "b"], timeout=1.5)
    request = client.submit("tune it", x=b"bytes", options=options)
    (sent,) = server.received
    assert (sent.method, sent.path) == ("POST", "/v1/requests/tune%20it")
    assert sorted(sent.query) == [
        ("after", "a"),
        ("after", "b"),
        ("memory", "300MB"),
        ("priority", "2"),
        ("timeout", "1.5"),
    ]
    assert sent.headers["content-type"] == MSGPACK
    assert sent.headers["authorization"] == f"Bearer {TOKEN}"
    assert len(sent.headers["idempotency-key"]) == 24
    assert msgspec.msgpack.decode(sent.body) == {"x": b"bytes"}
    assert (request.id, request.name) == ("0123456789ab", "tune it")


def test_a_submission_whose_answer_is_lost_is_sent_again_with_its_key(
    server: ScriptedServer, client: Client
) -> None:
    """The server has it already, so that there is one request."""
    server.answers = [CLOSE, [b"HTTP/1.1 202", CLOSE], accepted()]
    client._session._reached = True  # else nobody waits for it
    assert client.submit("echo", index=1).id == "000000000001"
    keys = {one.headers["idempotency-key"] for one in server.received}
    assert (len(server.received), len(keys)) == (3, 1)
    server.answers = [accepted()]
    client.submit("echo", options=Submit(idempotency="my own"))
    assert server.received[-1].headers["idempotency-key"] == "my own"


def test_a_span_goes_with_its_submission(server: ScriptedServer, client: Client) -> None:
    """In the field that every system knows; what is none is refused here."""
    span = f"00-{'a' * 32}-{'b' * 16}-01"
    server.answers = [accepted("a"), accepted("b")]
    client.submit("echo", options=Submit(traceparent=span))
    client.submit_many("echo", [{}], options=Submit(traceparent=span))
    assert [one.headers["traceparent"] for one in server.received] == [span, span]
    with pytest.raises(errors.ConfigError, match="traceparent is"):
        client.submit("echo", options=Submit(traceparent="x\r\nAuthorization: y"))


def test_pages_go_on_as_long_as_there_is_a_next_one(server: ScriptedServer, client: Client) -> None:
    """Also behind one without a request, and with times as text."""
    server.answers = [
        as_json({"requests": [{"id": "c"}], "next": "c"}),
        as_json({"requests": [], "next": "b"}),
        as_json({"requests": [{"id": "a"}], "next": None}),
    ]
    rows = client.list(status="failed", lane="short", since=0, limit=5000)
    assert rows == [{"id": "c"}, {"id": "a"}]
    first, second, third = (dict(one.query) for one in server.received)
    assert first == {
        "status": "failed",
        "lane": "short",
        "since": "1970-01-01T00:00:00+00:00",
        "limit": "1000",
    }
    assert (second["cursor"], third["cursor"]) == ("c", "b")


def test_connections_are_kept(server: ScriptedServer, client: Client) -> None:
    """TLS costs several round trips, once."""
    server.answers = [as_json({"pid": 1})] * 5
    for _ in range(5):
        client.info()
    assert {one.connection for one in server.received} == {0}


def test_an_idle_connection_that_the_server_has_closed_is_replaced(
    server: ScriptedServer, client: Client
) -> None:
    """Nobody hears of it."""
    server.answers = [[as_json({"pid": 1}), CLOSE], as_json({"pid": 2})]
    assert client.info() == {"pid": 1}
    assert client.info() == {"pid": 2}


def test_what_may_not_happen_twice_is_not_sent_again(
    server: ScriptedServer, client: Client
) -> None:
    """A retry that was heard queues the request; a second one might queue its next run."""
    server.answers = [as_json({"pid": 1}), CLOSE, as_json({})]
    client.info()
    with pytest.raises(errors.BrokenError) as caught:
        client.retry("000000000001")
    assert caught.value.delivered == "maybe"
    assert len(server.received) == 2
    assert server.received[1].connection == 1, "a kept connection may break at any time"


def test_a_server_that_asks_to_come_later_is_asked_later(
    server: ScriptedServer, client: Client
) -> None:
    """429 and 503 with Retry-After, within the client's time."""
    server.answers = [
        problem(429, "limit", "0", object="queue"),
        problem(503, "draining", "0"),
        accepted(),
    ]
    assert client.submit("echo").id == "000000000001"
    assert len({one.headers["idempotency-key"] for one in server.received}) == 1


def test_a_pause_beyond_the_clients_time_is_an_error_at_once(
    server: ScriptedServer, client: Client
) -> None:
    """With its code, object, limit, value and next step."""
    server.answers = [
        problem(429, "limit", "3600", object="queue", limit="2", value=3, next="wait")
    ]
    began = time.monotonic()
    with pytest.raises(errors.LimitError, match="limit it is; do otherwise") as caught:
        client.submit("echo")
    told: Any = caught.value
    assert (told.code, told.object, told.limit, told.value, told.next) == (
        "limit",
        "queue",
        2,
        3,
        "wait",
    )
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "unauthenticated", errors.ConfigError),
        (403, "forbidden", errors.ConfigError),
        (404, "unknown", errors.ConfigError),
        (409, "invalid_state", errors.ConfigError),
        (413, "limit", errors.LimitError),
        (421, "host", errors.ConfigError),
        (422, "invalid", errors.ConfigError),
        (422, "idempotency_mismatch", errors.ConfigError),
        (500, "internal", errors.InternalError),
        (503, "hold", errors.ConfigError),
        (503, "store", errors.BrokenError),
    ],
)
def test_problems_are_errors_by_what_the_caller_can_do(
    server: ScriptedServer, client: Client, status: int, code: str, kind: type[errors.Error]
) -> None:
    """As those of the other client, with the same codes."""
    server.answers = [problem(status, code)]
    with pytest.raises(kind) as caught:
        client.info()
    assert caught.value.code == code  # type: ignore[attr-defined]


def test_what_is_no_gateway_is_told_so(server: ScriptedServer, client: Client) -> None:
    """A proxy's page, a web server, something that speaks no HTTP."""
    server.answers = [answer(404, b"<html>no</html>", "text/html")]
    with pytest.raises(errors.ConfigError, match="answered 404 and no problem document"):
        client.info()
    server.answers = [answer(200, b"<html>yes</html>", "text/html")]
    with pytest.raises(errors.ProtocolError, match="and no object of JSON"):
        client.info()
    server.answers = [b"220 mail.example ESMTP\r\n\r\n"]
    with pytest.raises(errors.ProtocolError, match="does not answer as HTTP"):
        client.info()


def test_a_proxy_that_does_not_reach_the_gateway_is_asked_again(
    server: ScriptedServer, client: Client
) -> None:
    """502 of a load balancer while the gateway is restarted."""
    server.answers = [answer(502, b"bad gateway", "text/plain"), as_json({"pid": 1})]
    assert client.info() == {"pid": 1}


def test_a_result_is_waited_for_over_several_calls(server: ScriptedServer, client: Client) -> None:
    """A gateway waits a minute at most."""
    server.answers = [accepted(), problem(409, "not_ended", "1"), packed({"a": b"\x00"})]
    assert client.submit("echo").result() == {"a": b"\x00"}
    assert [one.query for one in server.received[1:]] == [[("wait", f"{limits.WAIT_S:.3f}")]] * 2


def test_time_that_runs_out_leaves_the_request_running(
    server: ScriptedServer, client: Client
) -> None:
    """Whether the server says so, or nothing."""
    server.answers = [accepted(), problem(409, "not_ended", "1")]
    request = client.submit("echo")
    with pytest.raises(errors.DeadlineError, match=r"not ended within 0 s; it goes on"):
        request.result(timeout=0)
    hung = threading.Event()
    server.answers = [lambda _: problem(409, "not_ended", str(hung.wait(5)))]
    with pytest.raises(errors.DeadlineError, match=r"not ended within 0\.05 s"):
        request.result(timeout=0.05)
    hung.set()
    server.answers = [packed(1)]
    assert request.result(timeout=5) == 1


def test_more_waits_than_connections_take_turns(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them is told that all connections are in use, and none holds one for long."""
    monkeypatch.setitem(limits.CONNECTIONS_MAX, "wait", 2)
    client._io._permits["wait"] = threading.BoundedSemaphore(2)
    client._session._counts["wait"] = 2
    server.answers = [accepted(), packed(7)]
    assert client.submit("echo").result() == 7
    assert server.received[-1].query == [("wait", f"{limits.WAIT_CROWDED_S:.3f}")]
    client._session._counts["wait"] = 0
    ends = threading.Event()
    server.answers = [lambda _: packed(ends.wait(20)) for _ in range(6)]
    requests = [client.get(f"00000000000{at}") for at in range(6)]
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda one=one: results.append(one.result())) for one in requests
    ]
    for thread in threads:
        thread.start()
    ends.set()
    for thread in threads:
        thread.join(20)
    assert results == [True] * 6
    assert len({one.connection for one in server.received}) <= 4


def test_a_stream_goes_on_behind_its_last_event(server: ScriptedServer, client: Client) -> None:
    """Nothing of it is missing, nothing there twice."""
    server.answers = [
        accepted(),
        stream(("3", "log", {"offset": 0, "text": "grü"}), end=False),
        stream(("9", "log", {"offset": 3, "text": "n\n"})),
    ]
    assert "".join(client.submit("echo").logs()) == "grün\n"
    first, second = server.received[1:]
    assert "last-event-id" not in first.headers
    assert second.headers["last-event-id"] == "3"
    assert second.headers["accept"] == "text/event-stream"


def test_all_events_are_followed_with_a_filter(server: ScriptedServer, client: Client) -> None:
    """By name, by number, and beyond a gap."""
    server.answers = [
        stream(
            ("7", "gap", {"first": 5, "last": 6}),
            ("8", "ended", {"seq": 8, "event": "ended", "id": "a"}),
        )
    ]
    events = list(client.follow(names=["a", "b"], events="ended", cursor=4))
    assert events == [
        {"event": "gap", "first": 5, "last": 6},
        {"seq": 8, "event": "ended", "id": "a"},
    ]
    (sent,) = server.received
    assert sent.query == [("names", "a"), ("names", "b"), ("events", "ended")]
    assert sent.headers["last-event-id"] == "4"


def test_a_reader_of_events_knows_its_number_before_the_first_one(
    server: ScriptedServer, client: Client
) -> None:
    """What happens between `follow` and a break is asked for, though nothing was read yet."""
    server.answers = [
        stream(end=False),
        stream(("7", "begin", {"seq": 7}), end=False),
        stream(("8", "ended", {"seq": 8, "event": "ended"})),
    ]
    events = client.follow()
    assert len(server.received) == 2
    assert [one["seq"] for one in events] == [8]
    *first, last = server.received
    assert all("last-event-id" not in one.headers for one in first)
    assert last.headers["last-event-id"] == "7"


def test_leaving_a_stream_closes_its_connection(server: ScriptedServer, client: Client) -> None:
    """A stream that nobody reads is not kept open."""
    left = threading.Event()

    def serve(_: Any) -> list[bytes]:
        left.wait(5)
        return [CLOSE]

    server.answers = [stream(("0", "begin", {}), ("1", "accepted", {}))[:-2], serve]
    events = client.follow()
    assert next(events)["event"] == "accepted"
    events.close()
    left.set()
    assert client._io._used == set()


def test_many_are_submitted_in_one_call(server: ScriptedServer, client: Client) -> None:
    """Each is accepted or refused by itself."""
    refused = {"code": "invalid", "status": 422, "message": "x", "detail": "x is wrong"}
    server.answers = [as_json({"requests": [{"id": "a"}, {"error": refused}, {"error": refused}]})]
    with pytest.raises(errors.ConfigError, match="x is wrong") as caught:
        client.submit_many("echo", [{"x": at} for at in range(3)], options=Submit(priority=1))
    assert caught.value.__notes__ == ["1 other submissions failed too"]
    (sent,) = server.received
    assert (sent.method, sent.path) == ("POST", "/v1/batch")
    body = msgspec.msgpack.decode(sent.body)
    assert [one["arguments"] for one in body["requests"]] == [{"x": 0}, {"x": 1}, {"x": 2}]
    assert body["requests"][0]["options"] == {"priority": 1}
    assert len({one["idempotency_key"] for one in body["requests"]}) == 3
    with pytest.raises(errors.ConfigError, match="would make all of them one request"):
        client.submit_many("echo", [{}], options=Submit(idempotency="one"))


def test_those_that_were_refused_for_a_while_are_sent_again(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their keys; the others are not."""
    monkeypatch.setattr("forebay_client.calls.AGAIN_S", 0.01)
    full = {"code": "limit", "status": 429, "message": "full"}
    server.answers = [
        as_json({"requests": [{"id": "a"}, {"error": full}, {"id": "c"}]}),
        as_json({"requests": [{"id": "b"}]}),
    ]
    requests = client.submit_many("echo", [{}] * 3)
    assert [one.id for one in requests] == ["a", "b", "c"]
    first, second = (msgspec.msgpack.decode(one.body)["requests"] for one in server.received)
    assert second[0]["idempotency_key"] == first[1]["idempotency_key"]


def test_submissions_that_nobody_waits_for_gather(server: ScriptedServer, client: Client) -> None:
    """While one call is on its way the next ones become one call."""
    gate = threading.Event()

    def first(_: Any) -> bytes:
        gate.wait(5)
        return accepted("a")

    server.answers = [first, as_json({"requests": [{"id": f"b{at}"} for at in range(5)]})]
    requests = [client.submit_nowait("echo", at=0)]
    server.wait_for(1)
    requests += [client.submit_nowait("echo", at=at) for at in range(1, 6)]
    gate.set()
    assert [one.id for one in requests] == ["a", "b0", "b1", "b2", "b3", "b4"]
    assert [one.path for one in server.received] == ["/v1/requests/echo", "/v1/batch"]


def test_leaving_raises_for_what_was_refused_and_never_looked_at(
    server: ScriptedServer, authority: Authority
) -> None:
    """A program that submits and leaves hears that it submitted nothing."""
    server.answers = [problem(422, "invalid"), problem(422, "invalid")]
    with Client(server.url, TOKEN, ca_file=authority.ca, timeout=5.0) as client:
        assert isinstance(client.submit_nowait("x").exception(), errors.ConfigError)
    client = Client(server.url, TOKEN, ca_file=authority.ca, timeout=5.0)
    client.submit_nowait("x")
    with pytest.raises(errors.ConfigError, match="invalid it is"), client:
        pass


def test_a_client_that_was_left_says_so(server: ScriptedServer, authority: Authority) -> None:
    """Also to a thread that waits."""
    client = Client(server.url, TOKEN, ca_file=authority.ca, timeout=5.0)
    left = threading.Event()
    server.answers = [accepted(), lambda _: CLOSE if left.wait(20) else problem(500, "internal")]
    request = client.submit("x")
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            request.result()
        except errors.Error as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    server.wait_for(2)
    client.close()
    thread.join(5)
    left.set()
    assert [type(one) for one in caught] == [errors.ClosedError]
    with pytest.raises(errors.ClosedError, match="make another one"):
        client.info()


def test_nobody_waits_for_a_gateway_that_was_never_there() -> None:
    """A wrong address is an error at once."""
    client = Client("http://127.0.0.1:9", timeout=30.0)
    began = time.monotonic()
    with pytest.raises(errors.BrokenError, match="cannot be reached") as caught:
        client.info()
    assert caught.value.delivered == "no"
    assert time.monotonic() - began < 5


def test_a_gateway_that_went_away_is_waited_for_as_long_as_the_client_says(
    server: ScriptedServer, authority: Authority
) -> None:
    """And then its error is raised."""
    client = Client(server.url, TOKEN, ca_file=authority.ca, timeout=0.5)
    server.answers = [[as_json({"pid": 1}), CLOSE]]
    client.info()
    server.refuse()
    began = time.monotonic()
    with pytest.raises(errors.BrokenError, match="cannot be reached"):
        client.info()
    assert 0.4 < time.monotonic() - began < 3
