"""Change the machines at random places, as cargo-mutants does, and see whether their models notice.

Each machine of `tests/mutants/machines.toml` gets a tree of its own in `target/proofs`, with the
crates that it needs and, where it says so, only its own modules: a mutant then costs seconds. Some
of its mutants are drawn by a seed, which is printed. The run fails where less than 85 in 100 are
caught, or where one survives that `tests/mutants/survivors.toml` does not list with a test or a
reason. Machines in Python are changed by `tools.mutate_python`.

    python -m tools.mutants [MACHINE]... [--drawn 100] [--seed N]
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tools import mutate_python, scratch_tree
from tools.scratch_tree import PROOFS, ROOT

LISTS = ROOT / "tests" / "mutants"
CAUGHT_MIN = 0.85
# Its model takes some seconds; a mutant that makes it ten times as long does not end.
TIMEOUT_S = 120
TOOLS = ROOT / "target" / "tools"


@dataclass(frozen=True)
class Machine:
    """Where a machine is, and what is run against its mutants."""

    name: str
    files: list[str]
    # What cargo is told of its tests; of a machine in Python, what pytest is told.
    test: list[str]
    # Empty where the machine is in Python.
    package: str = ""
    crates: list[str] = field(default_factory=list)
    # Public modules of the reduced library; the whole crate where there are none.
    library: list[str] = field(default_factory=list)
    dependencies: list[str] = field(default_factory=list)
    dev_dependencies: list[str] = field(default_factory=list)
    # Files of the crate that end before this text, since what follows needs other modules.
    cut: dict[str, str] = field(default_factory=dict)
    # What the test itself is told, such as names of tests.
    only: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    timeout_s: int = TIMEOUT_S

    @property
    def tree(self) -> Path:
        """Its copy of the sources."""
        return PROOFS / "mutants" / self.name


@dataclass
class Report:
    """What became of the mutants that were drawn of one machine."""

    machine: str
    of: int
    counts: Counter[str]
    survivors: list[str]
    unlisted: list[str]

    @property
    def caught(self) -> float:
        """The part of those that compile which was noticed; an endless loop counts as noticed."""
        found = self.counts["CaughtMutant"] + self.counts["Timeout"]
        viable = found + self.counts["MissedMutant"]
        return found / viable if viable else 0.0

    @property
    def row(self) -> str:
        """A row of the table."""
        counts = self.counts
        names = ("CaughtMutant", "Timeout", "Unviable", "MissedMutant")
        numbers = " | ".join(str(counts[name]) for name in names)
        drawn = sum(counts[name] for name in names)
        return f"| {self.machine} | {self.of} | {drawn} | {numbers} | {self.caught:.0%} |"


HEAD = (
    "| machine | mutants | drawn | caught | timed out | unviable | survived | caught of viable |\n"
    "|---|---|---|---|---|---|---|---|"
)


def machines(names: list[str]) -> list[Machine]:
    """Read the list of machines, or the named ones."""
    listed = tomllib.loads((LISTS / "machines.toml").read_text())
    unknown = set(names) - set(listed)
    if unknown:
        raise SystemExit(f"no machine is called {', '.join(sorted(unknown))}: {', '.join(listed)}")
    return [Machine(name, **listed[name]) for name in names or listed]


def build_tree(machine: Machine) -> None:
    """Copy the crates of a machine, reduced to its modules where it names them."""
    kept = tuple(f"crates/{crate}/" for crate in machine.crates)
    shared = "crates/transport/tests/"
    names = [name for name in scratch_tree.tracked() if name.startswith((*kept, shared))]
    shutil.rmtree(machine.tree, ignore_errors=True)
    scratch_tree.refresh(machine.tree, [*names, "Cargo.lock"])
    members = ", ".join(f'"crates/{crate}"' for crate in machine.crates)
    text = (ROOT / "Cargo.toml").read_text()
    for key in ("members", "default-members"):
        text = re.sub(rf"^{key} = \[.*\]$", f"{key} = [{members}]", text, flags=re.MULTILINE)
    (machine.tree / "Cargo.toml").write_text(text)
    if machine.library:
        reduce_library(machine)


def reduce_library(machine: Machine) -> None:
    """Leave nothing in the machine's crate but the modules that it names."""
    crate = machine.tree / "crates" / machine.crates[0]
    modules = "".join(f"pub mod {module};\n" for module in machine.library)
    (crate / "src" / "lib.rs").write_text(f"#![allow(dead_code, unused)]\n{modules}")
    for name, marker in machine.cut.items():
        text = (crate / name).read_text()
        (crate / name).write_text(text[: text.index(marker)])
    text = (crate / "Cargo.toml").read_text()
    head = text[: text.index("[lints]")]
    for section, names in (
        ("dependencies", machine.dependencies),
        ("dev-dependencies", machine.dev_dependencies),
    ):
        lines = "".join(f"{name}.workspace = true\n" for name in names)
        head += f"[{section}]\n{lines}"
    (crate / "Cargo.toml").write_text(head)


