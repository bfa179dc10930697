"""What builds of the guest for RDMA verbs leave behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

TOOLS = Path(__file__).parents[3] / "tools" / "verbs"


def test_what_a_killed_build_left_goes_with_the_next(tmp_path: Path) -> None:
    """Each build that was killed would keep 1.7 GB of the user's cache for ever."""
    environment = {**os.environ, "FOREBAY_VERBS_CACHE": str(tmp_path)}
    tell = f"source {TOOLS / 'place.sh'}; echo $verbs_place"
    place = Path(_told(["bash", "-c", tell], environment))
    place.mkdir()
    kernel = place / "linux"
    kernel.write_text("")
    kernel.chmod(0o755)
    left = tmp_path / "build.Kp3xQz"
    (left / "source").mkdir(parents=True)
    (left / "source" / "linux-source.deb").write_text("")
    assert _told(["bash", str(TOOLS / "build.sh")], environment) == str(place)
    assert not left.exists()
    assert kernel.exists()


def _told(command: list[str], environment: dict[str, str]) -> str:
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()
