"""HTTP as it should not be, on real sockets: refused or bounded, and nobody else is held up."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.executor.serving import proportional_bytes, until
from tests.gateway.http.http_serving import HttpServing, received

MIB = 1 << 20


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServing]:
    """One server for the module, with bodies of a mebibyte."""
    limits = {
        "FOREBAY_GATEWAY_MAX_BODY_BYTES": str(MIB),
        "FOREBAY_GATEWAY_MAX_CONNECTIONS": "200",
        "FOREBAY_GATEWAY_MAX_CONNECTIONS_PER_ADDRESS": "100",
    }
    with HttpServing(tmp_path_factory.mktemp("serving"), **limits) as serving:
        yield serving


@pytest.fixture(autouse=True)
def still_answers(serving: HttpServing) -> Iterator[None]:
    """Whatever a test has done, the next client is served, and by the same gateway."""
    before = serving.gateway_pid
    yield
    assert serving.call("GET", "/v1/info").status == 200
    assert serving.gateway_pid == before


pytestmark = pytest.mark.leaks(reason="the server of the module is there until its last test")


def status_of(answer: bytes) -> int:
    """Of the first answer."""
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS to a port without
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b\r\n c\x00d\r\n\r\n",
        b"POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/batch HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
        b"CONNECT example.org:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/batch HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/batch HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET ftp://127.0.0.1/healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://127.0.0.1:8.evil/healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http:///healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused(serving: HttpServing, sent: bytes) -> None:
    """A client that is wrong, or means harm, gets 400 and is closed: no request is smuggled."""
    with serving.raw() as connection:
        connection.sendall(sent)
        answer = received(connection)
    assert status_of(answer) in (400, 404, 405), answer
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost, evil"])
def test_another_host_is_refused(serving: HttpServing, host: str) -> None:
    """A page whose name leads to this address gets nothing."""
    sent = (
        f"GET /v1/info HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        f"Authorization: Bearer {serving.token}\r\n\r\n"
    )
    with serving.raw() as connection:
        connection.sendall(sent.encode())
        answer = received(connection)
    assert status_of(answer) == 421, answer


@pytest.mark.parametrize(
    ("authority", "status"),
    [("{own}", 200), ("evil.example", 421), ("a@{own}", 421), ("127.0.0.1.evil:80", 421)],
)
def test_the_host_of_a_whole_url_is_the_one_that_counts(
    serving: HttpServing, authority: str, status: int
) -> None:
    """A proxy has passed it on by that name, whatever the Host says."""
    own = f"127.0.0.1:{serving.port}"
    target = f"http://{authority.format(own=own)}/v1/schedules"
    with serving.raw() as connection:
        connection.sendall(serving.head("GET", target, "Connection: close"))
        assert status_of(received(connection)) == status
    with serving.raw() as connection:
        connection.sendall(
            f"GET http://{own}/v1/schedules HTTP/1.1\r\nHost: evil.example\r\n"
            f"Authorization: Bearer {serving.token}\r\nConnection: close\r\n\r\n".encode()
        )
        assert status_of(received(connection)) == 200


def test_an_escaped_slash_does_not_split_a_path(serving: HttpServing) -> None:
    """Else what a proxy lets through as a name would be another route here."""
    id_ = serving.submit("add", a=1)
    assert serving.result(id_).status == 200
    assert serving.call("POST", f"/v1/requests/{id_}/cancel").status == 202
    hidden = serving.call("POST", f"/v1/requests/{id_}%2fcancel", {})
    assert (hidden.status, hidden.json["code"]) == (404, "unknown")
    assert serving.call("GET", f"/v1/requests/{id_}%2Fshow").status == 404
    assert serving.call("GET", "/v1%2fschedules").status == 404
    assert serving.call("GET", "/v1/%73chedules").status == 200
    assert serving.call("GET", "/v1/requests/{}").json["object"] == "request"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Idempotency-Key", ["a", "b"]),
        ("Content-Type", ["application/json", "application/msgpack"]),
    ],
)
def test_a_header_that_is_there_twice_is_refused(
    serving: HttpServing, name: str, values: list[str]
) -> None:
    """Which one a proxy has looked at is not known."""
    body = b'{"a": 1}'
    lines = [f"{name}: {value}" for value in values]
    lines += [f"Content-Length: {len(body)}", "Connection: close"]
    with serving.raw() as connection:
        connection.sendall(serving.head("POST", "/v1/requests/add", *lines) + body)
        answer = received(connection)
    assert status_of(answer) == 400, answer
    assert name.lower().encode() in answer


def test_a_list_may_come_in_several_headers(serving: HttpServing) -> None:
    """As proxies write it."""
    id_ = serving.submit("add", a=1)
    serving.result(id_)
    lines = ["Accept: application/msgpack", "Accept: text/plain", "Connection: close"]
    with serving.raw() as connection:
        connection.sendall(serving.head("GET", f"/v1/requests/{id_}/result", *lines))
        answer = received(connection)
    assert status_of(answer) == 200
    assert b"content-type: application/msgpack" in answer


def test_long_paths_and_headers_are_refused(serving: HttpServing) -> None:
    """Nobody fills the memory with what comes before a token is seen."""
    cases = [
        (414, f"GET /{'a' * 20_000} HTTP/1.1\r\nHost: x\r\n\r\n"),
        (431, f"GET / HTTP/1.1\r\nHost: x\r\nA: {'a' * 70_000}\r\n\r\n"),
        (431, "GET / HTTP/1.1\r\nHost: x\r\n" + "A: b\r\n" * 101 + "\r\n"),
        (431, f"GET / HTTP/1.1\r\nHost: x\r\n{'A' * 200_000}"),
    ]
    for status, sent in cases:
        with serving.raw() as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(sent.encode())
            answer = received(connection)
        assert status_of(answer) == status, (sent[:40], answer)


def test_a_large_body_is_refused_before_and_while_it_comes(serving: HttpServing) -> None:
    """Told by its length or not, no more than the limit is kept."""
    with serving.raw() as connection:
        connection.sendall(serving.head("POST", "/v1/requests/add", f"Content-Length: {MIB + 1}"))
        assert status_of(received(connection)) == 413
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with serving.raw() as connection:
        connection.sendall(serving.head("POST", "/v1/batch", "Transfer-Encoding: chunked"))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(40):
                connection.sendall(chunk)
        assert status_of(received(connection)) == 413
    body = b'{"requests":[]}'.ljust(MIB)
    assert serving.call("POST", "/v1/batch", body).status == 200
    length = f"Content-Length: {'0' * 5000}2"
    with serving.raw() as connection:
        connection.sendall(serving.head("POST", "/v1/batch", length, "Connection: close") + b"{}")
        assert status_of(received(connection)) == 422


def test_pipelined_requests_are_answered_in_their_order(serving: HttpServing) -> None:
    """A client may send before it has read."""
    wrong = serving.head("GET", "/nowhere")
    right = serving.head("GET", "/healthz")
    last = serving.head("GET", "/v1/schedules", "Connection: close")
    with serving.raw() as connection:
        connection.sendall(right + wrong + right * 60 + last)
        answer = received(connection)
    statuses = [int(one[:3]) for one in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [200, 404, *[200] * 60, 200]


def test_a_flood_of_pipelined_requests_is_not_read(serving: HttpServing) -> None:
    """What one client sends without reading waits in the kernel, not in the gateway."""
    one = serving.head("GET", "/v1/manifest")
    before = proportional_bytes(serving.gateway_pid)
    with serving.raw(1.0) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 50 * MIB:
                sent += connection.send(one * 100)
        assert sent < 50 * MIB
        assert proportional_bytes(serving.gateway_pid) - before < 8 * MIB


def test_a_body_that_stops_holds_only_its_connection(serving: HttpServing) -> None:
    """Many clients that stop in the middle do not stop the others."""
    with contextlib.ExitStack() as open_:
        for _ in range(50):
            connection = open_.enter_context(serving.raw())
            connection.sendall(
                serving.head("POST", "/v1/requests/add", "Content-Length: 100") + b"{"
            )
        began = time.monotonic()
        assert serving.call("POST", "/v1/requests/add", {"a": 1}).status == 202
        assert time.monotonic() - began < 5


def test_one_address_has_so_many_connections(serving: HttpServing) -> None:
    """One client does not take the connections of all."""
    with contextlib.ExitStack() as open_:
        unanswered = {open_.enter_context(serving.raw()) for _ in range(110)}
        refused = 0
        while told := select.select(unanswered, [], [], 0.5)[0]:
            for connection in told:
                answer = connection.recv(4096)
                assert status_of(answer) == 503
                assert b"max_connections_per_address" in answer
                refused += 1
            unanswered.difference_update(told)
        assert 8 <= refused <= 12
    until(lambda: _answers(serving))


def _answers(serving: HttpServing) -> bool:
    """Whether there is room again."""
    return serving.call("GET", "/healthz", token=None).status == 200


def test_an_upgrade_is_answered_as_a_request(serving: HttpServing) -> None:
    """There are no websockets, and the connection is not left half open."""
    head = serving.head("GET", "/v1/schedules", "Connection: Upgrade", "Upgrade: websocket")
    with serving.raw() as connection:
        connection.sendall(head)
        assert status_of(received(connection)) == 200


def test_a_client_may_ask_before_it_sends_a_body(serving: HttpServing) -> None:
    """As curl does with large bodies."""
    body = b'{"a": 1}'
    head = serving.head(
        "POST", "/v1/requests/add", f"Content-Length: {len(body)}", "Expect: 100-continue"
    )
    with serving.raw() as connection:
        connection.sendall(head)
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert status_of(connection.recv(4096)) == 202


def test_a_reader_that_does_not_read_holds_nobody(serving: HttpServing, tmp_path: Path) -> None:
    """Its stream waits with its cursor; the gateway keeps little for it."""
    id_ = serving.submit("many", count=2_000_000)
    assert serving.result(id_, Accept="application/octet-stream").status == 200
    before = proportional_bytes(serving.gateway_pid)
    with contextlib.ExitStack() as open_:
        for _ in range(20):
            connection = open_.enter_context(serving.raw())
            connection.sendall(
                serving.head(
                    "GET", f"/v1/requests/{id_}/result", "Accept: application/octet-stream"
                )
            )
        began = time.monotonic()
        assert serving.call("POST", "/v1/requests/add", {"a": 1}).status == 202
        assert time.monotonic() - began < 5
        assert proportional_bytes(serving.gateway_pid) - before < 24 * MIB


def test_results_that_nobody_reads_are_bounded(serving: HttpServing) -> None:
    """Each is a text in the gateway's memory; who comes when there are many is told to wait."""
    id_ = serving.submit("numbers", count=690_000)  # 3 MB of text, and more of objects
    packed = {"Accept": "application/msgpack"}
    assert serving.result(id_, **packed).status == 200
    before = proportional_bytes(serving.gateway_pid)
    most = 0
    head = serving.head("GET", f"/v1/requests/{id_}/result")
    with contextlib.ExitStack() as open_:
        unread = []
        for _ in range(60):
            connection = open_.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", serving.port))
            connection.settimeout(20)
            connection.sendall(head)
            unread.append(connection)
        statuses = []
        for connection in unread:
            statuses.append(status_of(connection.recv(100)))
            most = max(most, proportional_bytes(serving.gateway_pid) - before)
        assert serving.result(id_).status == 503
        assert serving.result(id_, **packed).status == 200
    assert 36 <= statuses.count(200) <= 40
    assert set(statuses) == {200, 503}
    assert most < 220 * MIB
    until(lambda: serving.result(id_).status == 200)


