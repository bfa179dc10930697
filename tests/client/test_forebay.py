"""`forebay.Client`, `forebay.AsyncClient` and the command, of a server elsewhere."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest

import forebay
import forebay_client
from forebay.cli import main
from tests.client.conftest import TOKEN
from tests.client.tls_serving import TlsServing

pytestmark = pytest.mark.leaks(
    reason="the server of all of them starts processes when it needs them"
)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServing]:
    """A server and its gateway with TLS, for all tests here."""
    with TlsServing(tmp_path_factory.mktemp("serving")) as serving:
        yield serving


class Done(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture
def command(serving: TlsServing, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command with the options in front of its name."""

    def run(*words: str) -> Done:
        whose = ["--url", serving.url, f"--token-file={serving.token_file}"]
        code = main([*whose, "--ca-file", str(serving.authority.ca), *words])
        told = capsys.readouterr()
        return Done(code, told.out, told.err)

    return run


def test_a_token_does_not_go_where_a_found_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The author of a cloned project says where; whoever gives a token says it too."""
    (tmp_path / "forebay.toml").write_text("url = 'https://elsewhere.example'")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(forebay.ConfigError, match="give the address by --url"):
        forebay.Client(token=TOKEN)
    forebay.Client("https://elsewhere.example", token=TOKEN).close()
    monkeypatch.setenv("FOREBAY_URL", "https://elsewhere.example")
    forebay.Client(token=TOKEN).close()


def test_an_address_of_a_gateway_makes_its_client(serving: TlsServing) -> None:
    """The program stays as it was but for the address."""
    with forebay.Client(serving.url, **serving.client_options) as client:
        assert isinstance(client, forebay.Client)
        assert isinstance(client, forebay_client.Client)
        assert client.is_remote
        assert client.run("double", 4) == 8
        values = client.run("array", count=3)
        assert isinstance(values, numpy.ndarray)
        assert client.run("total", values=values) == 3.0
        with pytest.raises(ValueError, match="odd") as caught:
            client.run("fail", text="odd")
        assert isinstance(caught.value, forebay.RemoteError)
        with pytest.raises(forebay.ConfigError, match="cannot be given over HTTP"):
            client.submit("double", n=1, options=forebay.Submit(submitter="me"))
        request = client.submit("double", n=1, options=forebay.Submit(priority=3, delay="1h"))
        later = client.submit("double", n=2, options=forebay.Submit(after=[request]))
        assert request.show()["priority"] == 3
        assert later.cancel() == request.cancel() == "now"


def test_event_loops_have_theirs(serving: TlsServing) -> None:
    """With the same methods."""

    async def main() -> list[int]:
        async with forebay.AsyncClient(serving.url, **serving.client_options) as client:
            assert isinstance(client, forebay.AsyncClient)
            requests = await client.submit_many("double", [{"n": at} for at in range(3)])
            return [await one.result() for one in requests]

    assert asyncio.run(main()) == [0, 2, 4]


def test_what_happens_is_followed(serving: TlsServing) -> None:
    """From the moment at which `follow` returns, and what the server keeps."""
    with forebay.Client(serving.url, **serving.client_options) as client:
        events = client.follow(names="double", events=["accepted", "ended"])
        request = client.submit("double", n=1)
        accepted, ended = next(events), next(events)
        events.close()
        assert [accepted["event"], ended["event"]] == ["accepted", "ended"]
        assert accepted["id"] == ended["id"] == request.id
        assert accepted["seq"] < ended["seq"]
        again = client.follow(ids=request.id, cursor=accepted["seq"])
        assert [next(again)["event"], next(again)["event"]] == ["started", "ended"]


def test_settings_name_a_gateway_and_its_token(
    serving: TlsServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a container gets them."""
    monkeypatch.setenv("FOREBAY_URL", serving.url)
    monkeypatch.setenv("FOREBAY_TOKEN_FILE", str(serving.token_file))
    with forebay.Client(ca_file=str(serving.authority.ca)) as client:
        assert client.info()["app"] == "elsewhere"
    with pytest.raises(forebay.ConfigError, match="both given"):
        forebay.Client(serving.url, app="app.py")


