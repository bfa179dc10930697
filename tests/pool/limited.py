"""Services with limits that the tests of the pool use; a module that a template can import."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time

import forebay


class Hog(forebay.Service):
    """Uses what it is told to use."""

    limits: forebay.Limits | None = None

    def __init__(self) -> None:
        self.kept: list[bytearray] = []

    def grow(self, megabytes: int) -> int:
        """Keep so much more memory, all of it written to."""
        self.kept.append(bytearray(megabytes << 20))
        return sum(map(len, self.kept)) >> 20

    def shrink(self) -> None:
        self.kept.clear()

    def open_many(self, count: int) -> int:
        """Open so many files at once."""
        with contextlib.ExitStack() as files:
            return len([files.enter_context(open("/dev/null")) for _ in range(count)])

    def fork_many(self, count: int) -> int:
        """Start up to so many processes that stay; how many could be started."""
        started = 0
        for _ in range(count):
            try:
                child = os.fork()
            except OSError:
                break
            if child == 0:
                while True:
                    time.sleep(3600)
            started += 1
        return started

    def spin(self, seconds: float) -> float:
        """Compute for so long; the processor time that it took."""
        before, until = time.process_time(), time.monotonic() + seconds
        while time.monotonic() < until:
            pass
        return time.process_time() - before

    def hang(self) -> None:
        time.sleep(3600)

    def spawn_apart(self) -> int:
        """Start a process in a session of its own."""
        command = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]
        return subprocess.Popen(command, start_new_session=True).pid

    def resource_limit(self, name: str) -> tuple[int, int]:
        return resource.getrlimit(getattr(resource, name))

    def cgroup(self) -> str:
        """Where it is in the tree of version 2."""
        with open("/proc/self/cgroup") as file:
            lines = file.read().splitlines()
        return next((line[3:] for line in lines if line.startswith("0::")), "")


class Memory(Hog):
    limits = forebay.Limits(memory="256MiB")


class Files(Hog):
    limits = forebay.Limits(open_files=64)


class FilesOnce(Files):
    """Ended when its lease ends."""

    resets = forebay.Reset.NEVER


class Processes(Hog):
    limits = forebay.Limits(processes=16)
    resets = forebay.Reset.NEVER


class Half(Hog):
    limits = forebay.Limits(cpu=0.5)


class Advised(Hog):
    limits = forebay.Limits(memory="256MiB", cpu=0.5, processes=16, advisory=True)


class Hasty(Hog):
    limits = forebay.Limits(call_timeout="1s")


class Confined(Hog):
    """Knows where its constructor ran, and with which limits."""

    limits = forebay.Limits(open_files=99)

    def __init__(self) -> None:
        super().__init__()
        self.born = (self.cgroup(), self.resource_limit("RLIMIT_NOFILE"))

    def birth(self) -> tuple[str, tuple[int, int]]:
        return self.born


class ConfinedPerLease(Confined):
    """Is made in its template."""

    resets = forebay.Reset.FORK


class Foreign:
    """Nobody's service, with attributes that say something else here."""

    limits = "none of ours"

    def open_files(self) -> tuple[int, int]:
        return resource.getrlimit(resource.RLIMIT_NOFILE)

    def hang(self) -> None:
        time.sleep(3600)


class Writer(forebay.Service):
    """Writes files in its directories."""

    def __init__(self) -> None:
        self.cache = os.path.join(tempfile.gettempdir(), "cache")
        with open(self.cache, "w") as file:
            file.write("made once")

    def cached(self) -> str:
        with open(self.cache) as file:
            return file.read()

    def temporary_directory(self) -> str:
        return tempfile.gettempdir()

    def child_temporary_directory(self) -> str:
        return subprocess.check_output(["printenv", "TMPDIR"], text=True).strip()

    def listing(self) -> list[str]:
        return sorted(os.listdir(tempfile.gettempdir()))

    def read(self, name: str) -> str:
        with open(os.path.join(tempfile.gettempdir(), name)) as file:
            return file.read()

    def write(self, name: str) -> None:
        path = os.path.join(tempfile.gettempdir(), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(name)

    def link(self, name: str, target: str) -> None:
        os.symlink(target, os.path.join(tempfile.gettempdir(), name))

    def grow_tree(self, depth: int, files: int) -> None:
        """Make a deep tree, and many files at its top."""
        for number in range(files):
            self.write(f"file-{number}")
        self.write("/".join(["d"] * depth) + "/file")


class Plain(Writer):
    """Makes nothing when it is made."""

    def __init__(self) -> None:
        pass


class Tidy(Writer):
    """Is reset between leases, and writes something then."""

    def reset(self) -> None:
        self.write("written by a reset")


class Common(Writer):
    """Serves two leases at once."""

    max_leases = 2


class CommonTidy(Common):
    """Is reset when the last of them ends."""

    def reset(self) -> None:
        pass


class Seeded(Plain):
    """Writes something when it is to have random numbers of its own."""

    def __init__(self) -> None:
        self._seeds = 0

    def reseed(self) -> None:
        self._seeds += 1
        self.write("reseeded")

    def seeds(self) -> int:
        return self._seeds


class Settled(Writer):
    """Runs in the directory of its lease."""

    chdir = True

    def write_here(self, name: str) -> None:
        with open(name, "w") as file:
            file.write(name)

    def current_directory(self) -> str:
        return os.getcwd()

    def wander(self, path: str) -> None:
        os.chdir(path)
