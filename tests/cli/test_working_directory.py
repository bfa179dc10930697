"""Commands in a directory that was removed, that is another user's, and without /proc."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay._working_directory import path_to_enter, path_to_tell_apart, working_directory
from forebay.cli import main
from forebay.errors import ConfigError
from forebay.executor.app.target import parse_target
from forebay.executor.wire.paths import state_root
from forebay.pool.shared.path import shared_path
from tests.executor.serving import ROOT
from tests.other_user import as_nobody, needs_root

COMMANDS = (
    ["status"],
    ["ps"],
    ["config"],
    ["doctor"],
    ["pool", "ls"],
    ["run", "app.py:work"],
    ["serve", "app.py"],
    ["submit", "app.py:work"],
)


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever runs on this machine is no part of these tests; a socket's path is short."""
    with tempfile.TemporaryDirectory(prefix="fb-", dir="/tmp") as directory:
        for variable in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "FOREBAY_STATE_DIR"):
            monkeypatch.setenv(variable, f"{directory}/{variable.lower()}")
        yield


@pytest.fixture
def removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, which was removed."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    return gone


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_removed_directory_ends_no_command_in_a_traceback(
    removed: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """A shell stands in it after a checkout of another branch; the words say what to do."""
    code = main(command)
    told = capsys.readouterr()
    if "app.py" in command[-1]:
        assert code == 2
        assert "the current directory has no path" in told.err
        assert "give absolute paths" in told.err
    else:
        assert code in (0, 1, 3)
        assert told.out + told.err


def test_absolute_paths_need_no_directory(removed: Path, tmp_path: Path) -> None:
    """Nothing of what they name is in the directory that is gone."""
    app = tmp_path / "app.py"
    app.write_text("")
    assert parse_target(f"{app}:work").file == app
    assert state_root("/x") == Path("/x")
    assert shared_path("/x/pool.sock") == Path("/x/pool.sock")


def test_relative_paths_are_refused_there(removed: Path) -> None:
    """A bare FileNotFoundError of `os.getcwd` names neither path nor reason."""
    for use in (
        working_directory,
        lambda: parse_target("app.py"),
        lambda: state_root("state"),
        lambda: shared_path("pool.sock"),
    ):
        with pytest.raises(ConfigError, match="the current directory has no path"):
            use()


@needs_root
def test_a_directory_that_can_only_be_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `sudo -u` a process stands where it could not go; its children stand there too."""
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    inner.chmod(0o755)
    inner.parent.chmod(0o700)
    monkeypatch.chdir(inner)
    assert path_to_enter() == str(inner)
    assert as_nobody(lambda: (path_to_enter(), path_to_tell_apart())) == str(("", str(inner)))


@needs_root
@pytest.mark.parametrize(("folder_mode", "mode"), [(0o700, 0o644), (0o755, 0o600)])
def test_a_target_that_the_user_may_not_read_is_refused_by_name(
    tmp_path: Path, folder_mode: int, mode: int
) -> None:
    """Whoever may not look there is told that, not shown a traceback."""
    app = tmp_path / "closed" / "app.py"
    app.parent.mkdir()
    app.write_text("")
    app.chmod(mode)
    app.parent.chmod(folder_mode)

    def told() -> str:
        with pytest.raises(ConfigError) as caught:
            parse_target(f"{app}:work")
        return str(caught.value)

    assert f"this user may not read {app}" in as_nobody(told)


@needs_root
def test_doctor_of_a_service_account_below_a_closed_home(tmp_path: Path) -> None:
    """The command that is to say what is wrong must not be what is wrong."""
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    inner.chmod(0o755)
    inner.parent.chmod(0o700)
    program = (  # once as root: this clone itself may lie where that user cannot import
        "import contextlib, io, os\n"
        "from forebay.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()): main(['doctor'])\n"
        "os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
        "raise SystemExit(main(['doctor', '--json']))\n"
    )
    kept = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=inner,
        env={**environment, "HOME": str(inner.parent)},
    )
    assert "Traceback" not in done.stderr
    found = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert found["/proc"]["state"] == "ok"
    assert done.returncode in (0, 1)


@needs_root
@pytest.mark.needs("unshare")
def test_without_proc_the_reason_is_told(tmp_path: Path) -> None:
    """Some sandboxes have none; what then fails is a fork, deep in a template."""
    (tmp_path / "kept.py").write_text(
        "import forebay\nclass Kept(forebay.Service):\n    def ping(self): return 1\n"
    )
    program = (
        "import forebay, kept\n"
        "from forebay.cli import main\n"
        "with forebay.ServicePool(max_size=1) as pool:\n"
        "    try:\n"
        "        with pool.acquire(kept.Kept): pass\n"
        "    except forebay.ConfigError as error: print(error, flush=True)\n"
        "raise SystemExit(main(['doctor', '--json']))\n"
    )
    without = 'mount -t tmpfs none /proc && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", without, sys.executable, program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{tmp_path}"},
    )
    if "mount" in done.stderr:
        pytest.skip(f"mounting needs root: {done.stderr.strip()}")
    refused, *rows = done.stdout.splitlines()
    assert "mount it: mount -t proc proc /proc" in refused
    found = {row["name"]: row for row in map(json.loads, rows)}
    assert found["/proc"]["state"] == "missing"
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
