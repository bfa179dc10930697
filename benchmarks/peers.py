"""Making of the peers' environments: `python -m benchmarks.peers FOLDER`."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

LIST = Path(__file__).with_name("peers.toml")
COMPLETE = "complete"  # this file in an environment says that all its packages are there


def install(folder: Path) -> None:
    """Make every environment of peers.toml that is not complete."""
    changed_at = LIST.stat().st_mtime
    for name, environment in tomllib.loads(LIST.read_text()).items():
        target = folder / name
        marker = target / COMPLETE
        if marker.exists() and marker.stat().st_mtime >= changed_at:
            print(f"==> {target}: complete")
            continue
        packages: list[str] = environment["packages"]
        print(f"==> {target}: {', '.join(packages)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(target)], check=True)
        python = str(target / "bin" / "python")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *packages], check=True)
        marker.touch()


if __name__ == "__main__":
    install(Path(sys.argv[1]))
