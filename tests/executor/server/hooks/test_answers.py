"""Receivers that answer late, strangely, not at all, or for somebody else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.executor.server.hooks.hooked import delivered, fail, ids_of, log_of, waiting, webhook
from tests.executor.server.hooks.receiver import Handler, Receiver, late, status
from tests.executor.serving import Serving, until
from tests.transport.certificates import Authority


def test_a_late_receiver_is_tried_again_and_holds_no_other(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """One that answers after the time of a try has not answered, and another one hears at once."""
    released = threading.Event()
    receiver.answers = [late(released)] * 2
    try:
        with Receiver() as prompt:
            serving = serve(webhook(receiver), webhook(prompt, "prompt"), hook_try_s=1.0)
            with serving.caller() as caller:
                ids = fail(caller, 6)
                ids_of(prompt, ids)
                assert ids_of(receiver, ids)
                delivered(serving)
                said = [one["said"] for one in log_of(caller) if one["outcome"] == "failed"]
                assert said == ["no answer within 1 s"] * 2
    finally:
        released.set()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_answer_after_eleven_seconds_is_none(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """The time of a try, unscaled, is ten seconds."""

    def after_11_s(handler: Handler) -> None:
        time.sleep(11)
        status(204)(handler)

    receiver.answers = [after_11_s]
    serving = serve(webhook(receiver))
    with serving.caller() as caller:
        fail(caller)
        first, second = receiver.call(), receiver.call()
        assert first.id == second.id
        delivered(serving)
        took = [one["seconds"] for one in log_of(caller)]
        assert 10 <= took[0] < 13


def huge(handler: Handler) -> None:
    """An answer without end."""
    handler.send_response(500)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(1 << 16))


def trickling(handler: Handler) -> None:
    """A byte of the head now and then."""
    while True:
        handler.wfile.write(b"H")
        handler.wfile.flush()
        time.sleep(0.1)


def no_http(handler: Handler) -> None:
    """Something else."""
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")


def forging(handler: Handler) -> None:
    """A reason and a body that would be more than a line."""
    handler.wfile.write(b"HTTP/1.1 503 no\x1b[2Jroom\x85here\r\n\r\nfirst\r\n\x1b[31msecond")


def interim(handler: Handler) -> None:
    """An answer behind one that says to go on."""
    handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")


def test_strange_answers_fail_the_try_and_nothing_else(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """Whatever a receiver sends, the next try comes, and no more than a bound is read of it."""
    receiver.answers = [huge, trickling, no_http, forging, interim]
    serving = serve(webhook(receiver), hook_try_s=1.5)
    with serving.caller() as caller:
        fail(caller)
        delivered(serving)
        said = [one["said"] for one in log_of(caller)]
        assert said[0].startswith("500 Internal Server Error")
        assert len(said[0]) < 300
        assert said[1:] == [
            "no answer within 1.5 s",
            "it answered with something that is not HTTP/1.1",
            "503 no [2Jroom here: first [31msecond",
            "200 OK",
        ]


def test_a_receiver_that_never_reads_costs_a_try_its_time(serve: Callable[..., Serving]) -> None:
    """It accepts, and does nothing: requests go on, and the server ends at once."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        serving = serve({"name": "deaf", "on": ["failed"], "url": url})
        with serving.caller() as caller:
            fail(caller, 10)
            assert caller.run("adds", a=1, b=2) == 3
            assert waiting(caller) == 10
            begun = time.monotonic()
            caller.ask("stop", 0)
        assert serving.ended() == 0
        assert time.monotonic() - begun < 8  # a try would take ten


def test_tls_is_verified(
    serve: Callable[..., Serving], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a receiver with a certificate for its name, of a CA that is trusted, is told."""
    authority = Authority(tmp_path / "ca")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    stranger = Authority(tmp_path / "stranger").sign("stranger")
    with (
        Receiver(authority.sign("right")) as right,
        Receiver(authority.sign("other", "elsewhere")) as other,
        Receiver(stranger) as strange,
    ):
        serving = serve(
            webhook(right, "right"), webhook(other, "other"), webhook(strange, "strange")
        )
        with serving.caller() as caller:
            (id,) = fail(caller)
            assert right.call().told["request"]["id"] == id
            until(lambda: sum(one["given_up"] for one in caller.ask("hooks")["hooks"]) == 2)
            errors = {one["name"]: one["error"] for one in caller.ask("hooks")["hooks"]}
            assert errors["right"] is None
            assert "CERTIFICATE_VERIFY_FAILED" in errors["other"]
            assert "CERTIFICATE_VERIFY_FAILED" in errors["strange"]
        assert other.calls.empty()
        assert strange.calls.empty()