def test_what_a_gateway_needs_is_refused_for_a_socket() -> None:
    """A token that goes nowhere was meant for somewhere else."""
    for name, value in {"token": "x", "ca_file": "x", "plain_http": True}.items():
        with pytest.raises(forebay.ConfigError, match=f"{name} is for a gateway"):
            forebay.Client("unix:///none", **{name: value})  # type: ignore[arg-type]


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path) -> None:
    """Few need HTTP, so that it is an extra."""
    code = (
        "import sys; sys.modules['forebay_client'] = None; import forebay\n"
        "try: forebay.Client('https://localhost:1')\n"
        "except forebay.ConfigError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "pip install 'forebay[http]'" in done.stdout


def test_run_shows_the_log_and_prints_the_result(command: Command) -> None:
    """As of a server on this machine."""
    done = command("run", "talk", "--text", "hello")
    assert (done.code, done.out) == (0, "hello\n")
    lines = done.err.splitlines()
    assert [line for line in lines if line.startswith("hello")] == ["hello 0", "hello 1", "hello 2"]
    assert any("of 3 step)" in line for line in lines)
    failed = command("run", "fail", "--text", "odd")
    assert failed.code == 1
    assert "raised ValueError: odd" in failed.err


def test_a_request_is_submitted_and_asked_about(command: Command) -> None:
    """By its id, its beginning, and @last."""
    id_ = command("submit", "talk", "--text", "x", "--quiet").out.strip()
    assert command("wait", id_, "--quiet").code == 0
    assert command("result", id_).out == "x\n"
    assert command("logs", id_).out == "x 0\nx 1\nx 2\n"
    assert command("logs", "-f", "@last").out == "x 0\nx 1\nx 2\n"
    shown = json.loads(command("show", id_, "--json").out)
    assert (shown["id"], shown["status"]) == (id_, "succeeded")
    assert id_ in command("why", id_).out
    assert id_ in command("ps", "--name", "talk").out
    refused = command("retry", id_)
    assert refused.code == 1
    assert "not queued" in refused.out
    assert command("show", "0000").code == 4


def test_a_request_is_cancelled_and_queued_again(command: Command) -> None:
    """Exit codes are those of any server."""
    id_ = command("submit", "hold", "--seconds", "60").out.strip()
    assert command("cancel", id_).code == 0
    assert command("wait", id_).code == 6
    assert command("retry", id_).out == f"{id_} queued\n"
    command("cancel", id_)
    command("wait", id_)


def test_the_server_is_looked_at(command: Command) -> None:
    """And changed, by a token that may."""
    assert "elsewhere" in command("status").out
    assert "requests" in command("top").out
    assert command("cron").code == 0
    assert "would go" in command("prune", "--all", "--dry-run").out


@pytest.mark.parametrize("name", ["serve", "pool", "doctor", "config", "records", "token"])
def test_what_is_about_this_machine_says_so(name: str, command: Command) -> None:
    """Rather than to do it here, when a server elsewhere was meant."""
    done = command(name)
    assert done.code == 2
    assert f"forebay {name} is about this machine; leave --url out" in done.err


def test_replay_needs_the_code(command: Command) -> None:
    """Which is with the server."""
    command("run", "double", "--n", "1")
    done = command("replay", "@last")
    assert done.code == 2
    assert "does nothing over HTTP" in done.err


def test_a_wrong_token_is_an_error_with_a_next_step(
    serving: TlsServing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is shown nowhere."""
    path = tmp_path / "token"
    path.write_text(f"fb_{'x' * 43}\n")
    ca_file = str(serving.authority.ca)
    code = main(["--url", serving.url, "--token-file", str(path), "--ca-file", ca_file, "ps"])
    told = capsys.readouterr().err
    assert code == 2
    assert "xxx" not in told
    assert "token" in told


def test_stop_ends_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Over HTTP too; it says so when it has ended."""
    with TlsServing(tmp_path) as serving:
        options: list[Any] = ["--url", serving.url, "--token-file", str(serving.token_file)]
        code = main(["stop", *options, "--ca-file", str(serving.authority.ca), "--grace", "1s"])
        assert code == 0
        assert serving.ended(20) == 0
