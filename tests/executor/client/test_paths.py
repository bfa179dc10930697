"""Where a server's state and sockets are, and how a running one is found."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import BusyError, ConfigError
from forebay.executor.app.target import looks_like_target, parse_target
from forebay.executor.wire.paths import (
    SOCKET_BYTES_MAX,
    Notice,
    Running,
    StateLock,
    make_private,
    newest,
    paths_of,
    running,
    runtime_root,
    state_root,
)


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("FOREBAY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def told(socket: str = "a.sock", started_at: float = 1.0) -> Running:
    return Running(os.getpid(), started_at, "tune.py", "/tune.py", socket, "/state")


class TestTarget:
    def test_a_file_is_imported_under_the_name_of_its_stem(self, tmp_path: Path) -> None:
        """`import tune` elsewhere in the application finds the same module, not a second one."""
        write(tmp_path / "tune.py")
        target = parse_target("tune.py:app")
        assert (target.kind, target.where, target.attribute) == ("module", "tune", "app")
        assert target.directory == str(tmp_path)
        assert target.file == (tmp_path / "tune.py").resolve()

    def test_a_file_of_a_package_is_imported_as_a_part_of_it(self, tmp_path: Path) -> None:
        """Its relative imports work as they do in the package."""
        write(tmp_path / "project/models/__init__.py")
        write(tmp_path / "project/models/tune.py")
        target = parse_target("project/models/tune.py")
        assert (target.where, target.directory) == ("models.tune", str(tmp_path / "project"))

    @pytest.mark.parametrize("name", ["queue.py", "2024-11.py", "forebay.py"])
    def test_a_file_whose_name_is_taken_is_run_by_its_path(self, tmp_path: Path, name: str) -> None:
        """A file called queue.py is served, and not the module of the standard library."""
        write(tmp_path / name)
        target = parse_target(name)
        assert (target.kind, target.where) == ("path", str(tmp_path / name))

    def test_a_module_is_found_without_importing_its_package(self, tmp_path: Path) -> None:
        """A client does not pay for the application's imports."""
        write(tmp_path / "app/__init__.py", "raise RuntimeError('imported')")
        file = write(tmp_path / "app/jobs.py")
        target = parse_target("app.jobs:nightly")
        assert (target.kind, target.where, target.file) == ("module", "app.jobs", file.resolve())

    def test_file_and_module_are_the_same_application(self, tmp_path: Path) -> None:
        """Both ways to write it reach one server."""
        write(tmp_path / "tune.py")
        assert paths_of(parse_target("tune.py:a")) == paths_of(parse_target("tune:b"))

    def test_a_symbolic_link_is_the_file_that_it_names(self, tmp_path: Path) -> None:
        """Two servers of one file would run its requests at once."""
        write(tmp_path / "tune.py")
        (tmp_path / "link.py").symlink_to(tmp_path / "tune.py")
        assert parse_target("link.py").file == parse_target("tune.py").file

    @pytest.mark.parametrize("text", ["missing.py", "no.such.module", ":app", "tune.py:", ""])
    def test_what_is_no_target_is_refused(self, text: str) -> None:
        """The message names what was looked for, before anything was started."""
        with pytest.raises(ConfigError, match="target"):
            parse_target(text)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [("tune.py", True), ("a.b:c", True), ("x/tune.py:tune", True), ("tune", False)],
    )
    def test_a_bare_name_is_told_from_a_target(self, text: str, expected: bool) -> None:
        """A bare name is looked up in the running server."""
        assert looks_like_target(text) is expected


