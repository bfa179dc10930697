"""Deliveries: a receiver hears of each request that is dead, and nobody waits for it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.executor.server.hooks.hooked import SECRET, delivered, fail, log_of, waiting, webhook
from tests.executor.server.hooks.receiver import Receiver, late, status
from tests.executor.serving import RefusedError, Serving, until


def test_a_dead_request_is_told_once_and_signed(
    serve: Callable[..., Serving], receiver: Receiver, tmp_path: Path
) -> None:
    """Somebody hears of it, knows who says so, and hears it once where nothing fails."""
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    hook = {**webhook(receiver, secret_file=str(secret)), "on": ["dead"]}
    serving = serve(hook, max_deaths=1)
    with serving.caller() as caller:
        fail(caller)  # which this hook does not want
        id = caller.submit("dies")
        with pytest.raises(RefusedError):
            caller.wait(id)
        call = receiver.call()
        told = call.told
        assert (told["schema"], told["event"], told["hook"]) == (1, "dead", "ops")
        assert told["request"] == {
            "id": id,
            "name": "dies",
            "status": "dead",
            "attempt": 1,
            "failure": {"cause": "died", "message": "exit, exit code 3"},
        }
        assert told["server"]["app"] == str(serving.file)
        stamp = call.headers["webhook-timestamp"]
        signed = f"{call.id}.{stamp}.".encode() + call.body
        digest = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
        assert call.headers["webhook-signature"] == f"v1,{digest}"
        assert abs(time.time() - int(stamp)) < 60
        delivered(serving)
        assert receiver.calls.empty()
        assert [one["outcome"] for one in log_of(caller)] == ["delivered"]


def test_a_receiver_that_refuses_hears_again_with_the_same_id(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """An answer of 500 is no delivery, nor is a redirect, whose target was not configured."""
    with Receiver() as other:
        receiver.answers = [
            status(500, b"no room"),
            status(302, location=other.url),
            status(404),
            status(200),
        ]
        serving = serve(webhook(receiver))
        with serving.caller() as caller:
            (id,) = fail(caller)
            calls = [receiver.call() for _ in range(4)]
            delivered(serving)
            assert {call.id for call in calls} == {calls[0].id}
            assert {call.body for call in calls} == {calls[0].body}
            assert calls[0].told["request"]["failure"]["message"] == "ValueError: number 0"
            outcomes = [(one["outcome"], one["try"], one["said"]) for one in log_of(caller)]
            assert outcomes == [
                ("failed", 1, "500 Internal Server Error: no room"),
                ("failed", 2, "302 Found"),
                ("failed", 3, "404 Not Found"),
                ("delivered", 4, "200 OK"),
            ]
            assert {one["id"] for one in log_of(caller)} == {id}
        assert other.calls.empty()


def test_after_five_tries_a_call_is_given_up_and_shown(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """A receiver that is gone for good is not called for ever, and the operator sees it."""
    receiver.answers = [status(503, b"away")] * 5
    serving = serve(webhook(receiver))
    with serving.caller() as caller:
        fail(caller)
        until(lambda: caller.ask("hooks")["hooks"][0]["given_up"])
        (shown,) = caller.ask("hooks")["hooks"]
        assert (shown["waiting"], shown["error"]) == (0, "503 Service Unavailable: away")
        assert [one["outcome"] for one in log_of(caller)] == ["failed"] * 4 + ["given_up"]
        told = {
            (name, labels.get("outcome")): value
            for kind in ("counters", "gauges")
            for name, labels, value in caller.ask("metrics")[kind]
            if name.startswith("forebay_hook")
        }
        assert told["forebay_hook_deliveries_total", "failed"] == 4
        assert told["forebay_hook_deliveries_total", "given_up"] == 1
        assert told["forebay_hooks_waiting", None] == 0
        fail(caller)  # the hook goes on
        delivered(serving)
    assert receiver.calls.qsize() == 6


def test_calls_of_a_hook_that_was_taken_out_are_shown_and_wait_for_its_return(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """Its operator sees them, nobody is alarmed by them, and they go on where it comes back."""
    receiver.answers = [status(500)]
    serving = serve(webhook(receiver), hook_waits_s=[600.0])
    with serving.caller() as caller:
        (id,) = fail(caller)
        until(lambda: log_of(caller))

    def configure(*hooks: dict[str, Any]) -> None:
        with serving.caller() as caller:
            caller.ask("stop", 0)
        assert serving.ended() == 0
        serving.settings.update(hooks=hooks, hook_waits_s=[0.1])
        serving.start()

    configure(webhook(receiver, "other"))
    with serving.caller() as caller:
        other, gone = caller.ask("hooks")["hooks"]
        assert (other["name"], other["is_configured"], other["waiting"]) == ("other", True, 0)
        assert (gone["name"], gone["is_configured"], gone["waiting"]) == ("ops", False, 1)
        assert (gone["target"], gone["error"]) == (None, "500 Internal Server Error")
        gauges = {name: value for name, _, value in caller.ask("metrics")["gauges"]}
        assert gauges["forebay_hooks_waiting"] == 0
    receiver.call()
    configure(webhook(receiver))
    assert receiver.call().told["request"]["id"] == id
    delivered(serving)


def test_a_secret_argument_is_in_no_call(serve: Callable[..., Serving], receiver: Receiver) -> None:
    """An exception may quote it, so the message of such a request stays here."""
    serving = serve(webhook(receiver))
    with serving.caller() as caller:
        id = caller.submit("enters", password="correct horse")
        with pytest.raises(RefusedError):
            caller.wait(id)
        call = receiver.call()
        assert call.told["request"]["failure"] == {"cause": "raised", "message": "ValueError"}
        assert b"correct horse" not in call.body
        fail(caller)
        assert b"arguments" not in receiver.call().body


def test_a_slow_hook_holds_no_request(serve: Callable[..., Serving], receiver: Receiver) -> None:
    """A thousand requests end while every try hangs, and as many commits serve them as without."""
    released = threading.Event()
    receiver.answers = [late(released)] * 2000
    try:
        serving = serve(webhook(receiver))
        with serving.caller() as caller:
            fail(caller, 20)
            receiver.call()
            calls = [caller.begin("adds", a=it, b=1) for it in range(1000)]
            ids = [caller.taken(call) for call in calls]
            assert [caller.wait(id) for id in ids] == [it + 1 for it in range(1000)]
            assert waiting(caller) == 20
            assert all(one["outcome"] != "delivered" for one in log_of(caller))
    finally:
        released.set()


def test_a_hook_may_be_tested(serve: Callable[..., Serving], receiver: Receiver) -> None:
    """Its owner sees the answer at once, and two tests that hang hold no other call."""
    released = threading.Event()
    serving = serve(webhook(receiver), hook_try_s=3.0)
    with serving.caller() as caller:
        told = caller.ask("hook_test", "ops")
        assert (told["delivered"], told["said"]) == (True, "204 No Content")
        assert receiver.call().told["event"] == "test"
        with pytest.raises(RefusedError, match="there is no hook 'other'"):
            caller.ask("hook_test", "other")
        receiver.answers = [late(released)] * 2
        with serving.caller() as first, serving.caller() as second, contextlib.ExitStack() as end:
            end.callback(released.set)
            asked = [it._channel.begin("hook_test", ("ops",)) for it in (first, second)]
            receiver.call()
            receiver.call()
            assert caller.run("adds", a=1, b=2) == 3
            assert caller.ask("prune", {"older_s": 3600})["pruned"] == 0
            released.set()
            for it, call in zip((first, second), asked, strict=True):
                kind, told = it._channel.finish(call, timeout=20)
                assert (kind, told["delivered"]) == (0, True)


def test_a_stop_waits_for_no_test(serve: Callable[..., Serving], receiver: Receiver) -> None:
    """Two tests hang, and a third waits for its thread: the server ends all the same."""
    released = threading.Event()
    receiver.answers = [late(released)] * 3
    serving = serve(webhook(receiver), hook_try_s=60.0)
    with contextlib.ExitStack() as end:
        end.callback(released.set)
        for _ in range(3):
            caller = end.enter_context(serving.caller())
            caller._channel.begin("hook_test", ("ops",))
            caller.ask("hooks")  # answered behind the test's beginning
        receiver.call()
        receiver.call()
        end.enter_context(serving.caller()).ask("stop", 0)
        assert serving.ended() == 0
    assert receiver.calls.empty()


def test_a_secret_that_others_can_read_starts_no_server(
    serve: Callable[..., Serving], receiver: Receiver, tmp_path: Path
) -> None:
    """Whoever can read it could sign."""
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o644)
    with pytest.raises(AssertionError, match=r"hook 'ops': .*chmod 600 .*replace what is in it"):
        serve(webhook(receiver, secret_file=str(secret)))
