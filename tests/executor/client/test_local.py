"""Finding a server, and starting one where none runs."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import BrokenError, ConfigError, DeadlineError
from forebay.executor import Client
from forebay.executor.client import local
from forebay.executor.client.local import home_of, reach
from forebay.executor.wire.paths import Running, newest
from tests.executor.serving import ROOT, Caller, descendants, wait_gone
from tests.other_user import NOBODY, needs_root

APP = (Path(__file__).parents[1] / "server/server_app.py").read_text()


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An application without a server; whatever serves it is ended afterwards."""
    runtime = tempfile.mkdtemp(prefix="fb-", dir="/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setenv("FOREBAY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "python"), str(ROOT)]))
    monkeypatch.delenv("FOREBAY_APP", raising=False)
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "app.py"
    file.write_text(APP)
    yield file
    for pid in list(local._started):
        below = descendants(pid)
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        local._started.remove(pid)
        for one in below:
            wait_gone(one)
    shutil.rmtree(runtime)


def reached(app: str | None, *, start: bool = True, timeout: float = 30.0) -> tuple[str, list[str]]:
    told: list[str] = []
    path = reach(None, app, start=start, timeout=timeout, on_start=told.append)
    return path, told


def test_a_server_is_started_once_and_said_so(app: Path) -> None:
    """The first run starts it, the second one finds it."""
    path, told = reached(str(app))
    assert len(told) == 1
    assert f"process {local._started[0]}" in told[0]
    assert "15 idle minutes" in told[0]
    with Caller(path) as caller:
        assert caller.run("add", a=1) == 3
        assert caller.ask("info")["reloads"] is True
    assert reached(str(app)) == (path, [])
    assert reached(None, start=False) == (path, [])  # a bare name means the newest
    assert reach(f"unix://{path}", None, start=False, timeout=1.0, on_start=told.append) == path


def test_two_that_start_at_once_share_one_server(app: Path) -> None:
    """Two terminals, one application: one has the lock, the other one waits for it."""
    paths: list[str] = []
    threads = [
        threading.Thread(target=lambda: paths.append(reached(str(app))[0])) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 3
    assert len(set(paths)) == 1
    found = newest()
    assert found is not None
    with Caller(paths[0]) as caller:
        assert caller.ask("info")["pid"] == found.pid


def test_the_application_of_the_configuration_is_meant(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`forebay run add` in a project needs no --app."""
    (app.parent / "forebay.toml").write_text('app = "app.py"\n')
    (app.parent / "deep").mkdir()
    monkeypatch.chdir(app.parent / "deep")
    path, _ = reached(None)
    assert path == str(home_of(str(app)).paths.socket)


def test_without_start_nothing_is_started(app: Path) -> None:
    """`--no-start`, and a client in production."""
    with pytest.raises(BrokenError, match="forebay serve") as caught:
        reached(str(app), start=False)
    assert caught.value.delivered == "no"
    assert not local._started


def test_nothing_that_names_an_application_is_told(app: Path) -> None:
    """The ways to name one are in the message."""
    with pytest.raises(ConfigError, match="FOREBAY_APP"):
        reached(None)


@pytest.mark.parametrize("url", ["tcp://host:1", "unix://relative", "/path"])
def test_another_kind_of_url_is_refused(app: Path, url: str) -> None:
    """Servers listen on Unix sockets."""
    with pytest.raises(ConfigError, match="unix:///"):
        reach(url, None, start=True, timeout=1.0, on_start=print)


def test_a_url_where_nobody_listens_is_told(app: Path) -> None:
    """A server that was named is not started in its place."""
    with pytest.raises(BrokenError, match="no server answers"):
        reach("unix:///tmp/no-such.sock", None, start=True, timeout=1.0, on_start=print)


def test_a_start_that_fails_shows_why(app: Path) -> None:
    """The store is of a newer version: the reason is in the message, not only in a log."""
    import sqlite3

    state = home_of(str(app)).paths.state
    state.mkdir(mode=0o700, parents=True)
    with sqlite3.connect(state / "requests.db") as database:
        database.execute("PRAGMA user_version = 999")
    database.close()
    with pytest.raises(BrokenError, match=r"did not start: .*999") as caught:
        reached(str(app))
    assert caught.value.delivered == "no"


def test_a_start_that_crashes_shows_the_end_of_its_log(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the server could say nothing."""
    (app.parent / "broken").mkdir()
    (app.parent / "broken" / "msgspec.py").write_text("raise SystemExit('no msgspec here')")
    monkeypatch.setenv("PYTHONPATH", str(app.parent / "broken"))
    with pytest.raises(BrokenError, match="no msgspec here"):
        reached(str(app))


def test_an_import_that_takes_too_long_is_told_with_the_log(app: Path) -> None:
    """It goes on to start, and the next call finds it."""
    app.write_text("import time\ntime.sleep(2.0)\n" + APP.replace("from __future__", "# "))
    with pytest.raises(DeadlineError, match="goes on to start"):
        reached(str(app), timeout=0.7)
    path, told = reached(str(app))
    assert told == []
    with Caller(path) as caller:
        assert caller.run("add", a=1) == 3


@needs_root
def test_a_server_of_another_user_is_not_used(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would get the arguments, and choose what comes back."""
    path = tmp_path / "theirs.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        os.seteuid(NOBODY)
        try:
            listening.listen()  # the kernel notes who did, for whoever connects
        finally:
            os.seteuid(0)
        for start in (lambda: reached(None), lambda: Client(timeout=5).info()):
            monkeypatch.setenv("FOREBAY_URL", f"unix://{path}")
            with pytest.raises(ConfigError, match=f"belongs to user {NOBODY} and you are user 0"):
                start()
        running = Running(1, 1.0, str(app), str(app), str(path), str(tmp_path))
        monkeypatch.setattr(local, "running_at", lambda paths: running)
        with pytest.raises(ConfigError, match=f"belongs to user {NOBODY}"):
            Client(app=str(app), timeout=5).info()
