"""Backups that cannot be taken, or are ended in the middle, and copies that were damaged since."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.executor.client.client import Client
from tests.executor.backup.backing_up import (
    APP,
    COMMAND,
    RESULT_BYTES_MAX,
    back_up,
    forebay,
    partial_folders,
    served,
    state_of,
)
from tests.executor.client_fixtures import small_disk
from tests.executor.serving import Serving

ROOT = Path(__file__).resolve().parents[3]
LARGE = 100_000
COUNT = 20


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with results of two megabytes in files, and logs; no test changes its store."""
    directory = tmp_path_factory.mktemp("served")
    with Serving(directory, APP, max_result_bytes=RESULT_BYTES_MAX) as serving:
        with Client(f"unix://{serving.socket}", timeout=30.0) as client:
            many = [client.submit("large", letter="x", size=LARGE) for _ in range(COUNT)]
            many += [client.submit("echo", text="y" * 5_000) for _ in range(COUNT)]
            for one in many:
                one.result(timeout=60)
        yield serving


@pytest.fixture
def copy(serving: Serving, tmp_path: Path) -> Path:
    """A backup of it."""
    target = tmp_path / "copy"
    assert back_up(serving, target).code == 0
    return target


def check(serving: Serving, directory: Path) -> list[str]:
    """What a check finds wrong; the exit code says whether there is anything."""
    told = forebay(serving.environment, "backup", "--check", directory, "--json")
    faults = json.loads(told.out)["faults"]
    assert told.code == (1 if faults else 0), told
    return list(faults)


