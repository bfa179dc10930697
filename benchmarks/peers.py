"""Making of the peers' environments: `python -m benchmarks.peers FOLDER`."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

LIST = Path(__file__).with_name("peers.toml")
COMPLETE = "complete"  # this file in an environment says that all its packages are there
MISSING = "missing"  # and this one why they are not, where that is no failure


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
        command = [*pip, *environment.get("options", []), *packages]
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        sys.stderr.write(ended.stderr)
        missing = target / MISSING
        if ended.returncode == 0:
            missing.unlink(missing_ok=True)
            marker.touch()
        elif environment.get("optional", False):
            missing.write_text(_reason(ended.stderr))
        else:
            raise subprocess.CalledProcessError(ended.returncode, command)


def _reason(errors: str) -> str:
    """The last line of what pip says."""
    return (errors.strip().splitlines() or ["pip said nothing"])[-1]


if __name__ == "__main__":
    install(Path(sys.argv[1]))
