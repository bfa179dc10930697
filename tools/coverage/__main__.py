"""Run the tests of both languages with every line counted, and hold each file to 80 in 100.

    python -m tools.coverage                           everything: what `make coverage` runs
    python -m tools.coverage --tests tests/pool        a part of Python's tests, and none of Rust's
    python -m tools.coverage --crates forebay-pool     a part of Rust's, and none of Python's
    python -m tools.coverage --add --tests tests/cli   that too, added to the runs before
    python -m tools.coverage --report                  run nothing; report what is counted

A part is shown and held to nothing. Not counted: examples in Rust's documentation, the tests of
loom and of the guest with RDMA, processes with `python -S`, Python in threads that Rust started.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import tomllib

import coverage

from tools.coverage import lines, report, setting
from tools.scratch_tree import ROOT

LIST = ROOT / "tests" / "coverage.toml"
TABLE = setting.WORK / "report.md"
MERGED = setting.WORK / "lcov.info"
# They look at sources, and at a wheel of their own.
BESIDE = ("tests/tidy", "tests/wheel")
TIMEOUT_S = 240
"""Of one test of Python's that does not say: each line costs more here."""


def steps(arguments: argparse.Namespace) -> list[list[str]]:
    """The commands of the tests that were asked for."""
    some = bool(arguments.tests or arguments.crates)
    commands: list[list[str]] = []
    if arguments.crates or not some:
        commands += rust(arguments.crates)
    if arguments.tests or not some:
        commands.append(python(arguments.tests))
    return commands


def rust(crates: list[str]) -> list[list[str]]:
    """The commands of Rust's tests, whose programs are built here."""
    command = [setting.CARGO, "test", "--locked", "--no-fail-fast", "--lib", "--tests"]
    command += [f"--package={name}" for name in crates]
    if os.environ.get("SQLITE") != "system-sqlite" and (not crates or "forebay-executor" in crates):
        command += ["--features", "forebay-executor/bundled-sqlite"]
    setting.remember(setting.built(setting.said([*command, "--no-run", "--message-format=json"])))
    privileged = os.environ.get("PRIVILEGED", "").split()
    return [command, *([[*command, "--", "--ignored", *privileged]] if privileged else [])]


def python(tests: list[str]) -> list[str]:
    """The command of Python's tests."""
    left_out = [row["tests"] for row in tomllib.loads(LIST.read_text()).get("left_out", [])]
    return [
        str(setting.PYTHON),
        *("-m", "pytest", "--quiet", "--numprocesses=2", "--dist=loadfile"),
        *("--no-loadscope-reorder", f"--timeout={TIMEOUT_S}", "-o", "faulthandler_timeout=0"),
        *(f"--ignore={name}" for name in BESIDE),
        *(f"--deselect={name}" for name in left_out),
        *tests,
    ]


def run(command: list[str]) -> bool:
    """Run some tests; whether all passed."""
    print(f"==> {' '.join(command)}", flush=True)
    began = time.monotonic()
    ended = subprocess.run(command, cwd=setting.TREE, env=setting.environment(), check=False)
    print(f"==> exit {ended.returncode} after {time.monotonic() - began:.0f} s", flush=True)
    return ended.returncode == 0


def rust_counts() -> report.Counts:
    """What was counted of Rust."""
    raw = [str(path) for path in sorted(setting.PROFILES.glob("*.profraw"))]
    merged = setting.WORK / "rust.profdata"
    setting.said([setting.llvm_tool("llvm-profdata"), "merge", "-sparse", *raw, "-o", str(merged)])
    first, *others = setting.BINARIES.read_text().split("\n")
    command = [setting.llvm_tool("llvm-cov"), "export", "--format=lcov", first]
    command += [f"--object={name}" for name in others]
    exported = setting.said([*command, f"--instr-profile={merged}"])
    return report.read_lcov(exported, setting.TREE)


def python_counts() -> report.Counts:
    """What was counted of Python; coverage.py says which lines can run."""
    measured = coverage.Coverage(data_file=None, config_file=False, source=[str(setting.TREE)])
    sources = setting.sources_of(setting.TREE)
    ran = lines.read(setting.SITE, sources)
    measured.get_data().add_lines({str(path): numbers for path, numbers in ran.items()})
    counts: report.Counts = {}
    for path in sources:
        _, statements, _, missing, _ = measured.analysis2(str(path))
        name = str(path.relative_to(setting.TREE))
        if statements:
            counts[name] = {line: line not in set(missing) for line in statements}
    return counts


def tell(counts: report.Counts, *, whole: bool) -> list[str]:
    """Print and keep the tables; what is wrong with the list. A part says nothing of the rest."""
    named = report.allowed(LIST.read_text())
    reasons = {one.file: one.reason for one in named}
    every = report.files(counts)
    below = [one for one in every if one.share < report.LIMIT]
    summary = f"{report.table(report.groups(counts))}\n"
    if whole:
        summary += f"\nBelow {report.LIMIT:.0%} of their lines:\n\n"
        summary += f"{report.table(below, reasons)}\n"
    print(summary)
    TABLE.write_text(f"{summary}\nEach file:\n\n{report.table(every, reasons)}\n")
    MERGED.write_text(report.write_lcov(counts, ROOT))
    print(f"{len(every)} files: {TABLE.relative_to(ROOT)}, {MERGED.relative_to(ROOT)}")
    return list(report.problems(counts, named)) if whole else []


def main(words: list[str]) -> int:
    """Count, report, and hold a whole run to its limit."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.coverage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="Python's tests")
    parser.add_argument("--crates", nargs="+", default=[], metavar="NAME", help="Rust's crates")
    parser.add_argument("--add", action="store_true", help="add to what earlier runs counted")
    parser.add_argument("--report", action="store_true", help="run nothing")
    arguments = parser.parse_args(words)
    if not (arguments.add or arguments.report):
        setting.prepare()
    elif not setting.BINARIES.exists():
        parser.error("no run has counted anything yet: leave --add and --report out")
    failed = [] if arguments.report else [one for one in steps(arguments) if not run(one)]
    whole = not (arguments.tests or arguments.crates)
    wrong = tell({**rust_counts(), **python_counts()}, whole=whole)
    for each in wrong:
        print(f"{LIST.relative_to(ROOT)}: {each}")
    for command in failed:
        print(f"failed, see above: {' '.join(command)}")
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
