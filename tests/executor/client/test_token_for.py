"""Which token a client shows, and to whom."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from forebay._runtime_directory import make_private
from forebay.configuration import Configuration, find_configuration
from forebay.errors import ConfigError
from forebay.executor.client.token import token_for
from forebay.executor.wire.paths import Notice, Running

URL = "https://forebay.corp"
TOKENS = {name: "fb_" + name * 43 for name in "abcd"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without servers and settings."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    make_private(tmp_path / "run" / "forebay")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configured(
    home: Path, environment: dict[str, str] | None = None, **given: str
) -> Configuration:
    environment = {"XDG_CONFIG_HOME": str(home / "home"), **(environment or {})}
    return find_configuration(given, start=home / "project", environment=environment)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_each_source_gives_way_to_the_one_above_it(home: Path) -> None:
    """Argument > environment > file of the user; nothing is none."""
    assert token_for(URL, configuration=configured(home)) is None
    write(home / "home/forebay/forebay.toml", f"token = '{TOKENS['a']}'")
    assert token_for(URL, configuration=configured(home)) == TOKENS["a"]
    variable = configured(home, {"FOREBAY_TOKEN": TOKENS["b"]})
    assert token_for(URL, configuration=variable) == TOKENS["b"]
    assert token_for(URL, token=TOKENS["c"], configuration=variable) == TOKENS["c"]
    file = write(home / "token", TOKENS["d"] + "\n")
    assert token_for(URL, token_file=str(file), configuration=variable) == TOKENS["d"]


def test_a_token_comes_from_the_first_line_of_its_file(home: Path) -> None:
    """With the path relative to the file that names it."""
    write(home / "home/forebay/forebay.toml", "token_file = 'secret'")
    write(home / "home/forebay/secret", f"  {TOKENS['a']} \nhttp://127.0.0.1:8000\n")
    assert token_for(URL, configuration=configured(home)) == TOKENS["a"]
    named = configured(home, {"FOREBAY_TOKEN_FILE": str(write(home / "other", TOKENS["b"]))})
    assert token_for(URL, configuration=named) == TOKENS["b"]


def test_what_is_no_token_is_sent_to_nobody(home: Path) -> None:
    """Nor shown: it may be another secret, in a file that was named by mistake."""
    file = write(home / "id_ed25519", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc")
    for given in ({"token_file": str(file)}, {"token": "hunter2"}):
        with pytest.raises(ConfigError, match="forebay token add") as caught:
            token_for(URL, configuration=configured(home), **given)  # type: ignore[arg-type]
        assert "OPENSSH" not in str(caught.value)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        token_for(URL, token_file=str(home / "none"), configuration=configured(home))


@pytest.mark.parametrize("name", ["token", "token_file"])
def test_a_file_that_was_found_names_no_token(home: Path, name: str) -> None:
    """The author of a cloned project could name any file of the user, and a server for it."""
    project = write(home / "project/forebay.toml", f"url = '{URL}'\n{name} = '{TOKENS['a']}'")
    found = configured(home)
    assert found.value(name) is None
    assert any(str(project) in it and name in it for it in found.warnings)
    assert token_for(URL, configuration=found) is None
    named = configured(home, {"FOREBAY_CONFIG": str(project)})
    assert named.value(name) is not None


def test_a_token_does_not_follow_an_address_that_was_found(home: Path) -> None:
    """A project that was cloned says where to, the user's token would go there."""
    write(home / "project/forebay.toml", f"url = '{URL}'")
    environment = {"FOREBAY_TOKEN": TOKENS["a"]}
    with pytest.raises(ConfigError, match="FOREBAY_URL"):
        token_for(URL, configuration=configured(home, environment))
    found = configured(home, environment)
    assert token_for(URL, is_argument=True, configuration=found) == TOKENS["a"]
    assert token_for("https://elsewhere", configuration=found) == TOKENS["a"]
    said = configured(home, {**environment, "FOREBAY_URL": URL})
    assert token_for(URL, configuration=said) == TOKENS["a"]


@pytest.mark.parametrize("name", ["token", "token_file"])
def test_a_token_that_is_an_argument_does_not_follow_either(home: Path, name: str) -> None:
    """Who gives a token in a cloned project has not given the address."""
    write(home / "project/forebay.toml", f"url = '{URL}'")
    file = write(home / "token", TOKENS["a"])
    given = {name: TOKENS["a"] if name == "token" else str(file)}
    found = configured(home)
    with pytest.raises(ConfigError, match="from an argument; if that server") as caught:
        token_for(URL, configuration=found, **given)  # type: ignore[arg-type]
    assert TOKENS["a"] not in str(caught.value)
    assert token_for(URL, is_argument=True, configuration=found, **given) == TOKENS["a"]  # type: ignore[arg-type]
    said = configured(home, {"FOREBAY_URL": URL})
    assert token_for(URL, configuration=said, **given) == TOKENS["a"]  # type: ignore[arg-type]


def test_a_token_is_no_part_of_any_text(home: Path) -> None:
    """Tracebacks and logs print settings."""
    found = configured(home, {"FOREBAY_TOKEN": TOKENS["a"]})
    assert found.settings["token"].shown == "<hidden>"
    assert TOKENS["a"] not in repr(found) + str(found.settings["token"])
    write(home / "home/forebay/forebay.toml", "token = 12345")
    with pytest.raises(ConfigError, match="token") as caught:
        configured(home)
    assert "12345" not in str(caught.value)


def test_a_server_of_this_user_that_runs_is_trusted_at_its_address(home: Path) -> None:
    """At another address, or once it has ended, its token stays here."""
    state = home / "state"
    make_private(state)
    file = write(state / "local.token", f"{TOKENS['a']}\nhttp://127.0.0.1:8000\n")
    file.chmod(0o600)
    running = Running(os.getpid(), time.time(), "app.py", "app.py", str(home / "s"), str(state))
    notice = Notice(home / "run" / "forebay" / "app.json", running)
    try:
        local = configured(home)
        assert token_for("http://127.0.0.1:8000/", configuration=local) == TOKENS["a"]
        assert token_for("http://127.0.0.1:8001", configuration=local) is None
        assert token_for(f"http://{TOKENS['a']}", configuration=local) is None
        file.chmod(0o644)
        assert token_for("http://127.0.0.1:8000", configuration=local) is None
        file.chmod(0o600)
    finally:
        notice.close()
    assert token_for("http://127.0.0.1:8000", configuration=configured(home)) is None
