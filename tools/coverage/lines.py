"""The lines of Python that ran, in whatever process and however it ended: `lines.c` marks them."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
MARKS = "lines.marks"


def install(site: Path, sources: list[Path], profiles: str) -> None:
    """Have each process that finds its modules in `site` mark the lines of these files.

    `profiles` becomes its LLVM_PROFILE_FILE, where it has none.
    """
    shutil.copyfile(HERE / "sitecustomize.py", site / "sitecustomize.py")
    options = ["-O2", "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}"]
    library = str(site / "forebay_lines.so")
    subprocess.run(["cc", *options, "-o", library, str(HERE / "lines.c")], check=True)
    counts = {path: _count(path) for path in sources}
    rows = "".join(f"{count} {path}\n" for path, count in counts.items())
    (site / "lines.index").write_text(f"{profiles}\n{rows}")
    (site / MARKS).write_bytes(bytes(sum(counts.values())))
    (site / MARKS).chmod(0o666)  # tests have processes of other users


def read(site: Path, sources: list[Path]) -> dict[Path, list[int]]:
    """The numbers of the lines that ran, of the same files."""
    marks = (site / MARKS).read_bytes()
    found = {}
    first = 0
    for path in sources:
        count = _count(path)
        found[path] = [line for line in range(count) if marks[first + line]]
        first += count
    return found


def _count(path: Path) -> int:
    """How many marks a file has: a line's is at its number, and no line is number 0."""
    return path.read_bytes().count(b"\n") + 2
