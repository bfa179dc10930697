"""Rights and streams of a running gateway: what ends when a token does, quotas, TLS."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import ssl
import time
from pathlib import Path

import pytest

from forebay.gateway.token import Role
from forebay.gateway.token_file import add_token, remove_token
from tests.executor.serving import until
from tests.gateway.http.http_serving import APP, Answer, HttpServing, received
from tests.transport.certificates import Authority


@pytest.fixture
def serving(tmp_path: Path) -> HttpServing:
    """Not started yet."""
    return HttpServing(tmp_path)


def test_a_stream_ends_with_its_token(serving: HttpServing, tmp_path: Path) -> None:
    """Whoever may read no longer reads nothing more, also on a connection that is open."""
    with serving:
        tokens = serving.state / "tokens.json"
        _, text = add_token(tokens, "guest", Role.READ)
        id_ = serving.submit("talk", path=str(tmp_path / "go"))
        until(lambda: serving.call("GET", f"/v1/requests/{id_}", token=text).status == 200)
        with serving.raw() as connection:
            head = f"GET /v1/requests/{id_}/logs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            head += f"Authorization: Bearer {text}\r\nAccept: text/event-stream\r\n\r\n"
            connection.sendall(head.encode())
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
            remove_token(tokens, "guest")
            began = time.monotonic()
            assert not received(connection).endswith(b"0\r\n\r\n")
            assert time.monotonic() - began < 5
        assert serving.call("GET", f"/v1/requests/{id_}", token=text).status == 401
        (tmp_path / "go").touch()


def test_a_role_may_what_it_may(serving: HttpServing) -> None:
    """The matrix of all routes is `test_matrix`'s; here one of each role."""
    with serving:
        tokens = serving.state / "tokens.json"
        _, reader = add_token(tokens, "reader", Role.READ)
        _, submitter = add_token(tokens, "submitter", Role.SUBMIT, quota=2)
        os.kill(serving.gateway_pid, signal.SIGHUP)
        until(lambda: serving.call("GET", "/v1/info", token=reader).status == 200)
        denied = serving.call("POST", "/v1/requests/add", {"a": 1}, token=reader)
        assert (denied.status, denied.json["code"]) == (403, "forbidden")
        denied = serving.call("POST", "/v1/prune", token=submitter)
        assert (denied.status, denied.json["code"]) == (403, "forbidden")
        accepted = serving.call("POST", "/v1/requests/add", {"a": 1}, token=submitter)
        told = serving.call("GET", f"/v1/requests/{accepted.json['id']}", token=reader).json
        assert told["submitter"] == "submitter"


def test_a_token_has_its_quota(serving: HttpServing, tmp_path: Path) -> None:
    """One holder does not fill the queue of all."""
    with serving:
        _, text = add_token(serving.state / "tokens.json", "few", Role.SUBMIT, quota=2)
        body = {"path": str(tmp_path / "go")}

        def hold() -> Answer:
            return serving.call("POST", "/v1/requests/hold", body, token=text)

        assert until(lambda: hold().status == 202)
        last = hold()
        assert last.status == 202
        refused = hold()
        one = f"/v1/requests/{last.json['id']}"
        serving.call("POST", f"{one}/cancel", token=text)
        assert until(lambda: hold().status == 202)  # in the place of the one that was cancelled
        for answer in (refused, serving.call("POST", f"{one}/retry", token=text)):
            assert (answer.status, answer.json["code"]) == (429, "limit")
            assert answer.json["object"] == 'submitter "few"'
            assert (answer.json["limit"], answer.json["value"]) == ("quota", 3)
            assert "retry-after" in answer.headers
        (tmp_path / "go").touch()


def test_streams_of_one_token_are_limited(serving: HttpServing, tmp_path: Path) -> None:
    """A page that opens streams in a loop does not use up the descriptors."""
    with serving, contextlib.ExitStack() as open_:
        id_ = serving.submit("talk", path=str(tmp_path / "go"))
        head = serving.head("GET", f"/v1/requests/{id_}/events")
        for _ in range(100):
            connection = open_.enter_context(serving.raw())
            connection.sendall(head)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        answer = serving.call("GET", f"/v1/requests/{id_}/events")
        assert (answer.status, answer.json["code"]) == (429, "limit")
        connection.close()
        (tmp_path / "go").touch()
        until(lambda: serving.call("GET", f"/v1/requests/{id_}/events").status == 200)


def test_a_certificate_encrypts_and_is_renewed(tmp_path: Path) -> None:
    """A certificate that is renewed needs no restart; one that is damaged breaks nothing."""
    authority = Authority(tmp_path)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def install(name: str) -> None:
        signed = authority.sign(name)
        shutil.copy(signed.cert, cert)
        shutil.copy(signed.key, key)

    install("first")
    directory = tmp_path / "app"
    directory.mkdir()
    serving = HttpServing(directory, APP, "--tls-cert", str(cert), "--tls-key", str(key))
    serving.tls = context = ssl.create_default_context(cafile=authority.ca)

    def serial() -> str:
        with context.wrap_socket(serving.raw(), server_hostname="127.0.0.1") as connection:
            shown = connection.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])

    with serving:
        assert serving.url.startswith("https://")
        assert serving.call("POST", "/v1/requests/add", {"a": 1}).status == 202
        before = serial()
        cert.write_text("damaged")
        time.sleep(1.5)
        assert serial() == before
        install("second")
        until(lambda: serial() != before)
        with serving.raw() as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200" not in received(plain)
