"""What is built to count: a tree, an interpreter and an extension of their own, in target/coverage.

The sources that people work in, `.venv` and the extension beside them are not touched; and what
changes in the former while the tests run is not counted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tools import scratch_tree
from tools.coverage import lines
from tools.scratch_tree import ROOT

HERE = Path(__file__).parent
WORK = ROOT / "target" / "coverage"
TREE = WORK / "tree"
VENV = WORK / "venv"
PYTHON = VENV / "bin" / "python"
SITE = Path(sysconfig.get_path("purelib", vars={"base": str(VENV), "platbase": str(VENV)}))
PROFILES = WORK / "profiles"
PATTERN = PROFILES / "%m%c.profraw"
"""A file for each program, which all of its processes map: %c has them count in it."""
BINARIES = WORK / "binaries"
"""The programs that count, one in a line."""
CARGO = os.environ.get("CARGO", "cargo")


def environment() -> dict[str, str]:
    """The environment of everything that is built or run here."""
    # Without byte code, each of some thousand processes would compile the package.
    dropped = ("MAKEFLAGS", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {
        **kept,
        "CARGO_INCREMENTAL": "0",
        "CARGO_PROFILE_DEV_DEBUG": "0",
        # Some limits of time are for code that was optimised.
        "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
        "CARGO_TARGET_DIR": str(WORK / "build"),
        "LLVM_PROFILE_FILE": str(PATTERN),
        "PATH": f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}",
        "PYO3_PYTHON": sys.executable,
        "RUSTC_WORKSPACE_WRAPPER": str(HERE / "rustc.sh"),
        "VIRTUAL_ENV": str(VENV),
    }


def said(command: list[str]) -> str:
    """What a step wrote to its output; or end with what to look at."""
    ended = subprocess.run(
        command, cwd=TREE, env=environment(), stdout=subprocess.PIPE, text=True, check=False
    )
    if ended.returncode != 0:
        raise SystemExit(f"coverage: this failed, see above: {' '.join(command)[:500]}")
    return ended.stdout


def clear() -> None:
    """Forget what earlier runs counted."""
    shutil.rmtree(PROFILES, ignore_errors=True)
    BINARIES.unlink(missing_ok=True)
    PROFILES.mkdir(parents=True)
    PROFILES.chmod(0o1777)  # tests have processes of other users


def prepare() -> None:
    """Copy the tree, and build the interpreter and the extension in which its processes count."""
    clear()
    scratch_tree.refresh(TREE, scratch_tree.tracked())
    sqlite = os.environ.get("SQLITE", "bundled-sqlite")
    print("==> an extension that counts (cargo)", flush=True)
    said([CARGO, "build", "--locked", "--package=forebay-python", f"--features={sqlite}"])
    extension = TREE / "python" / "forebay" / "_core.abi3.so"
    shutil.copyfile(WORK / "build" / "debug" / "lib_core.so", extension)
    _interpreter()
    remember([extension])
    print(said([str(PYTHON), "-c", "from forebay import _core; print('==>', _core.__file__)"]))
    for profile in PROFILES.iterdir():
        profile.chmod(0o666)


def _interpreter() -> None:
    """An environment that has what `.venv` has, where each process begins to count."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(VENV)
    usual = Path(sysconfig.get_path("purelib"))
    (SITE / "coverage.pth").write_text(f"{TREE / 'python'}\n{usual}\n")
    script = Path(sys.executable).with_name("forebay").read_text().partition("\n")[2]
    (VENV / "bin" / "forebay").write_text(f"#!{PYTHON}\n{script}")
    (VENV / "bin" / "forebay").chmod(0o755)
    lines.install(SITE, sources_of(TREE), str(PATTERN))


def sources_of(tree: Path) -> list[Path]:
    """The Python files that are counted."""
    return sorted((tree / "python" / "forebay").rglob("*.py"))


def remember(binaries: list[Path]) -> None:
    """Keep the names of programs that count, for the report."""
    before = BINARIES.read_text().split("\n") if BINARIES.exists() else []
    names = dict.fromkeys([*filter(None, before), *map(str, binaries)])
    BINARIES.write_text("\n".join(names))


def built(messages: str) -> list[Path]:
    """The programs that cargo built, from its messages in JSON."""
    rows = [json.loads(row) for row in messages.splitlines() if row.startswith("{")]
    return [Path(row["executable"]) for row in rows if row.get("executable")]


def llvm_tool(name: str) -> str:
    """A program of the compiler's LLVM, whose formats change with each version."""
    library = subprocess.run(
        ["rustc", "--print", "target-libdir"], check=True, stdout=subprocess.PIPE, text=True
    )
    path = Path(library.stdout.strip()).parent / "bin" / name
    if not path.exists():
        subprocess.run(["rustup", "component", "add", "llvm-tools"], check=False)
    if not path.exists():
        raise SystemExit(f"coverage: {path} is not there: rustup component add llvm-tools")
    return str(path)
