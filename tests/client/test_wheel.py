"""The wheel of the client in an empty environment, without a compiler, against a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.client.test_alone import SEEN
from tests.client.tls_serving import TlsServing
from tests.wheel import interpreters

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `make wheel` builds it."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(out), str(ROOT / "clients/python")]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module", params=interpreters.MINORS, ids=lambda minor: f"3.{minor}")
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An environment of one interpreter with the wheel alone."""
    python = interpreters.find(request.param)
    if python is None:
        pytest.skip(f"no CPython 3.{request.param} with venv is on this machine")
    folder = tmp_path_factory.mktemp(f"python3{request.param}")
    subprocess.run([python, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    without_compiler = os.environ | {"PATH": str(folder / "bin"), "PYTHONPATH": ""}
    subprocess.run([*pip, wheel], check=True, env=without_compiler, timeout=120)
    return folder


def test_the_wheel_is_for_every_system(wheel: Path) -> None:
    """It has nothing compiled, and what it shares with forebay as files of its own."""
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        own = {name: archive.read(f"forebay_client/_{name}.py") for name in ("errors", "failures")}
        (licence,) = [archive.read(name) for name in names if name.endswith("licenses/LICENSE")]
    assert own["errors"] == (ROOT / "python/forebay/errors.py").read_bytes()
    assert own["failures"] == (ROOT / "python/forebay/_failures.py").read_bytes()
    assert "forebay_client/py.typed" in names
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert not [name for name in names if name.endswith((".so", ".pyd"))]


def test_it_submits_follows_cancels_and_gets_results(installed: Path, tmp_path: Path) -> None:
    """With a token, over TLS of a CA of its own, and nothing on PATH but its Python."""
    with TlsServing(tmp_path) as serving:
        done = subprocess.run(
            [
                installed / "bin" / "python",
                "-W",
                "error",
                ROOT / "tests/client/alone.py",
                serving.url,
                serving.token_file,
                serving.authority.ca,
            ],
            env={"PATH": str(installed / "bin"), "HOME": str(tmp_path), "LANG": "C.UTF-8"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == SEEN
