"""The folder that a backup is written into, until it gets its name.

It is written as `DIR.partial-XXXXXXXX`, which its command holds locked, and renamed once all of it
is on the disk. A partial one that nobody holds was left by a command that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from forebay import _core
from forebay._working_directory import working_directory
from forebay.errors import BrokenError, ConfigError
from forebay.executor.backup.errors import does_not_fit, free_bytes, is_full

__all__ = ["made"]

_PARTIAL: Final = ".partial-"
_RANDOM: Final = "[0-9a-f]{8}"
"""What the name of a partial folder ends with."""


@contextlib.contextmanager
def made(target: Path, source: Path, removed: Callable[[Path], object]) -> Iterator[Path]:
    """The partial folder, which gets its name at the end of the block; an error removes it.

    Args:
        target: DIR; it does not exist, or is empty.
        source: the state directory that is copied.
        removed: gets each partial folder of that name that a killed command had left.

    Raises:
        ConfigError: DIR cannot be made there.
        LimitError: at the end the disk is full.
        BrokenError: it failed.
        OSError: a directory cannot be looked at, or the folder cannot get its name.
    """
    whole = target if target.is_absolute() else working_directory() / target
    target = Path(os.path.normpath(whole))
    _check(target, source)
    for left in _remove_left(target):
        removed(left)
    partial, lock = _lock_new(target)
    try:
        yield partial
        _finish(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def _check(target: Path, source: Path) -> None:
    real, state = Path(os.path.realpath(target)), Path(os.path.realpath(source))
    if real == state or state in real.parents:
        raise ConfigError(
            f"{target} is inside of the state directory {source}, which a backup is a copy of; "
            "name a directory elsewhere"
        )
    if not _is_directory(target.parent):
        raise ConfigError(
            f"{target.parent} does not exist, so no backup can be made in it; make it, or mount "
            "its disk"
        )
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise ConfigError(f"{target} is no directory; name one that does not exist, or is empty")
    if os.path.ismount(target):
        raise ConfigError(
            f"{target} is the root of a disk, which cannot be renamed; name a directory in it, as "
            f"in {target / 'backup'}"
        )
    if next(os.scandir(target), None) is not None:
        raise _taken(target)


def _is_directory(path: Path) -> bool:
    """Whether it is one; one out of reach is an error here, which `Path.is_dir` may hide."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _taken(target: Path) -> ConfigError:
    return ConfigError(
        f"{target} is not empty, and a backup is never written over another; name a directory that "
        "does not exist, or is empty"
    )


def _remove_left(target: Path) -> Iterator[Path]:
    """Remove partial folders of the same name whose commands were killed; those that are gone.

    Another folder may be called alike: the name must be one that `_lock_new` gives, and the folder
    of this user and closed to others.
    """
    ours = re.compile(re.escape(target.name + _PARTIAL) + _RANDOM)
    for name in os.listdir(target.parent):
        if not ours.fullmatch(name):
            continue
        left = target.parent / name
        with contextlib.suppress(OSError):
            lock = _locked(left)
            try:
                found = os.fstat(lock)
                if found.st_uid == os.geteuid() and found.st_mode & 0o777 == 0o700:
                    shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)
            if not left.exists():
                yield left


def _lock_new(target: Path) -> tuple[Path, int]:
    """A new partial folder, for this user alone, and the descriptor that holds its lock."""
    while True:
        # Named before it is made, so that a signal in between leaves none.
        partial = target.with_name(f"{target.name}{_PARTIAL}{secrets.token_hex(4)}")
        try:
            _make(partial)
            lock = _locked(partial)
            if partial.is_dir():
                return partial, lock
            os.close(lock)
        except (FileExistsError, FileNotFoundError, BlockingIOError):
            continue  # another command has it, or took it for a left one
        except BaseException as error:
            with contextlib.suppress(OSError):
                partial.rmdir()
            if not isinstance(error, OSError):
                raise
            raise ConfigError(
                f"nothing can be locked in {target.parent}: {error.strerror}; name a directory of "
                "another disk"
            ) from error


def _make(partial: Path) -> None:
    try:
        partial.mkdir(0o700)
    except FileExistsError:
        raise
    except OSError as error:
        if is_full(error):
            free = free_bytes(partial.parent)
            raise does_not_fit(partial.name, 4096, partial.parent, free) from error
        raise ConfigError(
            f"nothing can be made in {partial.parent}: {error.strerror}; name a directory of "
            "yours, on a disk with room"
        ) from error


def _locked(partial: Path) -> int:
    """The descriptor that holds the lock of a partial folder.

    Raises:
        OSError: another one has it, or there is none.
    """
    lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _finish(partial: Path, target: Path) -> None:
    """Have all of it on the disk, under its name."""
    try:
        _core.sync_file_system(os.fspath(partial))
        _rename(partial, target)
    except (OSError, BrokenError) as error:
        if is_full(error):  # some file systems find room for what was written only now
            needed = _bytes_of(partial if partial.exists() else target)
            free = free_bytes(target.parent)
            raise does_not_fit("the backup", needed, target, free) from error
        raise


def _bytes_of(folder: Path) -> int:
    return sum(512 * path.lstat().st_blocks for path in folder.rglob("*"))


def _rename(partial: Path, target: Path) -> None:
    # Opened before: where this user may not, there is no DIR.
    parent = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.rename(partial, target)
        os.fsync(parent)
    except OSError as error:
        if partial.exists() and target.is_dir() and next(os.scandir(target), None) is not None:
            raise _taken(target) from error  # by another backup meanwhile
        error.filename = os.fspath(target)
        raise
    finally:
        os.close(parent)
