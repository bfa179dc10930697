"""distributed's whole suite with our comms at tcp:// and tls://, in spawned processes too.

    python -m tests.dask.suite CHECKOUT [FILE ...] [--slow] [--record FILE]

CHECKOUT is a source checkout of the `distributed` that is installed. Its tests are laid out beside
links to the installed package, whose `__init__` then imports `forebay.dask.tcp`: so does every
process that imports it. A test that fails is run again alone, and then over Dask's own comms: one
that fails there too says nothing about ours. One that fails over ours alone is in `DIFFERENCES`,
with the reason; any other is an error.

With a record, a run that was interrupted goes on where it was, within a file too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

from tests.dask.checkout import lay_out
from tests.dask.record import (
    DIFFERS,
    ENDED,
    FAILED,
    OURS,
    PASSED,
    SKIPPED,
    SLOW,
    THEIRS,
    VERDICTS,
    Line,
    Record,
    counted,
)
from tests.dask.skips import DIFFERENCES

ROOT = Path(__file__).resolve().parents[2]
TEST_TIMEOUT_S = 120
SILENT_S = 3 * TEST_TIMEOUT_S
"""For so long no test ends: its timeout, which is a signal, reaches none."""
POLL_S = 2.0
OUTPUT_MAX = 3000
"""Characters that are recorded of the output of a run in which no test began, from the end."""

WENT_WELL = (0, 1, 2, 5)
"""What pytest exits with where it came to its end: without tests, and with tests that failed."""

APPENDED = "\nimport forebay.dask.tcp\n"
THEIR_COMM = "from distributed.comm.tcp import TCP\n"
OUR_COMM = "from forebay.dask._mixed import TCP\n"

NOT_RUN = {
    "comm/tests/test_tcp.py": "it tests Dask's own backend",
    "comm/tests/test_ws.py": "it tests Dask's own backend",
    "deploy/tests/test_ssh.py": "it needs a server of SSH",
    "deploy/tests/test_old_ssh.py": "it needs a server of SSH",
}
"""Files below `distributed` that are left out, and why."""


def put_in_place(folder: Path) -> None:
    """Have the laid out package register our comms wherever it is imported."""
    init = folder / "distributed/__init__.py"
    rewrite(init, init.read_text() + APPENDED)
    # It wraps comms that workers get, in a class of its own below theirs.
    tools = folder / "distributed/utils_test.py"
    text = tools.read_text()
    assert THEIR_COMM in text
    rewrite(tools, text.replace(THEIR_COMM, OUR_COMM))


def rewrite(link: Path, text: str) -> None:
    """Put a file in the place of a link, and leave alone what that leads to."""
    link.unlink()
    link.write_text(text)


def files_of(folder: Path) -> list[str]:
    """The test files of a tree, relative to its `distributed`."""
    package = folder / "distributed"
    found = sorted(str(path.relative_to(package)) for path in package.rglob("tests/test_*.py"))
    return [name for name in found if name not in NOT_RUN]


class Suite:
    """Two trees of one checkout, over our comms and over theirs, and the record of their runs.

    Args:
        scratch: an empty folder.
        checkout: sources of the installed `distributed`.
        record: continued.
        slow: whether tests that are marked as slow are run.
    """

    def __init__(self, scratch: Path, checkout: Path, record: Record, *, slow: bool) -> None:
        self._scratch = scratch
        self._record = record
        self._slow = slow
        self.trees: dict[str, Path] = {}
        for comms in (OURS, THEIRS):
            folder = scratch / comms
            folder.mkdir()
            self.trees[comms] = lay_out(folder, checkout, signed=comms == OURS)
        put_in_place(self.trees[OURS])

    def run(self, file: str) -> None:
        """Run what the record lacks of a file, and judge what failed."""
        name = f"distributed/{file}"
        if self._record.has_ended(name, slow=self._slow):
            return
        began = time.monotonic()
        self._record.close_started("its run was interrupted")
        while self._ended_early(name):
            pass
        found = {
            test: said
            for test, said in self._record.verdicts().items()
            if test.partition("::")[0] == name
        }
        for test in (test for test, said in found.items() if said == FAILED):
            self._judge(test)
        compared = {line.test for line in self._record.lines() if line.comms == THEIRS}
        skipped = {test for test, said in found.items() if said == SKIPPED} - compared
        if skipped:
            self._pytest(name, THEIRS, found.keys() - skipped)
        seconds = round(time.monotonic() - began, 1)
        self._record.add(Line(name, OURS, ENDED, seconds, SLOW if self._slow else ""))

    def _ended_early(self, name: str) -> bool:
        """Run a file's tests over ours; whether a test ended the process, and others are left."""
        code = self._pytest(name, OURS, self._record.done(slow=self._slow))
        if code in WENT_WELL:
            return False
        if self._record.close_started(f"the process ended with {code}"):
            return True
        self._record.add(Line(name, OURS, FAILED, reason=self._output()))
        return False

    def _judge(self, test: str) -> None:
        """Run a test that failed alone, over ours, and over theirs if it fails again."""
        self._alone(test, OURS)
        if self._record.verdicts()[test] == FAILED:
            self._alone(test, THEIRS)

    def _alone(self, test: str, comms: str) -> None:
        code = self._pytest(test, comms)
        self._record.close_started(f"the process ended with {code}")

    def _pytest(self, what: str, comms: str, left_out: Iterable[str] = ()) -> int:
        """Run a file or a test in a process; what it exits with, minus a signal that ended it."""
        names = self._scratch / "left_out.json"
        names.write_text(json.dumps(sorted(left_out)))
        command = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider"]
        command += ["-o", "addopts=", "-o", "timeout_method=signal", f"--timeout={TEST_TIMEOUT_S}"]
        command += ["-W", "ignore:get_ipv6 is deprecated:FutureWarning"]
        command += ["-p", "tests.dask.recorder", f"--record={self._record.path}"]
        command += [f"--comms={comms}", f"--leave-out={names}"]
        command += ["--runslow"] if self._slow else []
        folder = self.trees[comms]
        path = os.pathsep.join(filter(None, (str(folder), *sys.path, str(ROOT))))
        with (self._scratch / "output").open("w") as output:
            process = subprocess.Popen(
                [*command, what],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )
        try:
            return self._watched(process)
        finally:
            end_group(process)

    def _watched(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for a process, at most `SILENT_S` for each of its lines in the record."""
        # Rounds are counted, and not seconds: time in which all of this is stopped is nobody's.
        size, rounds = -1, 0
        while rounds * POLL_S < SILENT_S:
            rounds += 1
            try:
                return process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                if self._record.size_bytes() != size:
                    size, rounds = self._record.size_bytes(), 0
        process.kill()
        return process.wait()

    def _output(self) -> str:
        return (self._scratch / "output").read_text(errors="replace")[-OUTPUT_MAX:]


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process, and what it has left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def listed(test: str) -> str | None:
    """Why a test differs, where that is known; parameters may be left out of the table."""
    name = test.removeprefix("distributed/")
    return DIFFERENCES.get(name) or DIFFERENCES.get(name.partition("[")[0])


def summary(record: Record) -> Iterator[str]:
    """Lines of Markdown on what a record says."""
    verdicts = record.verdicts()
    ends = [line for line in record.lines() if line.outcome == ENDED]
    minutes = sum(line.seconds for line in ends) / 60
    files = len({line.test for line in ends})
    yield f"distributed {version('distributed')}, {files} files in {minutes:.0f} minutes:"
    yield ""
    yield f"| folder | {' | '.join(VERDICTS)} |"
    yield f"|{'---|' * (len(VERDICTS) + 1)}"
    for folder, counts in counted(verdicts):
        yield f"| {folder} | {' | '.join(map(str, counts.values()))} |"
    for test, said in sorted(verdicts.items(), key=lambda item: item[::-1]):
        if said not in (PASSED, SLOW, "skipped"):
            yield f"{said}: {test}"


def main() -> int:
    """Run files, or all of them; 1 if one differs that is not listed."""
    parser = argparse.ArgumentParser(prog="python -m tests.dask.suite")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("files", nargs="*", help="below distributed/, as tests/test_core.py")
    parser.add_argument("--slow", action="store_true", help="run tests marked as slow, too")
    parser.add_argument(
        "--record",
        type=Path,
        default=Path("build") / "suite.jsonl",
        help="continue this record, or begin it (%(default)s)",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        options.record.parent.mkdir(parents=True, exist_ok=True)
        record = Record(options.record.resolve())
        suite = Suite(Path(name), options.checkout.resolve(), record, slow=options.slow)
        for file in options.files or files_of(suite.trees[OURS]):
            suite.run(file)
            print(f"{file} has ended", flush=True)  # noqa: T201
        print("\n".join(summary(record)))  # noqa: T201
        verdicts = record.verdicts()
    bad = [
        test for test, said in verdicts.items() if said in (DIFFERS, FAILED) and not listed(test)
    ]
    print(f"differ and are not listed: {bad}; reasons: {options.record}")  # noqa: T201
    return 1 if bad or PASSED not in verdicts.values() else 0


if __name__ == "__main__":
    sys.exit(main())
