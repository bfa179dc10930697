"""Functions that end in ways that their authors did not mean, and where their servers run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType

import pytest

from forebay.errors import RemoteError
from forebay.executor.client.client import Client
from tests.executor.client_fixtures import client_of_serving, serving
from tests.executor.serving import Serving

__all__ = ["client_of_serving", "serving"]

APP = """
import sys
from datetime import datetime

import forebay

app = forebay.App("ends")


@app.request(lane="short")
def wrong() -> int:
    return "x"


@app.request(lane="short")
def leaving() -> None:
    sys.exit(3)


@app.request(lane="short")
def interrupted() -> None:
    raise KeyboardInterrupt


@app.request(lane="short")
def moment(at: datetime) -> datetime:
    return at
"""


@pytest.fixture
def module(serving: Serving) -> ModuleType:
    """The application, as a program imports it: its annotations are known."""
    spec = importlib.util.spec_from_file_location("ends_app", serving.file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_result_of_another_type_names_the_request(client: Client, module: ModuleType) -> None:
    """The value came as it is; the annotation is what is wrong."""
    request = client.submit(module.wrong)
    with pytest.raises(TypeError, match=r"wrong returned what its annotation does not say") as told:
        request.result(timeout=20)
    assert isinstance(told.value, RemoteError)
    assert "correct the annotation, or the value" in str(told.value)
    assert request.status() == "succeeded"


def test_a_function_that_calls_sys_exit_fails_and_its_worker_goes_on(client: Client) -> None:
    """An exit code alone says nothing to whoever waits."""
    with pytest.raises(RemoteError, match=r"the function called sys\.exit\(3\); return, or raise"):
        client.run("leaving")
    with pytest.raises(RemoteError, match="KeyboardInterrupt"):
        client.run("interrupted")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert client.run("moment", at=at) == at


def test_a_moment_comes_back_in_utc(client: Client, module: ModuleType) -> None:
    """The same moment; MessagePack has no place for the offset."""
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    back = client.submit(module.moment, noon).result(timeout=20)
    assert back == noon
    assert back.utcoffset() == timedelta(0)


def test_files_are_its_users_alone_whatever_the_umask_and_the_locale_are(tmp_path: Path) -> None:
    """A service that starts with umask 0 and LC_ALL=C; the name of its directory is not ASCII."""
    directory = tmp_path / "größe"
    directory.mkdir()
    serving = Serving(directory, APP)
    serving.environment |= {"LC_ALL": "C", "LANG": "C"}
    serving.program = ["/bin/sh", "-c", 'umask 0; exec "$@"', "sh", *serving.program]
    with serving, Client(f"unix://{serving.socket}", timeout=20.0) as client:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        assert client.run("moment", at=at) == at
        roots = [directory / "state", Path(serving.runtime)]
        found = [one for root in roots for one in [root, *root.rglob("*")] if one != roots[1]]
        modes = {str(one): one.lstat().st_mode for one in found if not one.is_symlink()}
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
    assert len(found) > 5


@pytest.mark.skipif(os.geteuid() == 0, reason="no directory is closed to root: an ordinary user")
@pytest.mark.parametrize("command", ["status", "ps"])
def test_commands_in_a_directory_that_cannot_be_read(
    serving: Serving, tmp_path: Path, command: str
) -> None:
    """A service account's own directory may be closed to it."""
    closed = tmp_path / "closed"
    closed.mkdir()
    program = [sys.executable, "-m", "forebay.cli"]
    close = 'cd "$0" && chmod 0 . && exec "$@"'
    try:
        told = subprocess.run(
            ["/bin/sh", "-c", close, closed, *program, command, "--json"],
            env=serving.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        closed.chmod(0o700)
    assert (told.returncode, told.stderr) == (0, "")