def tool() -> str:
    """Find cargo-mutants, or install it into `target/tools`."""
    local = TOOLS / "bin" / "cargo-mutants"
    found = shutil.which("cargo-mutants")
    if found is None and not local.exists():
        print("==> cargo install cargo-mutants (some minutes)", flush=True)
        install = ["cargo", "install", "--locked", "cargo-mutants", "--root", str(TOOLS)]
        subprocess.run(install, check=True)
    return found or str(local)


def command(machine: Machine, *options: str) -> list[str]:
    """A cargo-mutants command about a machine's files."""
    files = [option for path in machine.files for option in ("--file", path)]
    place = ["--dir", str(machine.tree), "--package", machine.package]
    return [tool(), "mutants", "--no-config", *place, *files, *options]


def environment(machine: Machine) -> dict[str, str]:
    """The environment of a machine's builds and tests."""
    own = {"CARGO_TARGET_DIR": str(PROOFS / "mutants-build" / machine.name)}
    return {**scratch_tree.build_environment(), **own, **machine.environment}


def all_mutants(machine: Machine) -> list[str]:
    """The names of every mutant of a machine, in their order."""
    listed = subprocess.run(
        command(machine, "--list", "--json"),
        stdout=subprocess.PIPE,
        env=environment(machine),
        check=True,
    )
    return [one["name"] for one in json.loads(listed.stdout)]


def escaped(name: str) -> str:
    """A pattern of Rust's `regex` that matches this name alone."""
    return "^" + re.sub(r"([\\.+*?()|\[\]{}^$#&~-])", r"\\\1", name) + "$"


def without_place(name: str) -> str:
    """A mutant's name without its line and column, which change."""
    return re.sub(r":\d+:\d+:", ":", name)


def listed_survivors(machine: str) -> set[str]:
    """The survivors that are known, each with a test that catches it or a reason."""
    path = LISTS / "survivors.toml"
    known = tomllib.loads(path.read_text()).get(machine, []) if path.exists() else []
    for one in known:
        if not (one.get("test") or one.get("reason")):
            raise SystemExit(f"{path}: {one['mutant']} needs a test or a reason")
    return {one["mutant"] for one in known}


def run(machine: Machine, drawn: int, seed: int) -> Report:
    """Draw a machine's mutants, run its model against each, and count."""
    if not machine.package:
        return run_python(machine, drawn, seed)
    build_tree(machine)
    names = all_mutants(machine)
    chosen = draw(machine, names, drawn, seed)
    output = PROOFS / "mutants-output" / machine.name
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    patterns = [option for name in chosen for option in ("--re", escaped(name))]
    limit = ["--timeout", str(machine.timeout_s)]
    options = ["--in-place", "--no-shuffle", *limit, "--output", str(output)]
    # Of every cargo command, so that no other test is built.
    target = [f"--cargo-arg={argument}" for argument in machine.test]
    subprocess.run(
        [*command(machine, *options, *target, *patterns), "--", "--", *machine.only],
        env=environment(machine),
        check=False,  # it tells of survivors by its status
    )
    tried = outcomes(machine, output / "mutants.out" / "outcomes.json")
    return report(machine, len(names), chosen, tried)


