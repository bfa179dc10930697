"""Where a server keeps its state, and where it is found.

Each application, which is one source file, has a name of its own: the stem of the file and eight
digits of a hash of its path.
Its state lies in `<state root>/<name>/`, its sockets in the runtime directory of the user.
A running server has a *notice* beside its socket, `<name>.json`, which it holds locked: a process
that can lock it knows that the server is gone, however that ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from forebay._runtime_directory import make_private, open_private, runtime_root
from forebay._working_directory import working_directory
from forebay.errors import BusyError, ConfigError
from forebay.executor.app.target import Target

SOCKET_BYTES_MAX = 107
"""A Unix socket's path is no longer (`sun_path` in unix(7), without its final NUL)."""

STEM_CHARS_MAX = 24
"""Of the file's name in the names of paths, so that a socket's path stays short."""

_LONGEST_SUFFIX = ".sock"

TOKENS, LOCAL_TOKEN = "tokens.json", "local.token"
"""In the state directory: the tokens of the gateway, and that of this user with its addresses."""


def state_root(directory: str | os.PathLike[str] | None = None) -> Path:
    """Where all servers of this user keep their state; not made by asking.

    It is `directory`, else `FOREBAY_STATE_DIR`, else `forebay` in `$XDG_STATE_HOME`, which is
    `~/.local/state` where the variable is not set.
    """
    named = os.fspath(directory) if directory is not None else os.environ.get("FOREBAY_STATE_DIR")
    if named:
        path = Path(named).expanduser()
        return path if path.is_absolute() else working_directory() / path
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "forebay"


@dataclass(frozen=True, slots=True)
class ServerPaths:
    """The paths of one application's server.

    Attributes:
        name: what all of them are called after.
        state: directory of the database, results, logs and journal.
        socket: where clients connect.
    """

    name: str
    state: Path
    socket: Path

    @property
    def side_socket(self) -> Path:
        """Where its workers connect, for what does not wait for an answer."""
        return self.socket.with_suffix(".side")

    @property
    def pool_socket(self) -> Path:
        """Where its services are lent."""
        return self.socket.with_suffix(".pool")

    @property
    def takeover_socket(self) -> Path:
        """Where a server that is to take its place asks for that."""
        return self.socket.with_suffix(".take")

    @property
    def engine_socket(self) -> Path:
        """Where stand-ins ask for nodes, with an engine."""
        return self.socket.with_suffix(".node")

    @property
    def notice(self) -> Path:
        """Where it says that it runs."""
        return self.socket.with_suffix(".json")

    @property
    def manifest(self) -> Path:
        """What the application was when it was last imported."""
        return self.state / "manifest.json"

    @property
    def tokens(self) -> Path:
        """Who may call it through its gateway."""
        return self.state / TOKENS

    @property
    def log(self) -> Path:
        """What a server in the background writes."""
        return self.state / "server.log"


def paths_of(target: Target, *, state_dir: str | os.PathLike[str] | None = None) -> ServerPaths:
    """The paths of the server of an application; nothing is made.

    Servers of one application with different state roots have different sockets.

    Raises:
        ConfigError: the socket's path would be longer than a socket's path can be.
    """
    root = state_root(state_dir)
    stem = "".join(it if it.isalnum() or it in "-_" else "-" for it in target.file.stem)
    if target.file.stem == "__init__":
        stem = target.file.parent.name
    stem = stem.encode("ascii", "replace").decode().replace("?", "-")[:STEM_CHARS_MAX]
    name = f"{stem}-{_digest(str(target.file))}"
    called = name if root == state_root() else f"{stem}-{_digest(f'{target.file}{root}')}"
    socket = runtime_root() / f"{called}{_LONGEST_SUFFIX}"
    check_socket_path(socket)
    return ServerPaths(name=name, state=root / name, socket=socket)


def main_of(name: str, sources: Iterable[str]) -> str | None:
    """Which of an application's source files its state directory is called after; None: none."""
    return next((source for source in sources if name.endswith(f"-{_digest(source)}")), None)


def check_socket_path(path: Path) -> None:
    """Refuse the path of a socket that the kernel would refuse without saying why.

    Raises:
        ConfigError: it is longer than 107 bytes.
    """
    length = len(os.fsencode(path))
    if length > SOCKET_BYTES_MAX:
        raise ConfigError(
            f"the path of the socket {path} has {length} bytes, and a socket's path at most "
            f"{SOCKET_BYTES_MAX}; set XDG_RUNTIME_DIR to a shorter directory"
        )


