"""The process of the gateway: killed, started again, ended with its server, and refused."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from forebay.gateway.process.settings import Settings
from forebay.gateway.process.supervisor import PROGRAM, WELL_S
from tests.executor.serving import until, wait_gone
from tests.gateway.http.http_serving import APP, COMMAND, HttpServing

KILLS = int(os.environ.get("FOREBAY_GATEWAY_KILLS", "5"))
"""`make chaos` has 100."""


@pytest.fixture
def serving(tmp_path: Path) -> HttpServing:
    """Not started yet; each test ends it."""
    return HttpServing(tmp_path)


def test_a_gateway_that_was_killed_is_started_again(serving: HttpServing) -> None:
    """Its address stays taken meanwhile, and a client that connects waits for it."""
    with serving:
        killed = serving.kill_gateway()
        assert serving.call("GET", "/v1/info").status == 200
        assert serving.gateway_pid != killed
        assert "signal 9" in serving.hear("warning")["text"]


def test_both_end_at_a_signal(serving: HttpServing) -> None:
    """Ctrl-C in the terminal, and SIGTERM of a service manager."""
    for number in (signal.SIGINT, signal.SIGTERM):
        with serving:
            gateway = serving.gateway_pid
            os.kill(serving.pid, number)
            assert serving.ended() == 128 + number
            wait_gone(gateway)


def test_the_gateway_ends_with_a_server_that_was_killed(serving: HttpServing) -> None:
    """A gateway without a server would keep the address of the next one."""
    with serving:
        id_ = serving.submit("add", a=1)
        serving.result(id_)
        gateway = serving.gateway_pid
        serving.kill()
        wait_gone(gateway)
        serving.start()
        assert serving.result(id_).json == 2


@pytest.mark.parametrize("how", ["lifeline", "signal"])
def test_a_gateway_whose_server_does_not_answer_ends_at_once(tmp_path: Path, how: str) -> None:
    """It would keep the address of the next one for half a minute."""
    read, write = os.pipe()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as silent,
        open(write, "wb", buffering=0) as lifeline,
    ):
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        silent.settimeout(20)
        told = Settings(
            server=f"unix://{tmp_path / 's'}", state_dir=str(tmp_path), host="127.0.0.1",
            port=listener.getsockname()[1], max_connections=9, max_connections_per_address=9,
            max_body_bytes=1 << 20,
        )  # fmt: skip
        given = (f"{listener.fileno()},{read}", msgspec.json.encode(told).decode())
        process = subprocess.Popen(
            [sys.executable, "-c", f"from {PROGRAM} import main; main()", *given],
            pass_fds=(listener.fileno(), read),
        )
        os.close(read)
        try:
            lifeline.write(b"+")
            asked, _ = silent.accept()
            with asked:
                assert asked.recv(1)  # and it waits for the answer
                began = time.monotonic()
                if how == "lifeline":
                    lifeline.close()
                else:
                    process.terminate()
                assert process.wait(20) == 0
                assert time.monotonic() - began < 5
        finally:
            process.kill()
            process.wait()


def test_no_accepted_request_is_lost_while_gateways_are_killed(
    serving: HttpServing, tmp_path: Path
) -> None:
    """What was answered runs, and what was not is submitted again under its key, once."""
    notes = tmp_path / "notes"
    over = threading.Event()
    accepted: dict[str, str] = {}

    def client(number: int) -> None:
        count = 0
        while not over.is_set():
            count += 1
            text = f"{number}-{count}"
            while text not in accepted:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    answer = serving.call(
                        "POST",
                        "/v1/requests/note",
                        {"path": str(notes), "text": text},
                        Idempotency_Key=text,
                    )
                    if answer.status == 202:
                        accepted[text] = answer.json["id"]

    with serving, concurrent.futures.ThreadPoolExecutor(6) as threads:
        clients = [threads.submit(client, number) for number in range(6)]
        try:
            for _ in range(4):
                time.sleep(WELL_S)  # one that ends sooner is started again after a longer pause
                serving.kill_gateway()
        finally:
            over.set()
        for one in clients:
            one.result()
        assert len(set(accepted.values())) == len(accepted)
        until(lambda: len(notes.read_text().split()) >= len(accepted))
        assert sorted(notes.read_text().split()) == sorted(accepted)


@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * KILLS)
def test_gateways_are_killed_under_load(serving: HttpServing) -> None:
    """However often, and at whatever moment."""
    over = threading.Event()
    accepted: list[str] = []

    def client(number: int) -> None:
        count = 0
        while not over.is_set():
            count += 1
            key = f"{number}-{count}"
            id_ = None
            while id_ is None:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    answer = serving.call(
                        "POST", "/v1/requests/add", {"a": count}, Idempotency_Key=key
                    )
                    id_ = answer.json.get("id")
            accepted.append(id_)
            over.wait(0.02)  # each is asked for below

    with serving, concurrent.futures.ThreadPoolExecutor(4) as threads:
        clients = [threads.submit(client, number) for number in range(4)]
        try:
            for _ in range(KILLS):
                time.sleep(WELL_S)
                serving.wait_healthy()
                serving.kill_gateway()
        finally:
            over.set()
        for one in clients:
            one.result()
        assert len(set(accepted)) == len(accepted)
        for id_ in accepted:
            assert serving.result(id_).status == 200


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--http", "8000"], "give a host and a port"),
        (["--http", "::1:8000"], "[::1]:8000"),
        (["--http", "0.0.0.0:0"], "--tls-cert"),
        (["--http", "127.0.0.1:0", "--tls-cert", "nowhere.pem"], "cannot be used"),
        (["--http", "127.0.0.1:0", "--tls-key", "key.pem"], "--tls-cert"),
    ],
)
def test_a_wrong_address_is_refused_at_once(
    serving: HttpServing, options: list[str], told: str
) -> None:
    """Before anything is served in clear, or not at all."""
    assert told in _complaint(serving, options)


def test_a_server_whose_application_does_not_load_is_not_ready(tmp_path: Path) -> None:
    """A balancer sends nothing to it, and the gateway answers nevertheless."""
    with HttpServing(tmp_path, "import nothing_of_that_name") as serving:
        assert serving.call("GET", "/healthz", token=None).status == 200
        ready = serving.call("GET", "/readyz", token=None)
        assert (ready.status, ready.json) == (503, {"ready": False})
        answer = serving.call("POST", "/v1/requests/add", {"a": 1})
        assert (answer.status, answer.json["code"]) == (503, "hold")


def test_http_needs_an_application(serving: HttpServing) -> None:
    """A lender of services has no requests to serve."""
    done = subprocess.run(
        [*COMMAND, "--http", "127.0.0.1:0"],
        env=serving.environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    serving.close()
    assert done.returncode == 2
    assert "name one" in done.stderr


def test_the_status_of_a_server_has_its_address(serving: HttpServing) -> None:
    """Whoever did not start it finds where it answers."""
    with serving:
        told = subprocess.run(
            [sys.executable, "-m", "forebay.cli", "status", "--app", serving.file.name],
            env=serving.environment,
            cwd=serving.file.parent,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    assert serving.url in told.stdout


def test_who_has_an_address_is_told(serving: HttpServing) -> None:
    """Whoever started it twice sees so."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = _complaint(serving, ["--http", f"127.0.0.1:{port}"])
    assert f"process {os.getpid()}" in told


