"""Services that the tests of the pool use; a module that a template can import."""

from __future__ import annotations

import atexit
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import forebay


def made_list(count: int) -> list[int]:
    """What a factory makes; it has methods that no class of a service names."""
    return list(range(count))


class Echo(forebay.Service):
    """Keeps nothing between leases."""

    def __init__(self, base: int = 0) -> None:
        self.base = base

    def echo(self, value: Any) -> Any:
        return value

    def add(self, value: int) -> int:
        return self.base + value

    def fail(self, message: str) -> None:
        raise ValueError(message)

    def leave(self, code: int) -> None:
        os._exit(code)

    def die(self, number: int) -> None:
        print("about to die", file=sys.stderr)
        os.kill(os.getpid(), number)

    def hang(self) -> None:
        time.sleep(3600)

    def say(self, text: str) -> None:
        print(text)

    def spawn(self) -> int:
        """Start a program that would outlive us."""
        return subprocess.Popen(["sleep", "3600"]).pid

    def temporary_file(self) -> str:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            return file.name

    def random(self) -> float:
        return random.random()

    def threads(self) -> int:
        return len(os.listdir("/proc/self/task"))

    def open_descriptors(self) -> list[int]:
        return sorted(int(name) for name in os.listdir("/proc/self/fd"))

    def ignore_termination(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


class Arrays(forebay.Service):
    """Takes and gives large arrays."""

    def first_and_sum(self, array: Any) -> tuple[int, int]:
        return int(array[0]), int(array.sum()) // 10

    def made(self, size: int, value: int) -> Any:
        import numpy

        return numpy.full(size, value, numpy.uint8)


class Ledger(forebay.Service):
    """Keeps what it is told for later leases."""

    resets = forebay.Reset.STATELESS
    stateful = True

    def __init__(self) -> None:
        self.held: dict[str, int] = {}

    def put(self, name: str, value: int) -> None:
        self.held[name] = value

    def get(self, name: str) -> int:
        return self.held[name]


class Notes(forebay.Service):
    """Keeps what it is told until it is reset."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.resets_done = 0
        self.how = "well"

    def note(self, text: str) -> int:
        self.notes.append(text)
        return len(self.notes)

    def read(self) -> list[str]:
        return self.notes

    def count(self) -> int:
        return self.resets_done

    def next_reset(self, how: str) -> None:
        """Make the next reset go `well`, `hang`, `fail` or `die`."""
        self.how = how

    def reset(self) -> None:
        if self.how == "hang":
            time.sleep(3600)
        if self.how == "fail":
            raise RuntimeError("cannot forget")
        if self.how == "die":
            os._exit(9)
        self.notes.clear()
        self.resets_done += 1


class Once(Echo):
    """Every lease gets a new one."""

    resets = forebay.Reset.NEVER


class Slow(Echo):
    """Takes its time to start."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        time.sleep(seconds)


class Unmakeable(forebay.Service):
    """Cannot be made."""

    def __init__(self) -> None:
        raise LookupError("no such thing")

    def ping(self) -> str:
        return "pong"


class Suicidal(forebay.Service):
    """Ends before it is ready."""

    def __init__(self) -> None:
        print("I would rather not", flush=True)
        os._exit(3)

    def ping(self) -> str:
        return "pong"


class Owned(forebay.Service):
    """Knows when two use it at once: who enters must be the next to leave."""

    def __init__(self) -> None:
        self.owner: str | None = None

    def enter(self, token: str) -> None:
        if self.owner is not None:
            raise RuntimeError(f"{token} came while {self.owner} was here")
        self.owner = token

    def leave(self, token: str) -> str:
        if self.owner != token:
            raise RuntimeError(f"{token} leaves but {self.owner} is here")
        self.owner = None
        return token

    def reset(self) -> None:
        if self.owner is not None:
            raise RuntimeError(f"{self.owner} is still here")


class Tree(forebay.Service):
    """Has state, random generators, and can be made unfit for copying."""

    def __init__(self) -> None:
        self.path: list[int] = []
        self.seeded = 0

    def step(self, action: int) -> list[int]:
        self.path.append(action)
        return self.path

    def draw(self) -> tuple[float, float]:
        import numpy as np

        return random.random(), float(np.random.random())

    def reseed(self) -> None:
        self.seeded += 1

    def seeds(self) -> int:
        return self.seeded

    def start_thread(self) -> None:
        import threading

        threading.Thread(target=threading.Event().wait, name="ticker", daemon=True).start()

    def where(self) -> tuple[int, str]:
        return os.getpid(), tempfile.mkdtemp()


class Barren(Tree):
    """Its copies cannot be told apart from it."""

    def reseed(self) -> None:
        raise ValueError(f"no seed after {self.path}")


class Costly(Tree):
    """Made once, forked for each lease."""

    resets = forebay.Reset.FORK

    def __init__(self, fail: bool = False) -> None:
        super().__init__()
        if fail:
            raise ValueError("no such model")
        self.made_by = os.getpid()

    def origin(self) -> tuple[int, int]:
        return self.made_by, os.getpid()


VISITORS: list[str] = []
"""Plain data of a module, which a careless service changes."""


class Leaky(forebay.Service):
    """Forgets some of what it is told."""

    canary_ignores = ("cache",)

    def __init__(self) -> None:
        self.secret = ""
        self.cache: dict[str, str] = {}
        self.kept: list[str] = []

    def remember(self, text: str) -> None:
        self.cache[text] = self.secret = text

    def keep(self, text: str) -> None:
        self.kept.append(text)

    def visit(self, text: str) -> None:
        VISITORS.append(text)

    def wander(self) -> None:
        os.chdir("/")

    def open_file(self) -> int:
        return os.open("/dev/null", os.O_RDONLY)

    def reset(self) -> None:
        self.secret = ""


class Sessions(forebay.Service):
    """Keeps its callers apart, so that several may share it."""

    max_leases = 3

    def __init__(self) -> None:
        self.sessions: dict[str, list[int]] = {}
        self.compiled: set[int] = set()
        self.resets_done = 0

    def step(self, session: str, action: int) -> list[int]:
        self.compiled.add(action)
        self.sessions.setdefault(session, []).append(action)
        return self.sessions[session]

    def cached(self) -> int:
        return len(self.compiled)

    def hang(self) -> None:
        time.sleep(3600)

    def count(self) -> int:
        return self.resets_done

    def reset(self) -> None:
        self.sessions.clear()
        self.resets_done += 1


class Leaver(forebay.Service):
    """Writes to a file what runs at its end."""

    def __init__(self, file: str = "", hang: bool = False) -> None:
        self._file = file
        self._hang = hang

    def register(self) -> None:
        """Have an exit handler, from now on."""
        atexit.register(self._note, "atexit")
        if self._hang:
            atexit.register(time.sleep, 3600)

    def share(self) -> str:
        """Make shared memory, and leave its removal to multiprocessing."""
        from multiprocessing.shared_memory import SharedMemory

        self._kept = SharedMemory(create=True, size=1_000_000)
        return self._kept.name

    def spawn(self) -> int:
        """Start a program that would outlive us."""
        return subprocess.Popen(["sleep", "3600"]).pid

    def hang(self) -> None:
        time.sleep(3600)

    def _note(self, what: str) -> None:
        with open(self._file, "a") as file:
            file.write(what + "\n")


class Closer(Leaver):
    """Has a `close`, and a finalizer."""

    def close(self) -> None:
        self._note("close")

    def __del__(self) -> None:
        self._note("del")


class OneLease(Leaver):
    """Serves one lease."""

    resets = forebay.Reset.NEVER


class ForkedLeaver(Leaver):
    """Is forked for each lease."""

    resets = forebay.Reset.FORK


class Environment(forebay.Service):
    """Tells what its process was started with."""

    def of(self, name: str) -> str | None:
        return os.environ.get(name)
