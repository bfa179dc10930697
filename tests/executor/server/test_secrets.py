"""Secret arguments: the worker uses them, and nobody else finds them."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import msgpack

import forebay
from forebay.cli import main
from forebay.errors import ConfigError
from forebay.executor.app.manifest import manifest_of
from forebay.executor.app.secret import is_secret
from forebay.executor.app.types import shown
from tests.executor.serving import Caller, RefusedError, Serving

APP = (Path(__file__).parent / "secret_app.py").read_text()
PASSWORD = "correct-horse-battery-staple"


def hashed(user: str, password: str, pin: int | None = None) -> str:
    return hashlib.sha256(f"{user} {password} {pin}".encode()).hexdigest()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server of the application."""
    with Serving(tmp_path, APP) as made:
        yield made


@pytest.fixture
def caller(serving: Serving) -> Iterator[Caller]:
    """A client of it."""
    with serving.caller() as made:
        yield made


def state_of(serving: Serving) -> Path:
    (state,) = Path(serving.environment["FOREBAY_STATE_DIR"]).iterdir()
    return state


def found_in(directory: Path, text: str) -> list[str]:
    """The files that hold a text, whatever they are."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return [path.name for path in files if text.encode() in path.read_bytes()]


def test_a_secret_is_used_and_found_nowhere(serving: Serving, caller: Caller) -> None:
    """Not in the database and its log, nor in what the server answers, whatever it is asked."""
    assert caller.run("login", user="ann", password=PASSWORD) == hashed("ann", PASSWORD)
    waiting = caller.submit("login", {"delay_s": 60}, user="bob", password=PASSWORD, pin=7)
    state = state_of(serving)
    assert found_in(state, PASSWORD) == []
    assert found_in(state, "bob"), "what is not secret is there"
    key = state / "secret.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    told = [caller.ask(method, waiting) for method in ("show", "why", "status", "arguments")]
    assert PASSWORD not in str(told)
    assert told[0]["arguments"] == {"user": "bob", "password": "<secret>", "pin": "<secret>"}
    assert msgpack.decode(told[3]["arguments"]) == told[0]["arguments"]


def test_a_secret_outlives_the_server(serving: Serving, tmp_path: Path) -> None:
    """The next one opens it with the same key, for a request that waited."""
    with serving.caller() as caller:
        id = caller.submit("login", {"delay_s": 0.5}, user="ann", password=PASSWORD, pin=7)
    serving.kill()
    serving.start()
    with serving.caller() as caller:
        assert caller.wait(id) == hashed("ann", PASSWORD, 7)


def test_without_its_key_a_request_fails_and_says_so(serving: Serving) -> None:
    """And the server goes on, with a new key for new requests."""
    with serving.caller() as caller:
        id = caller.submit("login", {"delay_s": 0.5}, user="ann", password=PASSWORD)
    serving.kill()
    (state_of(serving) / "secret.key").unlink()
    serving.start()
    with serving.caller() as caller:
        with pytest.raises(RefusedError) as refused:
            caller.wait(id)
        assert "sealed with another key" in refused.value.told["message"]
        assert PASSWORD not in str(refused.value.told)
        assert caller.run("login", user="eve", password="x") == hashed("eve", "x")


def test_a_key_that_others_can_read_is_not_used(serving: Serving) -> None:
    """What it sealed would be known to them; requests wait until that is mended."""
    serving.kill()
    (state_of(serving) / "secret.key").chmod(0o644)
    serving.start(ready=False)
    assert "secret.key: other users can read" in serving.hear("unfit")["reason"]


def test_a_refusal_does_not_show_it(caller: Caller) -> None:
    """Of a secret that is of another type, while others are shown."""
    with pytest.raises(RefusedError) as refused:
        caller.run("login", user="ann", password={PASSWORD: 1})
    assert PASSWORD not in str(refused.value.told)
    assert refused.value.told["value"] == "<secret>"
    assert "parameter password" in refused.value.told["object"]
    with pytest.raises(RefusedError) as refused:
        caller.run("login", user=5, password=PASSWORD)
    assert refused.value.told["value"] == "5"


def test_without_secrets_there_is_no_key(tmp_path: Path) -> None:
    """A server of another application makes none."""
    plain = (
        "import forebay\napp = forebay.App('a')\n@app.request()\ndef f(x: str) -> str: return x\n"
    )
    with Serving(tmp_path, plain) as serving, serving.caller() as caller:
        assert caller.run("f", x="y") == "y"
        assert not (state_of(serving) / "secret.key").exists()


def test_a_command_line_takes_no_secret(
    serving: Serving, caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Every user sees the arguments of a process; a file and standard input are seen by none."""
    url = f"unix://{serving.socket}"
    command = ["run", "--url", url, "--quiet", "login", "--user", "ann"]
    assert main([*command, "--password", PASSWORD]) == 2
    told = capsys.readouterr().err
    assert "@FILE" in told
    assert PASSWORD not in told
    assert main([*command, "--password", f"@{tmp_path / 'none'}"]) == 2
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    capsys.readouterr()
    assert main([*command, "--password", f"@{tmp_path / 'password'}"]) == 0
    assert capsys.readouterr().out.strip() == hashed("ann", PASSWORD)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    assert main([*command, "--password", "-"]) == 0
    assert capsys.readouterr().out.strip() == hashed("ann", PASSWORD)


def test_a_replay_does_not_call_with_something_else(
    serving: Serving, caller: Caller, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The arguments that it would get are not those that the request had."""
    id = caller.submit("login", user="ann", password=PASSWORD)
    caller.wait(id)
    assert main(["replay", id, "--url", f"unix://{serving.socket}"]) == 2
    assert "'password' is secret" in capsys.readouterr().err


def test_the_manifest_says_that_and_no_default() -> None:
    """A default would stand in every copy of the description."""
    app = forebay.App("a")

    @app.request()
    def f(
        key: forebay.Secret[str] = PASSWORD,
        other: forebay.Secret[int] | None = None,
        plain: str = "default",
    ) -> None: ...

    (request,) = manifest_of(app, None, target="a")["requests"]
    told = {one["name"]: one for one in request["parameters"]}
    assert told["key"]["secret"] is told["other"]["secret"] is True
    assert "secret" not in told["plain"]
    assert told["plain"]["default"] == "default"
    assert PASSWORD not in json.dumps(request)
    assert told["key"]["annotation"] == "Secret[str]"


def test_a_secret_is_no_concurrency_key() -> None:
    """Keys are kept in clear, and shown."""
    app = forebay.App("a")
    with pytest.raises(ConfigError, match="concurrency_key"):

        @app.request(concurrency=1, concurrency_key="token")
        def f(token: forebay.Secret[str]) -> None: ...


@dataclasses.dataclass
class Login:
    user: str
    password: forebay.Secret[str]


class Account(msgspec.Struct):
    login: Login | None
    parent: Account | None = None


class Plain(msgspec.Struct):
    name: str
    next: Plain | None = None


def test_marks_are_found_wherever_they_are() -> None:
    """A part of an argument that is secret makes the whole secret."""
    for annotation in (forebay.Secret[str], forebay.Secret[str] | None, list[forebay.Secret[int]]):
        assert is_secret(annotation)
    for annotation in (Login, Account, dict[str, Account]):
        assert is_secret(annotation), "the password was kept in clear"
    assert not is_secret(Plain)
    for annotation in (str, list[str], Annotated[str, "else"], None, Any):
        assert not is_secret(annotation)
    assert shown(forebay.Secret[dict[str, int]]) == "Secret[dict[str, int]]"
