"""A client whose server is killed at random moments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def test_a_client_loses_nothing_and_doubles_nothing() -> None:
    """Every submission ends as it may: with its result, or with the server as its cause."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        program = shutil.copy(HERE / "client_chaos.py", directory)
        done = subprocess.run(
            [sys.executable, program],
            cwd=directory,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join(sys.path),
                "XDG_RUNTIME_DIR": directory,
                "XDG_CONFIG_HOME": directory,
                "FOREBAY_STATE_DIR": f"{directory}/state",
            },
            capture_output=True,
            text=True,
            timeout=55,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["requests"] > 40
        assert (told["odd"], told["twice"], told["left"]) == ([], [], [])
