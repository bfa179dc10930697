"""`forebay token`: who may call a server over HTTP."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from forebay._runtime_directory import make_private
from forebay.cli import main
from forebay.executor._internal import parse_target, paths_of
from forebay.gateway.local_token import offer_local
from forebay.gateway.tokens import Role, Tokens


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of an application, in a home of its own."""
    for variable, name in (("XDG_RUNTIME_DIR", "run"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setenv("FOREBAY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "tune.py"
    file.write_text("import forebay\napp = forebay.App('tune')\n")
    monkeypatch.setenv("FOREBAY_APP", str(file))
    return file


def state_of(app: Path) -> Path:
    return paths_of(parse_target(str(app))).state


def test_a_token_is_printed_once_and_lets_its_holder_in(
    app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stdout it stands alone: token=$(forebay token add ...)."""
    assert main(["token", "add", "ci", "--role", "submit", "--expires", "90d"]) == 0
    told = capsys.readouterr()
    text = told.out.strip()
    assert "this once" in told.err
    found = Tokens(state_of(app) / "tokens.json").find(text.encode())
    assert found is not None
    assert (found.name, found.role) == ("ci", Role.SUBMIT)
    assert found.expires == pytest.approx(found.made + 90 * 86_400, abs=2)
    assert main(["token", "ls"]) == 0
    listed = capsys.readouterr().out
    assert text not in listed
    assert listed.split()[5:8] == ["ci", "submit", "-"]


def test_json_has_the_token_where_it_is_made_alone(
    app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs read it there, and nowhere later."""
    assert main(["token", "add", "lab", "--role", "read", "--quota", "5", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["token"].startswith("fb_")
    assert main(["token", "ls", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    del made["token"]
    assert listed == made
    assert (listed["name"], listed["role"], listed["quota"]) == ("lab", "read", 5)
    assert (listed["expires_at"], listed["expired"]) == (None, False)


def test_a_removed_token_is_gone(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And one that was not there is told, with the code of what does not exist."""
    assert main(["token", "add", "ci", "--role", "read"]) == 0
    assert main(["token", "rm", "ci"]) == 0
    assert main(["token", "rm", "ci"]) == 4
    assert "forebay token ls" in capsys.readouterr().err
    assert main(["token", "ls"]) == 0
    assert "there are no tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [
        ["add", "ci"],
        ["add", "ci", "--role", "root"],
        ["add", "a b", "--role", "read"],
        ["add", "ci", "--role", "read", "--expires", "soon"],
        ["add", "ci", "--role", "read", "--quota", "0"],
        ["frobnicate"],
        [],
    ],
    ids=" ".join,
)
def test_what_is_wrong_makes_no_token(app: Path, given: list[str]) -> None:
    """Each is a mistake of the command line."""
    assert main(["token", *given]) == 2
    assert not state_of(app).exists()


def test_a_name_that_is_taken_is_refused(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to type."""
    assert main(["token", "add", "ci", "--role", "read"]) == 0
    assert main(["token", "add", "ci", "--role", "admin"]) == 2
    assert "forebay token rm ci" in capsys.readouterr().err


def test_a_link_leads_to_the_address_that_the_server_wrote(
    app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a gateway there is none."""
    assert main(["token", "link"]) == 4
    assert "--http" in capsys.readouterr().err
    offer_local(state_of(app), ["http://127.0.0.1:8000"])
    assert main(["token", "link"]) == 0
    assert capsys.readouterr().out.startswith("http://127.0.0.1:8000/login?key=")


def test_without_an_application_nothing_is_made(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not known whose server is meant."""
    monkeypatch.delenv("FOREBAY_APP")
    assert main(["token", "add", "ci", "--role", "read"]) == 4
    assert "--app" in capsys.readouterr().err


def test_a_token_is_hidden_in_the_settings(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`forebay config` is what people paste into a report."""
    monkeypatch.setenv("FOREBAY_TOKEN", "fb_" + "x" * 43)
    for form in ([], ["--json"]):
        assert main(["config", "token", *form]) == 0
        shown = capsys.readouterr().out
        assert "xxx" not in shown
        assert "<hidden>" in shown
        assert "FOREBAY_TOKEN" in shown


def test_the_state_directory_is_checked(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that others can enter holds no tokens."""
    make_private(state_of(app))
    os.chmod(state_of(app), 0o755)
    assert main(["token", "add", "ci", "--role", "read"]) == 2
    assert "chmod 700" in capsys.readouterr().err
