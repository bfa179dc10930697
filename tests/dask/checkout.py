"""distributed's own tests, laid out as in a source checkout of it.

Wheels of `distributed` have no tests.
The copy in `distributed_tests` is laid over links to the installed package, under the names that
the tests have in a checkout: some start processes that import them again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from importlib.metadata import version
from pathlib import Path

from tests.dask.certificates import sign_like_theirs

COPY = Path(__file__).parents[1] / "vendored/distributed_tests"
WRITTEN_FOR = "2026.8.0"
"""The release that the copied tests belong to."""
ROW = re.compile(r"^\| `(?P<path>[^`]+)` \| `(?P<blob>[0-9a-f]{40})` \|$", re.MULTILINE)


def reason_not_to_run() -> str | None:
    """Why the copied tests cannot be run here; None where they can."""
    installed = version("distributed")
    if installed == WRITTEN_FOR:
        return None
    return (
        f"distributed {installed} is installed, the copied tests are those of {WRITTEN_FOR}:"
        " install that, or name a checkout in FOREBAY_DISTRIBUTED_TESTS"
    )


def lay_out(folder: Path, source: Path = COPY, *, signed: bool = True) -> Path:
    """Make a tree like a checkout's in an empty folder.

    Args:
        folder: empty.
        source: where the tests are: the copy, or a checkout; left as it is.
        signed: whether certificates that rustls takes stand in the place of theirs.

    Returns:
        The folder, which goes on the path before everything else.
    """
    found = importlib.util.find_spec("distributed")
    assert found is not None
    assert found.origin is not None
    site = Path(found.origin).parents[1]
    tests = [path for path in source.rglob("*") if path.is_file() and _is_test(path, source)]
    packages = {Path("distributed")}
    for path in tests:
        packages.update(path.relative_to(source).parents)
    for package in sorted(packages):
        if package.parts[:1] != ("distributed",):
            continue
        (folder / package).mkdir(exist_ok=True)
        for entry in (site / package).glob("*"):
            if entry.name not in ("tests", "__pycache__") and package / entry.name not in packages:
                (folder / package / entry.name).symlink_to(entry)
    for path in tests:
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.symlink_to(path)
    if signed:
        certificates = folder / "distributed/tests"
        for theirs in certificates.glob("*.pem"):
            theirs.unlink()  # a link, through which the checkout would be written
        sign_like_theirs(certificates)
    return folder


def _is_test(path: Path, source: Path) -> bool:
    """Whether a file of a checkout belongs to its tests, rather than to the package."""
    parts = path.relative_to(source).parts
    if "__pycache__" in parts:
        return False
    return parts[0] in ("conftest.py", "pyproject.toml") or (
        parts[0] == "distributed" and "tests" in parts
    )


def modified() -> list[str]:
    """Files of the copy whose content is not that of the commit it was taken from."""
    noted = {row["path"]: row["blob"] for row in ROW.finditer((COPY / "README.md").read_text())}
    present = {
        str(path.relative_to(COPY))
        for path in COPY.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != "README.md"
    }
    changed = [path for path, blob in noted.items() if _git_blob(COPY / path) != blob]
    return sorted({*changed, *(present ^ noted.keys())})


def _git_blob(path: Path) -> str:
    """The name that git gives to a file's content."""
    if not path.is_file():
        return ""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
