"""Hooks: a receiver hears of each request that is dead at least once, and nobody waits for it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from forebay._hook_config import HookConfig
from forebay.errors import BrokenError, ClosedError
from forebay.executor.server.hooks import driver, payload
from forebay.executor.server.hooks.driver import Hooks
from tests.executor.server.receiver import Handler, Receiver, late, status
from tests.executor.serving import Caller, RefusedError, Serving, descendants, until, wait_gone
from tests.transport.certificates import Authority

APP = """
import os
import time

import forebay

app = forebay.App("hooked")


@app.request()
def fails(number: int = 0) -> None:
    raise ValueError(f"number {number}\\nsecond line")


@app.request(retries=5, backoff="10ms")
def dies() -> None:
    os._exit(3)


@app.request(lane="short")
def adds(a: int, b: int) -> int:
    return a + b


@app.request()
def holds(size: int) -> None:
    held = b"x" * size
    while held:
        time.sleep(0.05)


@app.request()
def enters(password: forebay.Secret[str]) -> None:
    raise ValueError(f"no user with {password}")
"""
SECRET = b"a secret of some bytes"
KILLS = int(os.environ.get("FOREBAY_HOOK_KILLS", "4"))
TIMES = float(os.environ.get("FOREBAY_HOOK_TIMES", "0.05"))
"""Of the seconds between two tries."""
QUICK = {"hook_waits_s": [0.1, 0.1, 0.1, 0.1]}
"""Tries come one upon the other."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver."""
    with Receiver() as made:
        yield made


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    """Servers of the application with hooks."""
    made: list[Serving] = []

    def start(*hooks: dict[str, Any], **settings: Any) -> Serving:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        serving = Serving(folder, APP, hooks=hooks, **QUICK | settings)
        made.append(serving)
        return serving.start()

    yield start
    for serving in made:
        serving.close()


def webhook(receiver: Receiver, name: str = "ops", **more: Any) -> dict[str, Any]:
    """A hook that calls a receiver."""
    return {"name": name, "on": ["dead", "failed"], "url": receiver.url, **more}


def fail(caller: Caller, count: int = 1) -> list[str]:
    """Have requests fail; their ids."""
    ids = [caller.taken(it) for it in [caller.begin("fails", number=n) for n in range(count)]]
    for id in ids:
        with pytest.raises(RefusedError):
            caller.wait(id)
    return ids


def ids_of(receiver: Receiver, wanted: list[str], timeout: float = 60.0) -> list[str]:
    """The ids of requests that a receiver hears of, until it has heard of all that are wanted."""
    heard: list[str] = []
    deadline = time.monotonic() + timeout
    while not set(wanted) <= set(heard):
        heard.append(receiver.call(deadline - time.monotonic()).told["request"]["id"])
    return heard


def waiting(caller: Caller) -> int:
    """How many calls are not answered."""
    return sum(one["waiting"] for one in caller.ask("hooks")["hooks"])


def log_of(caller: Caller) -> list[dict[str, Any]]:
    """The lines of the log."""
    calls: list[dict[str, Any]] = caller.ask("hook_log", 1000)["calls"]
    return calls


def delivered(serving: Serving) -> None:
    """Until nothing waits."""
    with serving.caller() as caller:
        until(lambda: waiting(caller) == 0, why=lambda: log_of(caller))


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


