"""The gateway's benchmark counts answers that are right, and reads what servers send."""

from __future__ import annotations

import http.server
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from benchmarks.gateway import memory, wrk
from benchmarks.gateway.address import HOST, Address
from benchmarks.gateway.log import _events
from benchmarks.gateway.readers import Stream


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers each POST with the status of its server."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server = cast("Any", self.server)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.seen.add((body, self.headers["Content-Type"], self.headers["Authorization"]))
        self.send_response(server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(status: int) -> Iterator[Any]:
    """A server on loopback."""
    with http.server.ThreadingHTTPServer((HOST, 0), Handler) as server:
        cast("Any", server).status, cast("Any", server).seen = status, set()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.needs("wrk")
@pytest.mark.leaks("threads of the server end with their connections, a moment later")
def test_wrk_posts_json_with_the_headers_of_the_address():
    """A server that refuses everybody is the fastest."""
    with answering(202) as server:
        address = Address(server.server_port, {"Authorization": "Bearer fb_x"})
        figures = wrk.post(address, "/noop", seconds=1)
        assert server.seen == {(b'{"index": 7}', "application/json", "Bearer fb_x")}
    assert figures["64 connections/rate"] > 0
    assert figures["1 connection/p99"] >= figures["1 connection/p50"] > 0


@pytest.mark.needs("wrk")
@pytest.mark.leaks("threads of the server end with their connections, a moment later")
def test_a_refusal_is_no_result():
    """Nobody compares how fast two servers say no."""
    with answering(429) as server, pytest.raises(ValueError, match="requests failed"):
        wrk.post(Address(server.server_port), "/noop", seconds=1)


class Answer(io.BytesIO):
    """An answer of a stream of events."""

    status = 200


def test_events_of_a_log_are_its_pieces_of_text():
    """A comment or the end is taken for a line of the log."""
    stream = Answer(
        b': hello\n\nid: 4\nevent: log\ndata: {"offset": 0, "text": "1\\n2\\n"}\n\n'
        b'id: 6\nevent: log\ndata:{"offset": 4, "text": "3\\n"}\n\n'
        b'event: end\ndata: {}\n\nevent: log\ndata: {"text": "behind"}\n\n'
    )
    assert list(_events(cast("Any", stream))) == ["1\n2\n", "3\n"]


def test_a_readers_events_are_counted_across_its_pieces():
    """The line of an event may be cut anywhere."""
    stream = Stream(cast("Any", None), "/v1/events")
    for piece in (
        b"HTTP/1.1 200 OK\r\n\r\n: hello\n\nda",
        b"ta: {}\n\nid: 2\nevent: x\ndata:",
        b"{}",
    ):
        stream.take(piece)
    assert stream.events == 1
    stream.take(b"\n\n")
    assert stream.events == 2


def test_both_sides_share_the_interpreter_with_as_many(monkeypatch: pytest.MonkeyPatch):
    """Of two sizes with different numbers of sharers, the smaller one may be the larger program."""
    before = len(memory._interpreters())
    monkeypatch.setattr(memory, "INTERPRETERS", before + 2)
    with memory._as_many_interpreters():
        assert len(memory._interpreters()) == before + 2
    assert len(memory._interpreters()) == before
    monkeypatch.setattr(memory, "INTERPRETERS", before - 1)
    with pytest.raises(ValueError, match="interpreters run"), memory._as_many_interpreters():
        pass
