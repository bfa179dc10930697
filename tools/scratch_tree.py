"""A copy of the tree in which tools change sources: the one that people work in is not touched."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROOFS = ROOT / "target" / "proofs"


def tracked(root: Path = ROOT) -> list[str]:
    """Every file of the working tree that git has or would add, as paths below `root`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        stdout=subprocess.PIPE,
        check=True,
    )
    names = listed.stdout.decode().split("\0")
    return sorted(name for name in names if name and (root / name).is_file())


def refresh(tree: Path, names: list[str]) -> None:
    """Make `tree` hold exactly these files; what is the same keeps its time and is not rebuilt."""
    for name in names:
        _copy(ROOT / name, tree / name)
    wanted = {tree / name for name in names}
    for path in tree.rglob("*"):
        if path.is_file() and path not in wanted:
            path.unlink()


def _copy(source: Path, target: Path) -> None:
    if target.is_file() and target.read_bytes() == source.read_bytes():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def apply(patch: Path, tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `git apply` in a tree that is no repository, though one may stand above it."""
    return subprocess.run(
        ["git", "apply", *options, str(patch)],
        cwd=tree,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def build_environment() -> dict[str, str]:
    """Cargo's environment within a copy: a target directory of its own, no debug information."""
    return {
        **os.environ,
        "CARGO_TARGET_DIR": str(PROOFS / "build"),
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "CARGO_INCREMENTAL": "1",
        # What fails is to fail soon: nobody reads the smallest case.
        "PROPTEST_MAX_SHRINK_ITERS": "0",
    }