def test_a_receiver_that_was_down_hears_of_everything(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """A restart of the receiver costs no event, and requests went on meanwhile."""
    receiver.stop()
    serving = serve(webhook(receiver), hook_waits_s=[0.2, 0.5, 2.0, 30.0])
    with serving.caller() as caller:
        ids = fail(caller, 20)
        until(lambda: sum(one["try"] >= 2 for one in log_of(caller)) > 4)
        assert caller.run("adds", a=1, b=2) == 3
        receiver.start()
        heard = ids_of(receiver, ids)
        delivered(serving)
    assert sorted(heard) == sorted(ids)


@pytest.mark.timeout(600)
def test_a_receiver_that_is_down_for_a_minute_hears_of_everything(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """The times of the tries cover a minute: with `TIMES` 1 a real one."""
    receiver.stop()
    serving = serve(webhook(receiver), hook_waits_s=[TIMES * it for it in (5, 30, 120, 600)])
    with serving.caller() as caller:
        begun = time.monotonic()
        ids = fail(caller, 5)
        until(lambda: time.monotonic() - begun > TIMES * 60, 70)
        assert caller.run("adds", a=1, b=2) == 3
        receiver.start()
        heard = ids_of(receiver, ids, timeout=200)
        delivered(serving)
    assert sorted(heard) == sorted(ids)


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


@pytest.mark.timeout(900)
def test_a_killed_server_loses_no_call(serve: Callable[..., Serving], receiver: Receiver) -> None:
    """SIGKILL between the end of a request and its delivery: the next server delivers."""
    serving = serve(webhook(receiver))
    ids = []
    for number in range(KILLS):
        with serving.caller() as caller:
            submitted = [caller.submit("fails", number=it) for it in range(8)]
            with pytest.raises(RefusedError):
                caller.wait(submitted[number % 8])
            ids += submitted
        serving.kill()
        serving.start()
    heard = ids_of(receiver, ids)
    delivered(serving)
    while not receiver.calls.empty():
        heard.append(receiver.call().told["request"]["id"])
    assert set(heard) == set(ids)


def test_a_killed_hooks_process_loses_no_call(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """What it was at is tried again, by another one."""
    released = threading.Event()
    receiver.answers = [late(released)]
    serving = serve(webhook(receiver))
    with serving.caller() as caller:
        (id,) = fail(caller)
        first = receiver.call()
        (pid,) = hooks_processes(serving)
        os.kill(pid, 9)
        released.set()
        second = receiver.call()
        assert second.id == first.id
        assert second.told["request"]["id"] == id
        delivered(serving)
        assert log_of(caller)[0]["said"] == "the hooks process died"


def hooks_processes(serving: Serving) -> list[int]:
    """The hooks processes of a server."""

    def line(pid: int) -> bytes:
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return b""

    return [pid for pid in descendants(serving.pid) if b"server.hooks.process" in line(pid)]


COMMAND = """
import json, os, subprocess, sys, time
told = json.load(sys.stdin)
with open(sys.argv[1], "a") as file:
    left = sorted(set(os.environ) - {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ"})
    pid = 0
    if sys.argv[2] != "plain":
        pid = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
    print(json.dumps([told["event"], told.get("request", {}).get("id"), left, pid]), file=file)
print("said", sys.argv[2])
if sys.argv[2] == "hangs":
    time.sleep(600)
sys.exit(3 if sys.argv[2] == "fails" else 0)
"""


def command(tmp_path: Path, how: str) -> tuple[dict[str, Any], Path]:
    """A hook that runs a command, and where that notes what it was told."""
    program, notes = tmp_path / f"{how}.py", tmp_path / f"{how}.notes"
    program.write_text(COMMAND)
    argv = [sys.executable, str(program), str(notes), how]
    return {"name": how, "on": ["failed"], "command": argv}, notes


def notes_of(path: Path) -> list[list[Any]]:
    """What a command has noted."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("]")]


def test_a_command_is_told_on_stdin_and_sees_little_else(
    serve: Callable[..., Serving], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens in the server's environment are not the command's."""
    monkeypatch.setenv("SOME_TOKEN", "secret")
    hook, notes = command(tmp_path, "plain")
    serving = serve(hook)
    with serving.caller() as caller:
        (id,) = fail(caller)
        delivered(serving)
        ((event, told, left, _),) = notes_of(notes)
        assert (event, told) == ("failed", id)
        assert set(left) <= {"FOREBAY_EVENT", "FOREBAY_HOOK", "LC_CTYPE"}
        assert log_of(caller)[0]["said"] == "exit code 0: said plain"


def test_what_a_command_leaves_behind_is_killed(
    serve: Callable[..., Serving], tmp_path: Path
) -> None:
    """Neither a command that hangs nor its children stay, and the exit code decides."""
    fails, failed = command(tmp_path, "fails")
    hangs, hung = command(tmp_path, "hangs")
    forks, forked = command(tmp_path, "forks")
    serving = serve(fails, hangs, forks, hook_try_s=2.0)
    with serving.caller() as caller:
        fail(caller)
        until(lambda: sum(one["given_up"] for one in caller.ask("hooks")["hooks"]) == 2, 60)
        assert len(notes_of(failed)) == len(notes_of(hung)) == 5
        assert len(notes_of(forked)) == 1
        for *_, pid in notes_of(failed) + notes_of(hung) + notes_of(forked):
            wait_gone(pid)
        errors = {one["name"]: one["error"] for one in caller.ask("hooks")["hooks"]}
        assert errors["fails"] == "exit code 3: said fails"
        assert errors["hangs"] == "no answer within 2 s"
        assert errors["forks"] is None


def test_a_killed_server_leaves_no_command(serve: Callable[..., Serving], tmp_path: Path) -> None:
    """The hooks process ends with the server, and what it runs with it."""
    hook, notes = command(tmp_path, "hangs")
    serving = serve(hook)
    with serving.caller() as caller:
        fail(caller)
        until(lambda: notes_of(notes))
    ((*_, grandchild),) = notes_of(notes)
    os.kill(serving.pid, 9)
    serving.ended()
    wait_gone(grandchild)


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


def test_a_limit_that_is_near_is_told_once(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """Queue and disk: once when it comes near, not with each look."""
    hook = {**webhook(receiver), "on": ["queue", "disk"], "above": 0.5, "free": 10**18}
    serving = serve(hook, max_queued=10, hook_look_s=0.05, short_workers=1)
    told = receiver.call().told
    assert told["event"] == "disk"
    assert told["limit"]["kind"] == "disk"
    assert 0 < told["limit"]["value"] < told["limit"]["limit"] == 10**18
    with serving.caller() as caller:
        for number in range(8):
            caller.submit("fails", {"delay_s": 600}, number=number)
        told = receiver.call().told
        assert told["event"] == "queue"
        assert told["limit"] == {"kind": "queue", "value": told["limit"]["value"], "limit": 10}
        assert told["limit"]["value"] > 5
        with pytest.raises(queue.Empty):  # twenty looks later
            receiver.call(1.0)


def test_memory_that_is_near_its_limit_is_told(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """Of the limit that the server has, by what its workers hold."""
    hook = {**webhook(receiver), "on": ["memory"], "above": 0.5}
    serving = serve(hook, max_memory=500_000_000, hook_look_s=0.05)
    with serving.caller() as caller:
        assert caller.run("adds", a=1, b=2) == 3
        assert receiver.calls.empty()
        id = caller.submit("holds", size=270_000_000)
        call = receiver.call()
        gauges = {name: value for name, _, value in caller.ask("metrics")["gauges"]}
        caller.ask("cancel", id)
    assert call.told["event"] == "memory"
    limit = call.told["limit"]
    assert (limit["kind"], limit["limit"]) == ("memory", gauges["forebay_memory_limit_bytes"])
    assert limit["limit"] / 2 < limit["value"] < limit["limit"]


def test_memory_and_queue_are_the_gauges_of_the_server(tmp_path: Path) -> None:
    """Memory calls above its part and not below it; requests that wait and that run both count."""
    hooks = idle_hooks(tmp_path, "memory", "queue")
    held = 900
    hooks._metrics = lambda: {
        "gauges": [
            ("forebay_memory_limit_bytes", {}, 1000),
            ("forebay_memory_resident_bytes", {}, held),
            ("forebay_requests_waiting", {"reason": "worker"}, 3),
            ("forebay_requests_waiting", {"reason": "time"}, 4),
            ("forebay_requests_running", {}, 5),
        ]
    }
    assert hooks._values() == {"memory": (900, 1000), "queue": (12, 100)}
    hooks._look()
    assert hooks.outbox.reports() == 0
    held = 901
    hooks._look()
    hooks._look()
    assert hooks.outbox.reports() == 1


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


def idle_hooks(tmp_path: Path, *on: str) -> Hooks:
    """Hooks of one hook, without a thread or a store."""
    hook = HookConfig("ops", on=on or ("dead",), url="https://a")
    return Hooks([hook], state=tmp_path, app="a.py", number=0, max_queued=100)


class Rows:
    """Rows of an outbox, for those who only read."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def deliveries(self, hook: str, count_max: int) -> list[dict[str, Any]]:
        """The rows."""
        return self._rows[:count_max]


def test_a_test_after_the_end_of_the_hooks_is_refused(tmp_path: Path) -> None:
    """Nobody would answer it."""
    hooks = idle_hooks(tmp_path)
    hooks._ending = True
    with pytest.raises(ClosedError, match="the hook was not called"):
        hooks.test("ops")


def test_a_store_that_cannot_be_read_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not each second of it; what changes is told, and that it is over."""
    hooks = idle_hooks(tmp_path)
    turns = [BrokenError("a"), BrokenError("a"), BrokenError("b"), None, BrokenError("b"), None]

    def turn() -> None:
        fault = turns.pop(0)
        hooks._ending = not turns
        if fault is not None:
            raise fault

    monkeypatch.setattr(hooks, "_turn", turn)
    monkeypatch.setattr(driver, "PAUSE_S", 0.0)
    hooks._run()
    wrong, again = "hooks are not called for now: ", "hooks are called again"
    assert caplog.messages == [f"{wrong}a", f"{wrong}b", again, f"{wrong}b", again]
    assert all(it.exc_info is None for it in caplog.records)


def test_a_row_that_cannot_be_sent_ends_its_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else four of them would be the last that were ever tried."""
    hooks = idle_hooks(tmp_path)
    row: dict[str, Any] = {"number": 1, "tries": 0, "due_at": 0, "event": "queue", "at": 0}
    row |= {"request": None, "name": None, "detail": "no JSON"}
    rows = Rows([row | {"token": f"t{number}"} for number in range(9)])
    monkeypatch.setattr(hooks, "_reader", rows, raising=False)
    for _ in range(3):
        hooks._begin_due()
    assert hooks._turns.flying == []
    assert hooks.outbox.reports() == 6
    monkeypatch.setattr(payload, "body", lambda *_: {}["none"])
    done: Future[dict[str, Any]] = Future()
    hooks._tests.put((hooks._hooks["ops"], done))
    hooks._begin_tests()
    told = done.result(0)
    assert (told["delivered"], told["said"]) == (False, "it cannot be called: KeyError('none')")
    assert caplog.messages == ["hook ops cannot be called"] * 7
    caplog.clear()  # its tracebacks hold the hooks


def test_where_no_report_has_room_nothing_is_tried_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that stays full: what a receiver has answered would be forgotten."""
    hooks = idle_hooks(tmp_path, "dead", "disk")
    row: dict[str, Any] = {"number": 1, "token": "t", "tries": 0, "due_at": 0, "event": "dead"}
    row |= {"at": 0, "request": None, "name": None, "detail": "null"}
    monkeypatch.setattr(hooks, "_reader", Rows([row]), raising=False)
    monkeypatch.setattr(hooks, "_ask", lambda *_: None)
    monkeypatch.setattr(hooks, "_values", lambda: {"disk": (1, 100)})
    most = hooks.outbox.room()
    for _ in range(most - 1):
        assert hooks.outbox.add("ops", "disk", 0, "{}")
    hooks._begin_due()
    assert hooks._turns.flying == ["t"]
    hooks._look()
    assert hooks.outbox.room() == 1, "what is left is for the end of the try"
    hooks._end("t", "204", 0.1, is_answered=True)
    assert (hooks.outbox.room(), hooks.outbox.reports()) == (0, most)
    assert not hooks.outbox.add("ops", "disk", 0, "{}")
    monkeypatch.setattr(hooks, "_reader", Rows([row | {"token": "u"}]))
    hooks._begin_due()
    assert (hooks._turns.flying, hooks._due_ms) == ([], None)
    monkeypatch.setattr(hooks, "outbox", idle_hooks(tmp_path).outbox)  # all is on disk
    hooks._look()
    assert hooks.outbox.reports() == 1, "the limit that was near meanwhile"
    hooks._begin_due()
    assert hooks._turns.flying == ["u"]


def test_a_secret_that_others_can_read_starts_no_server(
    serve: Callable[..., Serving], receiver: Receiver, tmp_path: Path
) -> None:
    """Whoever can read it could sign."""
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o644)
    with pytest.raises(AssertionError, match=r"hook 'ops': .*chmod 600 .*replace what is in it"):
        serve(webhook(receiver, secret_file=str(secret)))