def draw(machine: Machine, names: list[str], drawn: int, seed: int) -> list[str]:
    """Some of a machine's mutants, the same ones for the same seed."""
    chosen = sorted(random.Random(seed).sample(names, min(drawn, len(names))))
    print(f"==> {machine.name}: {len(chosen)} of {len(names)} mutants, seed {seed}", flush=True)
    return chosen


def run_python(machine: Machine, drawn: int, seed: int) -> Report:
    """Draw mutants of a machine in Python, run its tests against each in a copy, and count."""
    tree = machine.tree
    built = [str(path.relative_to(ROOT)) for path in ROOT.glob("python/forebay/*.so")]
    scratch_tree.refresh(tree, [*scratch_tree.tracked(), *built])
    mutants = {
        mutant.name: mutant
        for path in machine.files
        for mutant in mutate_python.mutants(path, (tree / path).read_text())
    }
    tests = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *machine.test]
    environment = {**os.environ, "PYTHONPATH": str(tree / "python"), **machine.environment}
    began = time.monotonic()
    if mutate_python.run(tests, tree, environment, 5 * TIMEOUT_S) != "MissedMutant":
        raise SystemExit(f"{machine.name}: its tests fail without a mutant, in {tree}")
    limit_s = max(machine.timeout_s, 2 * (time.monotonic() - began))
    # Byte code is told by its second and size alone: what a mutant leaves would pass for the next.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    chosen, tried = draw(machine, list(mutants), drawn, seed), {}
    for name in chosen:
        path = tree / mutants[name].path
        source = path.read_bytes()
        path.write_bytes(mutants[name].applied(source))
        try:
            tried[name] = mutate_python.run(tests, tree, environment, limit_s)
        finally:
            path.write_bytes(source)
        if tried[name] != "CaughtMutant":
            print(f"{tried[name]}: {name}", flush=True)
    return report(machine, len(mutants), chosen, tried)


def outcomes(machine: Machine, path: Path) -> dict[str, str]:
    """Read what cargo-mutants found, by the names of the mutants."""
    if not path.exists():
        raise SystemExit(f"{machine.name}: cargo-mutants said nothing; its baseline may fail")
    tried = [
        one for one in json.loads(path.read_text())["outcomes"] if one["scenario"] != "Baseline"
    ]
    return {one["scenario"]["Mutant"]["name"]: one["summary"] for one in tried}


def report(machine: Machine, of: int, chosen: list[str], tried: dict[str, str]) -> Report:
    """Count what became of each mutant; a run that ended before the last one is no result."""
    left = sorted(set(chosen) - set(tried))
    if left:
        raise SystemExit(f"{machine.name}: {len(left)} of {len(chosen)} not tried: {left[0]}, ...")
    survivors = [without_place(name) for name, end in tried.items() if end == "MissedMutant"]
    unlisted = sorted(set(survivors) - listed_survivors(machine.name))
    return Report(machine.name, of, Counter(tried.values()), sorted(survivors), unlisted)


def main(arguments: list[str]) -> int:
    """Run the chosen machines; 1 where too few mutants are caught, or an unknown one survives."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("machines", nargs="*", help="all, where none is given")
    parser.add_argument("--drawn", type=int, default=100, help="mutants of each machine")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    options = parser.parse_args(arguments)
    reports = [run(one, options.drawn, options.seed) for one in machines(options.machines)]
    print(f"seed {options.seed}\n{HEAD}")
    for report in reports:
        print(report.row)
    for report in reports:
        for survivor in report.survivors:
            known = "" if survivor in report.unlisted else " (listed)"
            print(f"survived: {report.machine}: {survivor}{known}")
    sound = all(report.caught >= CAUGHT_MIN and not report.unlisted for report in reports)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
