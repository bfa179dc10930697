"""What the tasks of one process of a cluster share: templates, a lender, a directory."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forebay._runtime_directory import make_private
from forebay.config import PoolConfig
from forebay.errors import ConfigError
from forebay.executor.server.oom import OomKills
from forebay.executor.server.services import Services
from forebay.executor.server.worker_group import WorkerGroup
from forebay.executor.worker.worker import Worker as WorkerService

if TYPE_CHECKING:
    from forebay.executor.engine.order import Order

__all__ = ["Node"]

ROOT: Final = "/tmp"
"""A socket's path is short."""

PREFIX: Final = "fb-node-"

APPLICATIONS_MAX: Final = 4
"""Templates of as many applications stay warm; those in use stay in any case."""

END_S: Final = 5.0
"""For a template to end."""

AGAIN_S: Final = 0.01
"""Between two tries to lock a directory that another process looks at."""


class Node:
    """What the tasks of a process share. Thread-safe."""

    _of_process: Node | None = None
    _lock_of_process = threading.Lock()

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held while a group is used: it is for one thread at a time."""
        _remove_left()
        self.directory, self._life = _new_directory()
        self.oom_kills = OomKills()
        self._versions: dict[tuple[Any, ...], _Version] = {}
        self._lenders: dict[str, _Lender] = {}
        self._count = 0

    @classmethod
    def of_process(cls) -> Node:
        """The one of this process, made on first use."""
        with cls._lock_of_process:
            if cls._of_process is None:
                cls._of_process = cls()
                atexit.register(cls._of_process.close)
            return cls._of_process

    @contextlib.contextmanager
    def group(self, order: Order) -> Iterator[WorkerGroup]:
        """The group of a version, which stays warm until another version is asked for.

        One with which a start has failed is not used again: its sources may be mended by then.
        """
        key = (order.kind, order.target, order.attribute, order.directory, order.code)
        with self.lock:
            for other in [it for it in self._versions if it[:-1] == key[:-1] and it != key]:
                self._forget(other)  # older code of the same application
            version = self._versions.get(key)
            if version is None:
                idle = [it for it, version in self._versions.items() if not version.users]
                for other in idle[: max(0, len(self._versions) + 1 - APPLICATIONS_MAX)]:
                    self._forget(other)
                version = self._versions[key] = _Version(order)
            version.users += 1
        try:
            yield version.group
        except ConfigError:
            with self.lock:
                if self._versions.get(key) is version:
                    self._forget(key)
            raise
        finally:
            with self.lock:
                version.users -= 1
                version.close_if_left()

    def _forget(self, key: tuple[Any, ...]) -> None:
        version = self._versions.pop(key)
        version.is_left = True
        version.close_if_left()

    @contextlib.contextmanager
    def lender(self, config: dict[str, Any]) -> Iterator[str]:
        """The socket of this node's lender of services with these settings, made on first use.

        It stays, with its services, until one of other settings is asked for.
        """
        key = json.dumps(config, sort_keys=True)
        with self.lock:
            for other in [it for it, one in self._lenders.items() if it != key and not one.users]:
                _end_aside(self._lenders.pop(other).services.close)
            if key not in self._lenders:
                self._count += 1
                path = Path(self.directory, f"pool-{self._count}")
                services = Services(path, PoolConfig(**config), _nothing, _nothing)
                self._lenders[key] = _Lender(services)
            lender = self._lenders[key]
            lender.users += 1
        try:
            yield str(lender.services.path)
        finally:
            with self.lock:
                lender.users -= 1

    def new_directory(self) -> str:
        """A directory for one worker; the caller removes it."""
        with self.lock:
            self._count += 1
            path = os.path.join(self.directory, str(self._count))
            self._protect()
        os.mkdir(path, 0o700)
        return path

    def _protect(self) -> None:
        """Make the directory again where a clean-up has removed it, and lock that one."""
        while not _holds(self._life, self.directory):
            if self._life is not None:
                os.close(self._life)
                self._life = None
            make_private(Path(self.directory))
            with contextlib.suppress(FileNotFoundError):  # removed again, by who saw no lock
                self._life = _lock(self.directory)
            if self._life is None:
                time.sleep(AGAIN_S)

    def close(self) -> None:
        """End everything. Idempotent."""
        with self.lock:
            for key in list(self._versions):
                self._versions.pop(key).group.close(END_S)
            while self._lenders:
                self._lenders.popitem()[1].services.close()
            shutil.rmtree(self.directory, ignore_errors=True)
            if self._life is not None:
                os.close(self._life)
                self._life = None


def _new_directory() -> tuple[str, int | None]:
    """A private directory, and the lock that is held as long as it is in use."""
    # Under another name until it is locked, so that nobody takes it for a dead node's.
    unlocked = tempfile.mkdtemp(prefix=f".{PREFIX}", dir=ROOT)
    life = _lock(unlocked)
    path = os.path.join(ROOT, os.path.basename(unlocked)[1:])
    os.rename(unlocked, path)
    return path, life


@dataclass(slots=True)
class _Lender:
    """A lender of services, and how many workers may lease from it."""

    services: Services
    users: int = 0


def _lock(directory: str) -> int | None:
    """The lock by which others know that a node's directory is in use; None: it is."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _holds(life: int | None, directory: str) -> bool:
    """Whether that is the lock of what has this name now."""
    try:
        return life is not None and os.path.samestat(os.fstat(life), os.stat(directory))
    except FileNotFoundError:
        return False


def _remove_left() -> None:
    """Remove directories of nodes of this user that were killed."""
    for left in Path(ROOT).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            found = left.lstat()
            if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
                continue
            life = _lock(str(left))
            if life is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(life)


class _Version:
    """The group of one version of an application, for as long as somebody uses it."""

    def __init__(self, order: Order) -> None:
        spec = WorkerService.spec(order.kind, order.target, order.attribute, order.directory)
        self.group = WorkerGroup(spec, start_timeout=order.start_timeout, name="workers")
        self.users = 0
        self.is_left = False
        """Whether nobody gets it any more."""

    def close_if_left(self) -> None:
        """End its template once nobody has a worker of it; waits for nothing."""
        if self.is_left and not self.users:
            _end_aside(lambda: self.group.close(END_S))


def _end_aside(end: Callable[[], None]) -> None:
    """End something in a thread of its own: tasks of this process go on meanwhile."""
    threading.Thread(target=end, name="forebay-node-end").start()


def _nothing(*_: Any, **__: Any) -> None:
    """A node keeps no services warm, and its feed is nobody's."""
