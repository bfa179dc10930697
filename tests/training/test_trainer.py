"""The example that trains from disk and from parameter servers, by requests of its server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay

APPLICATION = Path(__file__).parents[2] / "examples/training/trainer.py"
STEPS = 600


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[forebay.Client]:
    """A client of a server of its own."""
    monkeypatch.setenv("FOREBAY_STATE_DIR", str(tmp_path / "state"))
    with (
        tempfile.TemporaryDirectory(prefix="fb-", dir="/tmp") as sockets,  # their paths are short
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("XDG_RUNTIME_DIR", sockets)
        command = [sys.executable, "-m", "forebay.cli", "serve", str(APPLICATION)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            server.stdout.readline()  # it listens
            with forebay.Client(app=str(APPLICATION), start=False) as client:
                yield client
            server.terminate()


def test_a_run_learns_and_the_next_one_goes_on_from_there(
    client: forebay.Client, tmp_path: Path
) -> None:
    """The parameters are those of the servers, which outlive a run; the file is written once."""
    first = client.run("train", steps=STEPS, folder=str(tmp_path))
    written = (tmp_path / "replay.fbr").stat().st_mtime_ns
    second = client.run("train", steps=STEPS, folder=str(tmp_path))
    assert first["loss"] < 0.9 * first["loss_before"]
    assert second["loss_before"] < 0.9 * first["loss_before"]
    assert second["loss"] < 0.9 * first["loss"]
    assert (tmp_path / "replay.fbr").stat().st_mtime_ns == written


def test_a_killed_parameter_server_fails_the_run_by_name(
    client: forebay.Client, tmp_path: Path
) -> None:
    """Nobody searches which of the processes it was; and there is another one afterwards."""
    request = client.submit("train", steps=1_000_000, folder=str(tmp_path))
    killed = 0
    for step in request.progress():
        if step.done and not killed:
            services = client.ask("services")["services"]
            killed = services[0]["pid"]
            os.kill(killed, signal.SIGKILL)
    with pytest.raises(forebay.RemoteError, match=r"unix://\S+-[01]\.sock"):
        request.result()
    again = client.run("train", steps=10, folder=str(tmp_path))
    assert again["steps"] == 10
