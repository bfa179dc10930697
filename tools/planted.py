"""Plant each bug of `tests/planted` in a copy, and demand that the law which it names finds it.

A patch begins with three lines, then a unified diff follows:

    # Law: what the failing output must contain: a test's name, or a law's words
    # Test: the command that is to fail
    # Steps: within how many steps of the model or simulation

Where the seed decides which of several laws finds it, all are named, with "; " between.

    python -m tools.planted [MACHINE | PATCH]...
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tools import scratch_tree
from tools.scratch_tree import PROOFS, ROOT

PLANTED = ROOT / "tests" / "planted"
HEADERS = ("Law", "Test", "Steps")
# Rust's tests say it when they fail: crates/transport/tests/counted.
FOUND = re.compile(r"found after (\d+) steps")
TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Patch:
    """One planted bug: which machine it is in, and what has to find it."""

    path: Path
    laws: tuple[str, ...]
    test: str
    steps: int

    @property
    def machine(self) -> str:
        """The folder that it stands in."""
        return self.path.parent.name


@dataclass(frozen=True)
class Verdict:
    """Whether a planted bug was found, and after how many steps, or why not."""

    patch: Patch
    caught: bool
    text: str
    law: str = ""


def read(path: Path) -> Patch:
    """Read a patch's headers; a `ValueError` names what is missing."""
    lines = path.read_text().splitlines()[: len(HEADERS)]
    values = []
    for line, header in zip(lines, HEADERS, strict=True):
        start = f"# {header}: "
        if not line.startswith(start):
            raise ValueError(f"{path}: line {line!r} should begin with {start!r}")
        values.append(line.removeprefix(start).strip())
    law, test, steps = values
    return Patch(path, tuple(law.split("; ")), test, int(steps))


def chosen(names: list[str]) -> list[Patch]:
    """Read every patch, or those of the named machines and files."""
    patches = [read(path) for path in sorted(PLANTED.glob("*/*.patch"))]
    if not names:
        return patches
    wanted = {Path(name).stem for name in names}
    return [patch for patch in patches if {patch.machine, patch.path.stem} & wanted]


def environment(tree: Path) -> dict[str, str]:
    """The environment of a test in the copy, whose Python package is the copy's."""
    built = scratch_tree.build_environment()
    path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{built['PATH']}"
    # More than a test has by itself: `Steps` says when a rare bug counts as missed.
    cases = {"PROPTEST_CASES": "1000", "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "true"}
    return {**built, **cases, "PATH": path, "PYTHONPATH": str(tree / "python")}


def run(command: str, tree: Path) -> tuple[int, str]:
    """Run a test in the copy; its exit status, 124 where it took too long, and what it printed."""
    try:
        ended = subprocess.run(
            shlex.split(command),
            cwd=tree,
            env=environment(tree),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {TIMEOUT_S:.0f} s"
    return ended.returncode, ended.stdout


def judge(patch: Patch, status: int, output: str) -> Verdict:
    """Say whether this failure is the one that was to come."""
    if status == 0:
        return Verdict(patch, False, "the test passed")
    if "error: could not compile" in output:
        return Verdict(patch, False, "it does not compile")
    told = {output.find(law): law for law in patch.laws if law in output}
    if not told:
        return Verdict(patch, False, f"another law found it: {last_lines(output)}")
    found = FOUND.search(output)
    if found is None:
        return Verdict(patch, False, "the test does not say after how many steps it failed")
    if int(found[1]) > patch.steps:
        return Verdict(patch, False, f"found only after {found[1]} steps")
    return Verdict(patch, True, found[1], told[min(told)])


def last_lines(output: str) -> str:
    """What a test said went wrong, on one line; else the end of what it printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    reasons = [after for line, after in pairwise(lines) if "panicked at" in line]
    return (reasons or [" / ".join(lines[-4:])])[0]


def try_patch(patch: Patch, tree: Path) -> Verdict:
    """Apply one patch, run its test, and take the patch back."""
    applied = scratch_tree.apply(patch.path, tree)
    if applied.returncode != 0:
        return Verdict(patch, False, f"it does not apply: {applied.stdout.strip()}")
    try:
        return judge(patch, *run(patch.test, tree))
    finally:
        taken_back = scratch_tree.apply(patch.path, tree, "--reverse")
        if taken_back.returncode != 0:
            raise RuntimeError(f"{patch.path} cannot be taken back: {taken_back.stdout.strip()}")


def prove_sound(patches: list[Patch], tree: Path) -> dict[str, str]:
    """Run each test without a bug; what goes wrong, by command."""
    broken = {}
    for command in dict.fromkeys(patch.test for patch in patches):
        began = time.monotonic()
        status, output = run(command, tree)
        print(f"unpatched: {command}: {time.monotonic() - began:.0f} s, exit {status}", flush=True)
        if status != 0:
            broken[command] = last_lines(output)
    return broken


def table(verdicts: list[Verdict]) -> str:
    """Every planted bug, in Markdown."""
    rows = ["| machine | caught | patch | found by | after steps |", "|---|---|---|---|---|"]
    for one in verdicts:
        caught = "yes" if one.caught else "NO"
        patch = one.patch
        law = one.law or "; ".join(patch.laws)
        row = f"{patch.machine} | {caught} | {patch.path.stem} | {law} | {one.text}"
        rows.append(f"| {row} |")
    return "\n".join(rows)


def main(arguments: list[str]) -> int:
    """Try the chosen patches one after the other; 1 where one is missed."""
    parser = argparse.ArgumentParser(prog="python -m tools.planted", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="MACHINE | PATCH", help="all, where none is given"
    )
    patches = chosen(parser.parse_args(arguments).names)
    if not patches:
        print("no planted bug has such a name", file=sys.stderr)
        return 2
    tree = PROOFS / "tree"
    # Python's tests use the extension as it was built; bugs are planted in what it does not hold.
    built = [str(path.relative_to(ROOT)) for path in ROOT.glob("python/forebay/*.so")]
    scratch_tree.refresh(tree, [*scratch_tree.tracked(), *built])
    broken = prove_sound(patches, tree)
    verdicts = []
    for patch in patches:
        if patch.test in broken:
            verdict = Verdict(patch, False, f"fails without a bug: {broken[patch.test]}")
        else:
            verdict = try_patch(patch, tree)
        verdicts.append(verdict)
        print(f"{patch.machine}/{patch.path.stem}: {verdict.text}", flush=True)
    print(table(verdicts))
    return 0 if all(verdict.caught for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