def begun(serving: Serving, target: Path) -> subprocess.Popen[bytes]:
    """A backup that has begun."""
    words = ["backup", str(target), "--app", str(serving.file)]
    return subprocess.Popen(
        [*COMMAND, *words],
        env=serving.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class TestRefused:
    def test_inside_of_the_state_directory(self, serving: Serving) -> None:
        """It would be a part of what it copies, and go with it."""
        for inside in (state_of(serving) / "copy", state_of(serving)):
            told = back_up(serving, inside)
            assert told.code == 2, told
            assert "is inside of the state directory" in told.err

    def test_by_a_link_into_it(self, serving: Serving, tmp_path: Path) -> None:
        """Whatever it is called."""
        link = tmp_path / "elsewhere"
        link.symlink_to(state_of(serving))
        told = back_up(serving, link / "copy")
        assert (told.code, "is inside of the state directory" in told.err) == (2, True), told

    def test_where_something_is(self, serving: Serving, copy: Path, tmp_path: Path) -> None:
        """A backup is never written over another; an empty directory is taken."""
        told = back_up(serving, copy)
        assert (told.code, "is not empty" in told.err) == (2, True), told
        assert check(serving, copy) == []
        file = tmp_path / "file"
        file.write_text("mine")
        told = back_up(serving, file)
        assert (told.code, "is no directory" in told.err) == (2, True), told
        assert file.read_text() == "mine"
        empty = tmp_path / "empty"
        empty.mkdir()
        assert back_up(serving, empty).code == 0
        assert check(serving, empty) == []

    def test_where_its_disk_is_not_mounted(self, serving: Serving, tmp_path: Path) -> None:
        """Nothing is made where the disk would be."""
        told = back_up(serving, tmp_path / "disk" / "monday")
        assert (told.code, "does not exist" in told.err) == (2, True), told
        assert not (tmp_path / "disk").exists()

    def test_without_a_store(self, serving: Serving, tmp_path: Path) -> None:
        """Of an application that was never served."""
        other = tmp_path / "other.py"
        other.write_text(APP)
        told = forebay(serving.environment, "backup", tmp_path / "copy", "--app", other)
        assert (told.code, "there is no store in" in told.err) == (2, True), told
        assert os.listdir(tmp_path) == ["other.py"]

    def test_what_is_no_backup(self, serving: Serving, tmp_path: Path) -> None:
        """A check of any other directory."""
        told = forebay(serving.environment, "backup", "--check", tmp_path)
        assert (told.code, "is no backup" in told.err) == (2, True), told

    def test_over_http(self, serving: Serving, tmp_path: Path) -> None:
        """It copies files."""
        url = "https://localhost:1"
        told = forebay(serving.environment, "backup", tmp_path / "copy", "--url", url)
        assert (told.code, "on the machine of the server" in told.err) == (2, True), told


class TestEnded:
    @pytest.mark.timeout(180)
    def test_a_kill_leaves_a_whole_backup_or_none(self, serving: Serving, tmp_path: Path) -> None:
        """At any moment; what it leaves goes with the next backup of that name."""
        whole = tmp_path / "whole"
        at = time.monotonic()
        assert back_up(serving, whole).code == 0
        took_s = time.monotonic() - at
        seen = set()
        for number in range(12):
            target = tmp_path / "copy"
            process = begun(serving, target)
            # The start of the interpreter is most of it.
            time.sleep(took_s * random.uniform(0.3, 1.1) if number else 0.0)
            process.kill()
            process.wait()
            seen.add(target.exists())
            if target.exists():
                assert check(serving, target) == []
                target.rename(tmp_path / f"whole-{number}")
        assert False in seen
        assert back_up(serving, tmp_path / "copy").code == 0
        assert partial_folders(tmp_path) == []

    def test_what_a_kill_has_left_is_named_when_it_goes(
        self, serving: Serving, tmp_path: Path
    ) -> None:
        """Whoever has seen the folder learns what it was, and that the new backup is whole."""
        left = tmp_path / "copy.partial-0123abcd"
        (left / "results").mkdir(parents=True)
        left.chmod(0o700)
        told = back_up(serving, tmp_path / "copy")
        assert told.code == 0, told
        assert f"{left} is removed: a backup that was killed had left it, in part" in told.err
        assert os.listdir(tmp_path) == ["copy"]
        assert check(serving, tmp_path / "copy") == []

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_removes_what_it_had(
        self, serving: Serving, tmp_path: Path, number: signal.Signals
    ) -> None:
        """Ctrl-C, a timer that is over, a terminal that is closed: none leaves the key."""
        for _ in range(5):
            before = signal.signal(number, signal.SIG_DFL)  # it may be ignored, as under nohup
            try:
                process = begun(serving, tmp_path / "copy")
            finally:
                signal.signal(number, before)
            while not partial_folders(tmp_path) and process.poll() is None:
                time.sleep(0.001)
            process.send_signal(number)
            process.send_signal(number)
            code = process.wait(20)
            assert partial_folders(tmp_path) == []
            if code == 128 + number:
                assert not (tmp_path / "copy").exists()
                return
            (tmp_path / "copy").rename(tmp_path / f"copy-{time.monotonic()}")
        pytest.fail("each of five backups was faster than the signal")

    @pytest.mark.parametrize(
        ("size", "file"), [("32k", "journal"), ("300k", "requests.db"), ("1m", "results/")]
    )
    def test_a_full_disk_is_told(
        self, serving: Serving, tmp_path: Path, size: str, file: str
    ) -> None:
        """Which file, how much it needs and how much is free; and nothing is left there."""
        with small_disk(tmp_path, size) as disk:
            told = back_up(serving, disk / "copy", "--json")
            assert told.code == 5, told
            error = json.loads(told.err)["error"]
            assert error["code"] == "limit"
            assert error["message"].startswith(file), error
            assert f"needs {error['value']} bytes" in error["message"]
            assert f"{error['limit']} bytes are free" in error["message"]
            assert error["value"] > error["limit"]
            assert os.listdir(disk) == []


class TestDamaged:
    def test_a_file_that_is_gone_or_cut(self, serving: Serving, copy: Path) -> None:
        """Each is named."""
        (inside,) = (path for path in copy.iterdir() if path.is_dir())
        first, second, *_ = sorted((inside / "results").iterdir())
        log = next((inside / "logs").iterdir())
        first.unlink()
        os.truncate(log, 7)
        content = second.read_bytes()
        second.unlink()  # another file, since a result may be a second name of the store's own
        second.write_bytes(content[:-1])
        (inside / "secret.key").unlink()
        faults = check(serving, copy)
        assert f"results/{first.name} is not there" in faults
        assert f"logs/{log.name} has 7 bytes instead of 5007" in faults
        assert f"results/{second.name} has {len(content) - 1} bytes instead of" in str(faults)
        assert "secret.key is not there" in faults
        assert len(faults) == 4, faults

    def test_a_page_of_the_database(self, serving: Serving, copy: Path) -> None:
        """SQLite's own check finds it."""
        (database,) = copy.rglob("requests.db")
        with open(database, "r+b") as file:
            file.seek(database.stat().st_size // 2 // 4096 * 4096)
            file.write(b"\xff" * 4096)
        faults = check(serving, copy)
        assert faults
        assert all(fault.startswith("requests.db: ") for fault in faults)

    def test_a_database_that_is_none(self, serving: Serving, copy: Path) -> None:
        """And one that is gone."""
        (database,) = copy.rglob("requests.db")
        database.write_bytes(b"no database")
        assert "requests.db" in check(serving, copy)[0]
        database.unlink()
        assert "requests.db" in check(serving, copy)[0]

    def test_a_row_less(self, serving: Serving, copy: Path) -> None:
        """It is sound, and not what was taken."""
        (database,) = copy.rglob("requests.db")
        with sqlite3.connect(database) as opened:
            opened.execute("DELETE FROM requests WHERE id = (SELECT max(id) FROM requests)")
        opened.close()
        faults = check(serving, copy)
        assert f"requests is {2 * COUNT - 1}, and backup.json says {2 * COUNT}" in str(faults)

    def test_once_served_it_is_no_backup_any_more(self, serving: Serving, copy: Path) -> None:
        """Its requests change: the check says so, and looks at the database alone."""
        with served(serving, copy) as client:
            assert client.run("echo", text="more") == "more"
        told = forebay(serving.environment, "backup", "--check", copy)
        assert told.code == 0, told
        assert "a server has started from it since" in told.err


class TestVersions:
    @pytest.fixture
    def state(self, serving: Serving, tmp_path: Path) -> Path:
        """A state directory as the first version of the store left it."""
        (tmp_path / "old").mkdir(mode=0o700)
        state = tmp_path / "old" / state_of(serving).name
        (state / "logs").mkdir(parents=True, mode=0o700)
        with sqlite3.connect(state / "requests.db") as database:
            fixture = ROOT / "crates/executor/tests/store/version_1.sql"
            database.executescript(fixture.read_text())
        database.close()
        state.chmod(0o700)
        return state

    def test_an_earlier_one_is_copied_as_it_is(
        self, serving: Serving, state: Path, tmp_path: Path
    ) -> None:
        """The server that starts from it brings it to its own version, as it does with any."""
        target = tmp_path / "copy"
        told = back_up(serving, target, "--state-dir", str(tmp_path / "old"))
        assert told.code == 0, told
        assert "database of version 1" in told.out
        assert check(serving, target) == []
        with served(serving, target) as client:
            assert len(client.list()) == 3
        with sqlite3.connect(state / "requests.db") as database:
            assert database.execute("PRAGMA user_version").fetchone() == (1,)
        database.close()

    def test_a_later_one_is_refused(self, serving: Serving, state: Path, tmp_path: Path) -> None:
        """Both versions are named."""
        with sqlite3.connect(state / "requests.db") as database:
            database.execute("PRAGMA user_version = 99")
        database.close()
        told = back_up(serving, tmp_path / "copy", "--state-dir", str(tmp_path / "old"))
        assert (told.code, "version 99" in told.err) == (2, True), told
        assert not (tmp_path / "copy").exists()
        assert partial_folders(tmp_path) == []