class TestPlaces:
    def test_two_files_of_one_name_have_places_of_their_own(self, tmp_path: Path) -> None:
        """Every second project has an app.py."""
        for folder in ("a", "b"):
            write(tmp_path / folder / "app.py")
        first, second = (paths_of(parse_target(f"{it}/app.py")) for it in "ab")
        assert first.state != second.state
        assert first.socket != second.socket

    def test_another_state_root_means_another_socket(self, tmp_path: Path) -> None:
        """Two servers of one application do not fight for one socket."""
        write(tmp_path / "app.py")
        target = parse_target("app.py")
        first, second = paths_of(target), paths_of(target, state_dir=tmp_path / "other")
        assert first.socket != second.socket
        assert second.state.parent == tmp_path / "other"

    def test_a_long_name_is_cut(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A socket's path has 107 bytes, whatever the file is called."""
        monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp")
        write(tmp_path / f"{'x' * 200}.py")
        socket = paths_of(parse_target(f"{'x' * 200}.py")).socket
        assert len(socket.name) < 40

    def test_a_path_too_long_for_a_socket_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The kernel would only say that an argument is invalid."""
        write(tmp_path / "app.py")
        monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp/" + "y" * SOCKET_BYTES_MAX)
        with pytest.raises(ConfigError, match="at most 107"):
            paths_of(parse_target("app.py"))

    def test_the_usual_places_follow_the_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """State and sockets lie where the desktop's rules put them."""
        monkeypatch.delenv("FOREBAY_STATE_DIR")
        monkeypatch.setenv("XDG_STATE_HOME", "/x/state")
        assert state_root() == Path("/x/state/forebay")
        monkeypatch.delenv("XDG_STATE_HOME")
        monkeypatch.setenv("HOME", "/x/home")
        assert state_root() == Path("/x/home/.local/state/forebay")
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        assert runtime_root() == Path(f"/tmp/forebay-{os.geteuid()}")

    def test_a_directory_that_others_may_enter_is_refused(self, tmp_path: Path) -> None:
        """Whoever could connect could run code as this user."""
        (tmp_path / "open").mkdir(mode=0o755)
        with pytest.raises(ConfigError, match="chmod 700"):
            make_private(tmp_path / "open")
        (tmp_path / "link").symlink_to(tmp_path)
        with pytest.raises(ConfigError, match="no directory"):
            make_private(tmp_path / "link")

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs to give a directory away")
    def test_a_directory_of_another_user_is_refused(self, tmp_path: Path) -> None:
        """In /tmp anybody may have made it first."""
        (tmp_path / "theirs").mkdir(mode=0o700)
        os.chown(tmp_path / "theirs", 12345, -1)
        with pytest.raises(ConfigError, match="belongs to user 12345"):
            make_private(tmp_path / "theirs")


@contextlib.contextmanager
def asking(question: str) -> Iterator[None]:
    """Another process that asks something again and again; at its first answer the body begins."""
    code = (
        "import pathlib\n"
        "from forebay.executor.wire.paths import StateLock, _read\n"
        f"{question}\n"
        "print('asks', flush=True)\n"
        f"while True: {question}\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"asks\n"
        try:
            yield
            assert process.poll() is None
        finally:
            process.kill()


class TestLock:
    def test_a_second_server_is_refused_with_the_process_of_the_first(self, tmp_path: Path) -> None:
        """Two writers of one store would each think that it is theirs."""
        first = StateLock(tmp_path / "state/app")
        with pytest.raises(BusyError, match=f"process {os.getpid()}"):
            StateLock(tmp_path / "state/app")
        first.close()
        StateLock(tmp_path / "state/app").close()

    def test_the_lock_of_a_killed_server_is_free(self, tmp_path: Path) -> None:
        """Nobody has to remove a file after a crash."""
        code = (
            "import sys, pathlib\n"
            "from forebay.executor.wire.paths import StateLock\n"
            "lock = StateLock(pathlib.Path(sys.argv[1]))\n"
            "print('locked', flush=True)\n"
            "sys.stdin.read()\n"
        )
        state = tmp_path / "state/app"
        with subprocess.Popen(
            [sys.executable, "-c", code, str(state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"locked\n"
            with pytest.raises(BusyError, match=f"process {process.pid}"):
                StateLock(state)
            process.kill()
        StateLock(state).close()

    def test_asking_whether_it_is_held_turns_no_server_away(self, tmp_path: Path) -> None:
        """Every client that waits for a server asks; the only one that starts would give up."""
        state = tmp_path / "state"
        StateLock(state).close()
        with asking(f"StateLock.is_held(pathlib.Path({str(state)!r}))"):
            for _ in range(1000):
                lock = StateLock(state)
                assert StateLock.is_held(state)
                lock.close()
                assert not StateLock.is_held(state)

    def test_a_state_that_cannot_be_written_is_told(self, tmp_path: Path) -> None:
        """A full or read-only disk, before anything was accepted."""
        (tmp_path / "state").mkdir(mode=0o700)
        (tmp_path / "state/lock").mkdir()
        with pytest.raises(ConfigError, match="cannot be written"):
            StateLock(tmp_path / "state")
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match="cannot be made"):
            make_private(tmp_path / "file/state")


class TestNotice:
    def test_the_newest_server_is_found_by_nobody_naming_it(self) -> None:
        """`forebay ps` needs no argument."""
        make_private(runtime_root())
        notices = [
            Notice(runtime_root() / f"{name}.json", told(name, started_at))
            for name, started_at in (("old.sock", 1.0), ("new.sock", 3.0), ("mid.sock", 2.0))
        ]
        assert [it.socket for it in running()] == ["new.sock", "mid.sock", "old.sock"]
        for notice in notices:
            notice.close()
        assert newest() is None
        assert os.listdir(runtime_root()) == []

    def test_the_notice_of_a_killed_server_counts_for_nothing(self) -> None:
        """A client is not sent to a socket where nobody listens."""
        make_private(runtime_root())
        path = runtime_root() / "app.json"
        notice = Notice(path, told())
        notice._file.close()  # what the kernel does when the process is killed
        assert path.exists()
        assert newest() is None
        assert not path.exists()

    def test_what_a_server_killed_while_it_wrote_its_notice_left_goes_with_the_next(self) -> None:
        """Else each such kill would leave a file in the runtime directory for ever."""
        make_private(runtime_root())
        write(runtime_root() / "app.4242.new", '{"schema"')
        write(runtime_root() / "other.4243.new")
        notice = Notice(runtime_root() / "app.json", told())
        assert os.listdir(runtime_root()) == ["app.json"]
        notice.close()

    def test_the_notice_of_a_restarted_server_stays(self) -> None:
        """Whoever removes the last one's must not take the new one's: it is found by it alone."""
        make_private(runtime_root())
        path = runtime_root() / "app.json"
        with asking(f"_read(pathlib.Path({str(path)!r}))"):
            for _ in range(2000):
                notice = Notice(path, told())
                assert os.path.samestat(path.stat(), os.fstat(notice._file.fileno()))
                notice._file.close()  # as a kill does

    @pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
    def test_a_notice_where_others_may_write_counts_for_nothing(self, mode: int) -> None:
        """Somebody else's could lead requests to a socket of theirs."""
        make_private(runtime_root())
        notice = Notice(runtime_root() / "app.json", told())
        assert newest() is not None
        runtime_root().chmod(mode)
        assert newest() is None
        runtime_root().chmod(0o700)
        assert newest() is not None
        notice.close()

    def test_a_server_takes_back_only_its_own_notice(self) -> None:
        """One that was replaced meanwhile must not hide its successor."""
        make_private(runtime_root())
        path = runtime_root() / "app.json"
        first, second = Notice(path, told("first")), Notice(path, told("second"))
        first.close()
        found = newest()
        assert found is not None
        assert found.socket == "second"
        second.close()

    def test_no_runtime_directory_means_no_server(self) -> None:
        """A first use starts from nothing."""
        assert running() == []