def test_a_client_of_http_1_0_gets_what_it_knows(serving: HttpServing) -> None:
    """Old tools, and health checks of old proxies, know no chunks."""
    id_ = serving.submit("fail", text="x")
    serving.result(id_)
    head = serving.head("GET", f"/v1/requests/{id_}/logs").replace(b"HTTP/1.1", b"HTTP/1.0")
    with serving.raw() as connection:
        connection.sendall(head)
        answer = received(connection)
    assert status_of(answer) == 200
    assert b"chunked" not in answer
    assert b"connection: close" in answer


def test_a_client_that_waits_for_permission_is_closed_with_the_refusal(
    serving: HttpServing,
) -> None:
    """Whether it sends the body nevertheless is not known, so nothing is read as a request."""
    head = serving.head("POST", "/nowhere", "Content-Length: 30", "Expect: 100-continue")
    with serving.raw() as connection:
        connection.sendall(head)
        answer = received(connection)
    assert status_of(answer) == 404
    assert b"connection: close" in answer


def leave_an_answer_unread(serving: HttpServing) -> None:
    """Ask for more than the kernel takes, and for the end of the connection; then read nothing."""
    id_ = serving.submit("many", count=2_000_000)
    serving.result(id_)
    head = serving.head(
        "GET",
        f"/v1/requests/{id_}/result",
        "Accept: application/octet-stream",
        "Connection: close",
    )
    gateway = Path(f"/proc/{serving.gateway_pid}/fd")
    before = len(list(gateway.iterdir()))
    with contextlib.ExitStack() as open_:
        for _ in range(20):
            connection = open_.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", serving.port))
            connection.sendall(head)
        until(lambda: len(list(gateway.iterdir())) >= before + 10)
        until(lambda: len(list(gateway.iterdir())) <= before + 2, timeout=50)


