"""Backups where there is something of others, or something that this user may not do."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay import _core
from forebay.errors import BrokenError, ConfigError, Error, LimitError
from forebay.executor.backup import layout
from forebay.executor.backup.checking import check_backup
from forebay.executor.backup.copying import back_up
from tests.executor.backup.backing_up import partial_folders
from tests.other_user import NOBODY, as_nobody, let_others_reach, needs_root

ROOT = Path(__file__).resolve().parents[3]
AS_OWNER = re.compile(r"; run it as the user of the server: sudo -u root forebay backup \.\.\.$")
ELSEWHERE = "; name a directory of yours"


def made_store(directory: Path) -> Path:
    """The state directory of an application, which has no server."""
    state = directory / "tune-12345678"
    (state / "logs").mkdir(parents=True, mode=0o700)
    with sqlite3.connect(state / "requests.db") as database:
        fixture = ROOT / "crates/executor/tests/store/version_1.sql"
        database.executescript(fixture.read_text())
    database.close()
    state.chmod(0o700)
    return state


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A store of this user."""
    return made_store(tmp_path / "state")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A directory of the other user."""
    let_others_reach(tmp_path)
    directory = tmp_path / "theirs"
    directory.mkdir(mode=0o700)
    os.chown(directory, NOBODY, NOBODY)
    return directory


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A directory that the other user cannot look into."""
    directory = tmp_path / "closed"
    directory.mkdir(mode=0o700)
    return directory


def silent(what: str, done: int, whole: int) -> None:
    """Tell nobody how far it is."""


def copied(state: Path, target: Path) -> None:
    """Take a backup."""
    back_up(state, target, told=silent)


def refusal(work: Callable[[], object]) -> str:
    """What the other user is told."""

    def tried() -> str:
        try:
            return f"it is done: {work()}"
        except Error as error:
            return f"{type(error).__name__}: {error}"

    return as_nobody(tried)


@needs_root
class TestOfAnotherUser:
    def test_a_store_is_read_by_its_user(self, state: Path, theirs: Path) -> None:
        """Who cannot look into it is told whose it is, and what to type."""
        told = refusal(lambda: copied(state, theirs / "copy"))
        assert told.startswith(f"ConfigError: {state / 'requests.db'}: Permission denied")
        assert AS_OWNER.search(told), told
        assert os.listdir(theirs) == []

    def test_nor_by_root(self, theirs: Path, tmp_path: Path) -> None:
        """It would own the copy, and large results, which are not its own, would be left out."""
        state = made_store(theirs)
        os.chown(state, NOBODY, NOBODY)
        with pytest.raises(Error, match=r"belongs to (\S+) and you are root; .*sudo -u \1 forebay"):
            copied(state, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()

    def test_where_nothing_can_be_made(self, theirs: Path, closed: Path) -> None:
        """A directory in which that user has no right, or one below it."""
        state = made_store(theirs)
        for path in (state, *state.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        told = refusal(lambda: copied(state, closed / "below" / "copy"))
        assert told == f"ConfigError: {closed / 'below'}: Permission denied{ELSEWHERE}"
        told = refusal(lambda: copied(state, closed))
        assert told == f"ConfigError: {closed}: Permission denied{ELSEWHERE}"
        told = refusal(lambda: copied(state, closed / "copy"))
        assert told == f"ConfigError: {closed}: Permission denied{ELSEWHERE}"
        closed.chmod(0o755)
        told = refusal(lambda: copied(state, closed / "copy"))
        assert f"nothing can be made in {closed}: Permission denied{ELSEWHERE}" in told
        assert refusal(lambda: copied(state, theirs / "copy")) == "it is done: None"

    def test_a_check_of_a_backup(self, state: Path, theirs: Path, closed: Path) -> None:
        """It is not called damaged for that."""
        copied(state, closed / "copy")
        told = refusal(lambda: check_backup(closed / "copy"))
        assert told.startswith(f"ConfigError: {closed / 'copy' / 'backup.json'}: Permission denied")
        assert AS_OWNER.search(told), told

    def test_a_server_says_of_its_directory_what_it_says_of_any(
        self, theirs: Path, closed: Path
    ) -> None:
        """Whether a backup is around it cannot be seen."""
        told = refusal(lambda: layout.refuse_other(closed / "below" / "tune-12345678"))
        assert told == "it is done: None"


def test_a_disk_that_fails_at_the_end_is_named(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last sync is of the directory that the backup is in."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    target = tmp_path / "copy"
    with pytest.raises(BrokenError, match=f"^{target}: Input/output error; look at its disk"):
        copied(state, target)
    assert partial_folders(tmp_path) == []


@pytest.mark.parametrize("full", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_at_the_last_sync_is_told_as_any(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: int
) -> None:
    """Some file systems find room for what was written only then; nothing is left there."""

    def sync_file_system(folder: str) -> None:
        raise BrokenError("synced") from OSError(full, os.strerror(full))

    monkeypatch.setattr(_core, "sync_file_system", sync_file_system)
    told = rf"^the backup needs \d+ bytes and does not fit: \d+ bytes are free .* {tmp_path}/copy;"
    with pytest.raises(LimitError, match=told) as raised:
        copied(state, tmp_path / "copy")
    value, limit = raised.value.value, raised.value.limit
    assert value is not None
    assert limit is not None
    assert value >= 4096
    assert limit > 0
    assert os.listdir(tmp_path) == [state.parent.name]


def test_a_disk_that_is_full_for_the_name_is_told_as_any(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename may need a block too."""

    def rename(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(LimitError, match=r"^the backup needs"):
        copied(state, tmp_path / "copy")
    assert partial_folders(tmp_path) == []


def test_a_folder_of_somebody_else_is_no_left_one(state: Path, tmp_path: Path) -> None:
    """What was left by a backup that was killed goes; what is only called alike stays."""
    left, open_one = (tmp_path / f"monday.partial-{end}" for end in ("0123abcd", "0123abce"))
    others = [tmp_path / f"monday.partial-{end}" for end in ("broken", "0123abcd5", "0123ABCD")]
    for folder in (left, *others):
        folder.mkdir(mode=0o700)
        (folder / "backup.json").write_text("{}")
    open_one.mkdir()
    open_one.chmod(0o755)
    copied(state, tmp_path / "monday")
    assert not left.exists()
    assert open_one.exists()
    assert all((folder / "backup.json").exists() for folder in others)


@needs_root
def test_a_folder_of_another_user_is_no_left_one(state: Path, tmp_path: Path) -> None:
    """Root could remove it."""
    left = tmp_path / "monday.partial-0123abcd"
    left.mkdir(mode=0o700)
    os.chown(left, NOBODY, NOBODY)
    copied(state, tmp_path / "monday")
    assert left.exists()


def test_a_disk_without_locks_is_refused(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel refuses a lock for more reasons than that another has it."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ConfigError, match=f"in {tmp_path}: No locks available; name a directory"):
        copied(state, tmp_path / "copy")
    assert os.listdir(tmp_path) == ["state"]


def test_an_absolute_path_needs_no_current_directory(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it was removed, the message says to give one."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    here.rmdir()
    with pytest.raises(ConfigError, match="give absolute paths"):
        copied(state, Path("copy"))
    copied(state, tmp_path / "copy")
    assert check_backup(tmp_path / "copy").faults == ()
