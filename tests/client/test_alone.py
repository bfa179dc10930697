"""The client on a system without Unix, without forebay, without anything compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import h11
import pytest

from tests.client.tls_serving import TlsServing

ROOT = Path(__file__).parents[2]
SEEN = {
    "blocking": {
        "module": "forebay_client._errors",
        "log": "grün 0\ngrün 1\ngrün 2\n",
        "result": "grün",
        "events": True,
        "cancelled": True,
        "ended": "cancelled",
        "blob": [255, 1, 0],
        "array": ["<f8", 0.0, 1.0, 2.0],
        "sum": 3.0,
        "many": 40,
        "names": ["double", "double", "double"],
        "items": [[], [0]],
    },
    "asyncio": False,
    "awaiting": {
        "log": "blue 0\nblue 1\nblue 2\n",
        "result": "blue",
        "many": 380,
        "items": [[0]],
    },
}


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[TlsServing]:
    """A server, its gateway with TLS."""
    with TlsServing(tmp_path) as serving:
        yield serving


def test_it_runs_where_there_is_only_python(serving: TlsServing, tmp_path: Path) -> None:
    """There is no AF_UNIX on Windows, no fcntl, no fork; and nowhere is forebay needed."""
    libraries = [ROOT / "clients/python", Path(h11.__file__).parents[1]]
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            ROOT / "tests/client/alone.py",
            serving.url,
            serving.token_file,
            serving.authority.ca,
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, libraries))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == SEEN