def be_slow_and_silent(serving: HttpServing) -> None:
    """Send a byte now and then, or nothing."""
    with serving.raw(60) as silent, serving.raw(60) as slow, serving.raw(60) as bodiless:
        bodiless.sendall(serving.head("POST", "/v1/requests/add", "Content-Length: 9"))
        began = time.monotonic()
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(8):
            time.sleep(1)
            slow.sendall(b"A: b\r\n")
        answer = received(slow)
        assert status_of(answer) == 408
        assert 9 < time.monotonic() - began < 14
        assert received(silent) == b""
        assert time.monotonic() - began < 16
        assert status_of(received(bodiless)) == 408
        assert 28 < time.monotonic() - began < 36


def leave_events_unread(serving: HttpServing) -> None:
    """Follow a log of some megabytes, and read none of it."""
    id_ = serving.submit("shout", count=100_000)
    serving.result(id_)
    before = proportional_bytes(serving.gateway_pid)
    head = serving.head("GET", f"/v1/requests/{id_}/logs", "Accept: text/event-stream")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", serving.port))
        connection.settimeout(60)
        connection.sendall(head)
        began = time.monotonic()
        while time.monotonic() - began < 36:
            assert proportional_bytes(serving.gateway_pid) - before < 8 * MIB
            time.sleep(1)
        received(connection)  # what lay in the buffers, and then the end
        assert time.monotonic() - began < 50


