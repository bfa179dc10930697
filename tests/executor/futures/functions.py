"""Functions that the tests have run in workers, and how they wait for them."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

STATE: list[Any] = []
REACH_S = 20.0


def reach(path: Path) -> None:
    """Wait until a call has made a file: `wait_for` makes one when it begins."""
    tick = threading.Event()
    for _ in range(int(REACH_S / 0.005)):
        if path.exists():
            return
        tick.wait(0.005)
    raise AssertionError(f"{path} did not appear")


def double(number: int) -> int:
    return 2 * number


def pid() -> int:
    return os.getpid()


def nap(number: int) -> tuple[int, int]:
    """Return the number and this process, two milliseconds later."""
    time.sleep(0.002)
    return number, os.getpid()


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exit_with(code: int) -> None:
    os._exit(code)


def raise_value_error() -> None:
    raise ValueError("no such thing")


def not_to_be_pickled() -> Any:
    return threading.Lock()


def meet(folder: str, name: str, others: int) -> int:
    """Return once so many others are in here too; this process."""
    Path(folder, name).touch()
    while len(os.listdir(folder)) <= others:
        time.sleep(0.001)
    return os.getpid()


def wait_for(path: str) -> str:
    """Return once there is such a file."""
    Path(path + ".begun").touch()
    while not os.path.exists(path):
        time.sleep(0.001)
    return path


def count_at_once(folder: str, name: str) -> int:
    """How many calls of this were at work when it began."""
    place = Path(folder, name)
    place.touch()
    found = len(os.listdir(folder))
    time.sleep(0.05)
    place.unlink()
    return found


def remember(value: Any) -> None:
    STATE.append(value)


def remembered() -> list[Any]:
    return STATE


class Unmade:
    """Can be pickled, and not be made again."""

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _refuse, ()


def _refuse() -> None:
    raise LookupError("cannot be made")


def unmade() -> Unmade:
    return Unmade()