def test_a_missing_package_is_named(serving: HttpServing, tmp_path: Path) -> None:
    """With what to type, instead of an ImportError in a log."""
    hidden = (
        "import importlib.util as u, sys; find = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name == 'httptools' else find(name, *a);"
        "from forebay.cli import main; sys.exit(main())"
    )
    program = [sys.executable, "-c", hidden, "serve"]
    told = _complaint(serving, ["--http", "127.0.0.1:0"], program)
    assert "pip install 'forebay[server]'" in told
    assert "httptools" in told


def test_beyond_loopback_in_clear_only_by_name(tmp_path: Path) -> None:
    """Behind a proxy that encrypts, everything is as ever."""
    serving = HttpServing(tmp_path, APP, "--plain-http")
    serving.host = "0.0.0.0"
    with serving:
        assert serving.call("GET", "/v1/info").status == 200


def _complaint(serving: HttpServing, options: list[str], program: list[str] = COMMAND) -> str:
    """What a command says that does not start."""
    done = subprocess.run(
        [*program, serving.file.name, *options],
        env=serving.environment,
        cwd=serving.file.parent,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    serving.close()
    assert done.returncode == 2, done
    return done.stderr


def test_a_busy_gateway_ends_soon(serving: HttpServing, tmp_path: Path) -> None:
    """A stream that nobody ends does not hold the end of the server."""
    with serving:
        id_ = serving.submit("talk", path=str(tmp_path / "go"))
        with serving.events(f"/v1/requests/{id_}/events") as events:
            next(events)
            (tmp_path / "go").touch()
            began = time.monotonic()
            os.kill(serving.pid, signal.SIGTERM)
            serving.ended()
            assert time.monotonic() - began < 20


def test_a_reader_goes_on_after_the_server_was_killed(serving: HttpServing, tmp_path: Path) -> None:
    """Its stream ends, and by its last id it misses nothing of the log and has nothing twice."""
    with serving:
        id_ = serving.submit("talk", path=str(tmp_path / "go"))
        with serving.events(f"/v1/requests/{id_}/logs") as events:
            first = next(events)
            serving.kill()
            with contextlib.suppress(OSError, http.client.HTTPException):
                assert list(events) == []
        serving.start()
        (tmp_path / "go").touch()
        with serving.events(f"/v1/requests/{id_}/logs", Last_Event_ID=first["id"]) as events:
            told = list(events)
        assert told[-1]["event"] == "end"
        offsets = [one["data"]["offset"] for one in told if one["event"] == "log"]
        assert offsets[:1] in ([int(first["id"])], [])
