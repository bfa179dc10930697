"""The fault of a clock that jumps: for the server and all below it, not for the machine."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

from forebay.testing.experiment.injector import Injected
from forebay.testing.experiment.schedule import Planned

__all__ = ["SOURCE", "ClockJump", "WallClock"]

SOURCE: Final = Path(__file__).parent / "wall_clock.c"
DAY_S: Final = 86_400
LEAST_S: Final = 2.0
DAYS_MAX: Final = 10
COMPILE_S: Final = 60


class WallClock:
    """The wall clock of processes that are started with its `environment`.

    A library that is loaded before libc adds what a file says. The monotonic clock is the
    machine's.

    Args:
        directory: where the library and the file lie.

    Attributes:
        refusal: why there is none.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        self._library = directory / "wall_clock.so"
        self.set(0.0)
        self.refusal = self._compile()

    @property
    def environment(self) -> dict[str, str]:
        """Of processes under it."""
        if self.refusal is not None:
            return {}
        preloaded = [str(self._library), os.environ.get("LD_PRELOAD", "")]
        return {
            "LD_PRELOAD": " ".join(filter(None, preloaded)),
            "WALL_CLOCK": str(self._file),
        }

    def set(self, seconds: float) -> None:
        """So far from the machine's, from now on."""
        file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.pwrite(file, struct.pack("q", int(seconds * 1000)), 0)
        os.close(file)

    def _compile(self) -> str | None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            return "the clock that jumps is compiled by cc, which is not installed"
        files = ["-o", str(self._library), str(SOURCE), "-ldl"]
        command = [compiler, "-O2", "-shared", "-fPIC", *files]
        made = subprocess.run(command, capture_output=True, timeout=COMPILE_S, check=False)
        if made.returncode:
            told = made.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
            return f"{compiler} cannot compile the clock that jumps: {told[-1]}"
        return None


class ClockJump:
    """Sets the wall clock forward or back, and to the machine's again.

    Args:
        clock: that of the server.
    """

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock

    def reason_not(self) -> str | None:
        """As of every injector."""
        return self._clock.refusal

    def inject(self, planned: Planned) -> Injected | None:
        """Set it: from seconds to days away, each order of magnitude as often as another."""
        most = DAYS_MAX * DAY_S / LEAST_S
        seconds = LEAST_S * most**planned.size * (1 if planned.choice < 0.5 else -1)
        self._clock.set(seconds)
        return Injected(f"{seconds:+.0f} s for {planned.lasts:.1f} s", lambda: self._clock.set(0.0))
