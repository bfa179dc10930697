"""Unmodified clusters over our comms: scheduler, nannies, workers and client as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.dask.certificates import sign_like_theirs

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 100
SCHEMES = ("forebay", "forebay+tls", "forebay+unix")

installed = {point.name for point in entry_points(group="distributed.comm.backends")}
pytestmark = [
    pytest.mark.skipif(
        not installed.issuperset(SCHEMES),
        reason="the installed forebay is older than its backends: make test installs it again",
    ),
    pytest.mark.slow,
    pytest.mark.timeout(TIMEOUT_S + 20),
]


@pytest.mark.parametrize(
    "arguments",
    [("forebay",), ("forebay+unix",), ("forebay+tls", "."), ("forebay+tls", "temporary")],
    ids=" ".join,
)
def test_a_local_cluster_gives_the_right_answers(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """Changing the protocol of a cluster changes nothing else."""
    sign_like_theirs(tmp_path)
    outcome = subprocess.run(
        [sys.executable, str(ROOT / "tests/dask/cluster.py"), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout == "right\n"
    assert "dangling" not in outcome.stderr


def test_the_commands_of_dask_take_our_scheme(tmp_path: Path) -> None:
    """`dask scheduler` and `dask worker` need no more than `--protocol forebay`."""
    file = str(tmp_path / "scheduler.json")
    shared = ("--protocol", "forebay", "--no-dashboard", "--scheduler-file", file)
    program = (
        "from distributed import Client\n"
        f"with Client(scheduler_file={file!r}) as client:\n"
        "    print(client.scheduler.address.partition(':')[0], client.submit(sum, [1, 2]).result())"
    )
    services = [
        started(tmp_path, "scheduler", "--host", "127.0.0.1", "--port", "0", *shared),
        started(tmp_path, "worker", "--nthreads", "1", *shared),
    ]
    try:
        answer = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert answer.stdout == "forebay 3\n", answer.stderr
    finally:
        for service in reversed(services):
            service.terminate()
            service.communicate(timeout=TIMEOUT_S)


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command of Dask, running."""
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments], cwd=folder, stderr=subprocess.PIPE, text=True
    )
