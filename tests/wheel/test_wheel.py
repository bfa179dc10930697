"""The wheel works where there is no toolchain, under every CPython from 3.11 that is here."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.wheel import interpreters

ROOT = Path(__file__).resolve().parents[2]
SERVICE = """
import forebay

class Echo(forebay.Service):
    def ping(self):
        return "pong"
"""
CLIENT = """
import forebay
from echo_service import Echo

if __name__ == "__main__":
    with forebay.acquire(Echo, timeout=30) as echo:
        print(echo.ping())
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first builds the wheel


@dataclass(frozen=True)
class Environment:
    """An empty virtual environment into which the wheel was installed."""

    folder: Path

    def run(self, *arguments: str, cwd: Path) -> str:
        """Run its Python with nothing else on PATH; returns what it printed."""
        bare = {"PATH": str(self.folder / "bin"), "HOME": str(cwd), "LANG": "C.UTF-8"}
        python = str(self.folder / "bin" / "python")
        result = subprocess.run(
            [python, *arguments], cwd=cwd, env=bare, capture_output=True, text=True, timeout=120
        )
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `make wheel` builds it."""
    maturin = Path(sys.executable).with_name("maturin")
    if not maturin.exists():
        pytest.skip("maturin is not in this environment: make test")
    out = tmp_path_factory.mktemp("wheel")
    command = [maturin, "build", "--release", "--locked", "--out", out]
    environment = os.environ | {"VIRTUAL_ENV": sys.prefix}
    build = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert build.returncode == 0, build.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module", params=interpreters.MINORS, ids=lambda minor: f"3.{minor}")
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """The wheel in an empty environment of one interpreter."""
    python = interpreters.find(request.param)
    if python is None:
        pytest.skip(f"no CPython 3.{request.param} with venv is on this machine")
    environment = Environment(tmp_path_factory.mktemp(f"python3{request.param}"))
    subprocess.run([python, "-m", "venv", environment.folder], check=True)
    pip = [environment.folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--only-binary", ":all:", wheel], check=True)
    return environment


def test_one_wheel_serves_every_version(wheel: Path):
    """Users of a new CPython do not wait for a release of ours."""
    assert "-cp311-abi3-" in wheel.name
    assert "linux" in wheel.name


def test_the_wheel_carries_what_type_checkers_need(wheel: Path):
    """A user's mypy sees our annotations."""
    assert "forebay/py.typed" in zipfile.ZipFile(wheel).namelist()


def test_the_wheel_carries_the_page_of_the_dashboard(wheel: Path):
    """A gateway that was installed from it serves every file that a checkout's does."""
    folder = ROOT / "python/forebay/gateway/dashboard/assets"
    paths = [path for path in folder.rglob("*") if path.is_file()]
    files = {path.relative_to(ROOT / "python").as_posix() for path in paths}
    assert "forebay/gateway/dashboard/assets/index.html" in files
    assert files <= set(zipfile.ZipFile(wheel).namelist())


def test_it_imports_without_a_toolchain(installed: Environment, tmp_path: Path):
    """Everything that the extension links against is inside it or part of the system."""
    script = "import forebay, forebay._core; print(forebay._core.__file__)"
    location = Path(installed.run("-I", "-c", script, cwd=tmp_path))
    assert location.is_relative_to(installed.folder)


def test_its_keeper_starts_a_service(installed: Environment, tmp_path: Path):
    """The keeper is found inside the installed package, so a first program works at once."""
    (tmp_path / "echo_service.py").write_text(SERVICE)
    (tmp_path / "client.py").write_text(CLIENT)
    assert installed.run("client.py", cwd=tmp_path) == "pong"
