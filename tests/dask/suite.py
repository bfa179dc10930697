"""distributed's whole suite with our comms at tcp:// and tls://, in spawned processes too.

    python -m tests.dask.suite CHECKOUT [FILE ...] [--json FILE]

CHECKOUT is a source checkout of the `distributed` that is installed. Its tests are laid out beside
links to the installed package, whose `__init__` then imports `forebay.dask.tcp`: so does every
process that imports it. A test that fails is run again, and then over Dask's own comms: one that
fails there too says nothing about ours. One that fails over ours alone is in `DIFFERENCES`, with
the reason; any other is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

from tests.dask.checkout import lay_out
from tests.dask.skips import DIFFERENCES

ROOT = Path(__file__).resolve().parents[2]
TEST_TIMEOUT_S = 120
FILE_TIMEOUT_S = 3600
IN_PLACE = "FOREBAY_IN_PLACE"

APPENDED = f"""
import os

if os.environ.get("{IN_PLACE}"):
    import forebay.dask.tcp
"""

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
    text = init.read_text()
    init.unlink()
    init.write_text(text + APPENDED)


def files_of(folder: Path) -> list[str]:
    """The test files of a tree, relative to its `distributed`."""
    package = folder / "distributed"
    found = sorted(str(path.relative_to(package)) for path in package.rglob("tests/test_*.py"))
    return [name for name in found if name not in NOT_RUN]


def run(folder: Path, tests: Iterable[str], *, ours: bool) -> dict[str, str]:
    """Run tests of one file in a process; each one's outcome: passed, failed or skipped."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider"]
    command += ["-o", "addopts=", "-o", "timeout_method=signal", f"--timeout={TEST_TIMEOUT_S}"]
    command += ["-W", "ignore:get_ipv6 is deprecated:FutureWarning", f"--junitxml={report}"]
    environment = {**os.environ, IN_PLACE: "1" if ours else ""}
    path = (str(folder), *sys.path, str(ROOT))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    # A file that never ends is a failure of all its tests, which the report then lacks.
    try:
        subprocess.run(
            [*command, *tests],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=FILE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {}
    return outcomes(report) if report.exists() else {}


def outcomes(report: Path) -> dict[str, str]:
    """The outcome of each test of a report, by its file and name."""
    found: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):
        parts = case.attrib["classname"].split(".")
        module = next(index for index, part in enumerate(parts) if part.startswith("test_"))
        file = "/".join(parts[: module + 1]) + ".py"
        name = "::".join([file, *parts[module + 1 :], case.attrib["name"]])
        kinds = {child.tag for child in case}
        failed = bool(kinds & {"failure", "error"}) or found.get(name) == "failed"
        found[name] = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
    return found


def judge(folder: Path, failed: list[str]) -> dict[str, str]:
    """What is to be said of tests that failed over ours."""
    again = {test: run(folder, [test], ours=True).get(test) for test in failed}
    verdicts = dict.fromkeys((test for test in failed if again[test] == "passed"), "passed again")
    for test in failed:
        if test in verdicts:
            continue
        theirs = run(folder, [test], ours=False).get(test)
        verdicts[test] = "ours alone" if theirs == "passed" else "over their own too"
    return verdicts


def listed(test: str) -> str | None:
    """Why a test differs, where that is known; parameters may be left out of the table."""
    name = test.removeprefix("distributed/")
    return DIFFERENCES.get(name) or DIFFERENCES.get(name.partition("[")[0])


def main() -> int:
    """Run files, or all of them; 1 if one differs that is not listed."""
    parser = argparse.ArgumentParser(prog="python -m tests.dask.suite")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("files", nargs="*", help="below distributed/, as tests/test_core.py")
    parser.add_argument("--json", type=Path, help="write every outcome there")
    options = parser.parse_args()
    results: dict[str, str] = {}
    verdicts: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = lay_out(Path(name), options.checkout)
        put_in_place(folder)
        for file in options.files or files_of(folder):
            found = run(folder, [f"distributed/{file}"], ours=True)
            failed = sorted(test for test, outcome in found.items() if outcome == "failed")
            judged = judge(folder, failed) if found else {f"distributed/{file}": "ours alone"}
            counts = {kind: list(found.values()).count(kind) for kind in ("passed", "skipped")}
            print(f"{file}: {counts}, failed: {judged}", flush=True)  # noqa: T201
            results |= found
            verdicts |= judged
    if options.json:
        options.json.write_text(json.dumps({"outcomes": results, "failed": verdicts}, indent=1))
    unlisted = [
        test for test, verdict in verdicts.items() if verdict == "ours alone" and not listed(test)
    ]
    passed = list(results.values()).count("passed")
    print(f"{passed} passed; differ and are not listed: {unlisted}")  # noqa: T201
    return 1 if unlisted or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