_LOCK: Final = struct.Struct("hhqqi4x")
"""`struct flock` of fcntl(2): kind, whence, start, length, process."""
_WHOLE_FILE: Final = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class StateLock:
    """The right to serve from a state directory, which is made where it is missing.

    It ends with `close`, or with the process, of all who have its descriptor.

    Args:
        state: the directory.
        passed: the descriptor of one who holds it already and passes it on; it is taken.

    Raises:
        BusyError: another server has it; the message names its process.
        ConfigError: the directory cannot be used.
    """

    def __init__(self, state: Path, passed: int | None = None) -> None:
        self._file: IO[str]
        if passed is not None:
            self._file = open(passed, "a+")  # noqa: SIM115
            self._write_holder()
            return
        make_private(state)
        # Kept open for as long as this object lives: the lock is the descriptor's.
        try:
            self._file = open(  # noqa: SIM115
                state / "lock", "a+", opener=open_private
            )
        except OSError as error:
            raise ConfigError(
                f"the state directory {state} cannot be written: {error.strerror}; make room, or "
                "set FOREBAY_STATE_DIR to another directory"
            ) from error
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        except (BlockingIOError, PermissionError):  # fcntl(2) has both for a lock that is held
            self._file.seek(0)
            holder = self._file.read().strip()
            self._file.close()
            raise BusyError(
                f"the state in {state} is served by process {holder or '(starting)'} already; "
                "use that server, or stop it with: forebay stop"
            ) from None
        self._write_holder()

    def _write_holder(self) -> None:
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def fileno(self) -> int:
        """Its descriptor, for a process that is to hold it too."""
        return self._file.fileno()

    @property
    def removed(self) -> bool:
        """Whether the directory, with all that it keeps, was removed since."""
        return not self._file.closed and os.fstat(self._file.fileno()).st_nlink == 0

    def close(self) -> None:
        """Give it up; idempotent."""
        self._file.close()

    @staticmethod
    def is_held(state: Path) -> bool:
        """Whether a server has it, be it that it starts, serves or ends.

        It asks without taking it: whoever took it to see would turn a starting server away.
        """
        try:
            with open(state / "lock") as file:
                told = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _WHOLE_FILE)
        except OSError:
            return False
        return bool(_LOCK.unpack(told)[0] != fcntl.F_UNLCK)


@dataclass(frozen=True, slots=True)
class Running:
    """What a running server tells those who look for one.

    Attributes:
        pid: its process.
        started_at: seconds since 1970.
        target: the file of its application, with the name behind the colon where one was given.
        file: the file alone.
        socket: where it serves.
        state: its state directory.
    """

    pid: int
    started_at: float
    target: str
    file: str
    socket: str
    state: str

    @property
    def pool_socket(self) -> str:
        """Where its services are lent."""
        return os.fspath(Path(self.socket).with_suffix(".pool"))


class Notice:
    """Says that a server runs, until it is closed or the process ends."""

    def __init__(self, path: Path, running: Running) -> None:
        self._path = path
        fresh = path.with_suffix(f".{os.getpid()}.new")
        with _turn(path.parent):
            for left in path.parent.glob("*.*.new"):  # in turn: whoever wrote it was killed
                left.unlink(missing_ok=True)
            # Kept open: the lock is the descriptor's.
            self._file: IO[str] = open(fresh, "w", opener=open_private)  # noqa: SIM115
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX)
                json.dump({"schema": 1, **asdict(running)}, self._file)
                self._file.flush()
                os.rename(fresh, path)
            except OSError:
                fresh.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # what could not be written is tried again
                    self._file.close()
                raise

    def close(self) -> None:
        """Take it back; idempotent."""
        if not self._file.closed:
            with contextlib.suppress(OSError), _turn(self._path.parent):
                _unlink_if_same(self._path, self._file)
            self._file.close()


def running() -> list[Running]:
    """The servers of this user that run, the newest first. Notices of ended ones are removed."""
    root = runtime_root()
    if not _is_private(root):
        return []
    try:
        names = os.listdir(root)
    except OSError:
        return []
    found = [_read(root / name) for name in names if name.endswith(".json")]
    return sorted((it for it in found if it), key=lambda it: it.started_at, reverse=True)


def running_at(paths: ServerPaths) -> Running | None:
    """The server of an application that runs and is ready; None: there is none."""
    return _read(paths.notice) if _is_private(paths.notice.parent) else None


def newest() -> Running | None:
    """The server that was started last, which a bare name means; None: none runs."""
    return next(iter(running()), None)


def _is_private(directory: Path) -> bool:
    """Whether nobody but this user can have put anything there.

    Without XDG_RUNTIME_DIR it is in /tmp under a name that anybody can guess: a notice of another
    user's would lead requests, with their arguments, to a socket of theirs.
    """
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    mine = found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return mine and stat.S_ISDIR(found.st_mode)


def _read(path: Path) -> Running | None:
    try:
        with open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                told = json.load(file)
                told.pop("schema")
                return Running(**told)
            with _turn(path.parent, wait=False):  # its server is gone
                _unlink_if_same(path, file)
    except (OSError, ValueError, TypeError, KeyError):
        pass  # taken back meanwhile, or of another version
    return None


@contextlib.contextmanager
def _turn(directory: Path, *, wait: bool = True) -> Iterator[None]:
    """Be the only one who changes notices, by a lock on their directory.

    Raises:
        BlockingIOError: another one does, and `wait` is false.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _unlink_if_same(path: Path, file: IO[str]) -> None:
    """Remove a notice unless another server has put its own there meanwhile; in turn."""
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
            os.unlink(path)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
