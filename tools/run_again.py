"""Run what failed in the log of `make test` again, alone: `python -m tools.run_again LOG`.

Most tests are of times and of processes, and beside each other, cargo's tests and lint one of 9,000
misses a limit now and then. At most five may, none may fail twice, and each is printed, so that it
is looked into. What failed in another way, as a build or the guest for verbs, is not run again.

The exit code is 0 if all of them passed this time.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

MOST: Final = 5
TARGETS: Final = {"test", "test-rust", "test-python"}
"""Targets of make that fail with a test."""

_TARGET = re.compile(r"^make(?:\[\d+\])?: \*\*\* \[\S+: ([\w-]+)\] Error", re.MULTILINE)
_PYTHON = re.compile(r"^(?:FAILED|ERROR) (\S+?::.+?)(?: - .*)?$", re.MULTILINE)
_RUST = re.compile(r"\btest (\S+) \.\.\. FAILED$", re.MULTILINE)
_CARGO = re.compile(r"^    `(-p \S+ .+)`$", re.MULTILINE)
_PASSED = re.compile(r"^test result: ok\. (\d+) passed", re.MULTILINE)


@dataclass(frozen=True)
class Failed:
    """What a log says has failed.

    Attributes:
        python: tests of pytest.
        rust: tests of cargo, by name.
        targets: of cargo that have those, as its options.
        parts: targets of make.
    """

    python: list[str]
    rust: list[str]
    targets: list[str]
    parts: set[str]

    @classmethod
    def of(cls, log: str) -> Self:
        """Read a log."""
        python, rust, targets = (
            sorted(set(each.findall(log))) for each in (_PYTHON, _RUST, _CARGO)
        )
        return cls(python, rust, targets, set(_TARGET.findall(log)))

    @property
    def may_run_again(self) -> bool:
        """Whether tests are all that failed, and few."""
        told = {"test-python": self.python, "test-rust": self.rust}
        is_told = all((part in self.parts) == bool(tests) for part, tests in told.items())
        return is_told and self.parts <= TARGETS and 0 < len(self.python + self.rust) <= MOST


def main() -> int:
    """Read the log, run again, say what came of it."""
    failed = Failed.of(Path(sys.argv[1]).read_text(errors="replace"))
    if not failed.may_run_again:
        print(f"==> not run again: {failed}")
        return 1
    print("==> these failed, and are run again alone:", *failed.python, *failed.rust, sep="\n  ")
    passed = not failed.python or _run(sys.executable, "-m", "pytest", *failed.python)[0]
    count = sum(_passes(target.split(), failed.rust) for target in failed.targets)
    passed = passed and count == len(failed.rust)
    print(f"==> {'each passed: look why it failed' if passed else 'failed again'}")
    return 0 if passed else 1


def _passes(target: list[str], names: list[str]) -> int:
    """How many of these tests pass in a target of cargo."""
    features = ["--features", "bundled-sqlite"] if "forebay-executor" in target else []
    command = ["cargo", "test", "--locked", *features, *target, "--", "--exact"]
    passed, output = _run(*command, "--include-ignored", *names)
    return sum(map(int, _PASSED.findall(output))) if passed else 0


def _run(*command: str) -> tuple[bool, str]:
    """Whether a command succeeds, and what it says, which is shown."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(done.stdout, flush=True)
    return done.returncode == 0, done.stdout


if __name__ == "__main__":
    sys.exit(main())