Play = Callable[[HttpServing], None]


@pytest.fixture(scope="module")
def played(
    serving: HttpServing, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Play], None]]:
    """Says what became of a client that holds on to its connection.

    Each of them takes the half minute of a limit, so all of them begin with the first that is asked
    for; the one that looks at memory has a gateway of its own.
    """
    with HttpServing(tmp_path_factory.mktemp("other")) as other, ThreadPoolExecutor() as threads:
        plays = {
            leave_an_answer_unread: threads.submit(leave_an_answer_unread, serving),
            be_slow_and_silent: threads.submit(be_slow_and_silent, serving),
            leave_events_unread: threads.submit(leave_events_unread, other),
        }
        yield lambda play: plays[play].result(100)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_client_that_does_not_read_its_last_answer_is_ended(
    played: Callable[[Play], None],
) -> None:
    """Its connection is closed for the gateway, and must not stay for the kernel."""
    played(leave_an_answer_unread)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_slow_and_silent_clients_are_ended(played: Callable[[Play], None]) -> None:
    """A client that sends a byte now and then, or nothing, keeps no connection for ever."""
    played(be_slow_and_silent)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_reader_of_events_that_does_not_read_is_ended(played: Callable[[Play], None]) -> None:
    """It holds its connection for half a minute, and no more memory than a buffer."""
    played(leave_events_unread)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_connections(tmp_path: Path) -> None:
    """As many as `max_connections` are open at once, and one more client is told why not."""
    count = 10_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 500:
        pytest.skip(f"it needs {count + 500} descriptors, and the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 500, hard))
    settings = {"FOREBAY_GATEWAY_MAX_CONNECTIONS_PER_ADDRESS": "20000"}
    try:
        with HttpServing(tmp_path, **settings) as serving, contextlib.ExitStack() as open_:
            before = proportional_bytes(serving.gateway_pid)
            some = [open_.enter_context(serving.raw(30)) for _ in range(count - 1)]
            head = serving.head("GET", "/healthz")
            for connection in some:
                connection.sendall(head)
            for connection in some:
                assert status_of(connection.recv(4096)) == 200
            grown = proportional_bytes(serving.gateway_pid) - before
            assert grown < count * 20_000, grown / count
            assert serving.call("POST", "/v1/requests/add", {"a": 1}).status == 202
            with serving.raw() as last, serving.raw() as beyond:
                last.sendall(head)
                assert status_of(last.recv(4096)) == 200
                assert status_of(received(beyond)) == 503
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
