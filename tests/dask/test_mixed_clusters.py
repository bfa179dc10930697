"""Clusters that are switched over node by node: schedulers, workers and clients as processes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.dask.certificates import files, sign_like_theirs
from tests.dask.nodes import ROOT, nodes

TIMEOUT_S = 150
JOB = str(ROOT / "tests/dask/mixed_job.py")
OLDEST = os.environ.get("FOREBAY_OLDEST_DASK") or str(ROOT / ".venv-bench/dask2024/bin/python")
"""An interpreter with the oldest `distributed` that the extra `dask` allows."""

PRELOAD = ("--preload", "forebay.dask.tcp")
PRELOADS = {
    "scheduler": PRELOAD,
    "worker": (*PRELOAD, "--preload-nanny", "forebay.dask.tcp"),
}
OF_CLIENT = "DASK_DISTRIBUTED__CLIENT__PRELOAD"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S)]


@pytest.fixture(params=["installed", "oldest"])
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter for all nodes of a cluster."""
    if request.param == "installed":
        return sys.executable
    if not Path(OLDEST).exists():
        pytest.skip("no interpreter with distributed 2024.8: make bench-setup")
    return OLDEST


WAYS = {
    "scheduler switched": (True, False),
    "client switched": (False, True),
    "both switched": (True, True),
}
if os.environ.get("FOREBAY_MIXED") != "all":  # make test-slow
    WAYS = {"both switched": WAYS["both switched"]}


def switched(role: str, *, is_switched: bool) -> tuple[str, ...]:
    """What a command gets."""
    return PRELOADS[role] if is_switched else ()


@pytest.mark.parametrize(("scheduler", "client"), WAYS.values(), ids=WAYS)
def test_a_cluster_half_switched_gives_the_right_answers(
    tmp_path: Path,
    python: str,
    monkeypatch: pytest.MonkeyPatch,
    scheduler: bool,
    client: bool,
) -> None:
    """Each pair of nodes speaks our protocol if both have it, and Dask's own otherwise."""
    if client:
        monkeypatch.setenv(OF_CLIENT, '["forebay.dask.tcp"]')
    with nodes(tmp_path, python) as cluster:
        options = switched("scheduler", is_switched=scheduler)
        address = cluster.scheduler("--host", "127.0.0.1", *options)
        assert address.startswith("tcp://")
        cluster.worker("old", address)
        for name in ("new", "newer"):
            cluster.worker(name, address, *switched("worker", is_switched=True))
        spoken = json.loads(cluster.run(JOB, address, "3"))
        log = cluster.log("scheduler")
    workers = "ours" if scheduler else "stock"
    assert spoken.pop("old") == "stock"
    assert spoken.pop("new") == spoken.pop("newer") == workers
    assert spoken.pop("client") == ("ours" if scheduler and client else "stock")
    for pair, got in spoken.items():
        assert got == (["stock"] if "old" in pair else ["ours"]), pair
    assert "Traceback" not in log


def test_a_cluster_over_tls_half_switched_gives_the_right_answers(
    tmp_path: Path, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options of the commands, and the configuration of the client, stay as they are."""
    sign_like_theirs(tmp_path)
    paths = files(tmp_path)
    tls = ("--tls-ca-file", paths["tls_ca_file"], "--tls-cert", paths["tls_worker_cert"])
    tls += ("--tls-key", paths["tls_worker_key"])
    monkeypatch.setenv(OF_CLIENT, '["forebay.dask.tcp"]')
    configure(monkeypatch, paths)
    with nodes(tmp_path, python) as cluster:
        options = switched("scheduler", is_switched=True)
        address = cluster.scheduler("--host", "127.0.0.1", *options, *tls)
        assert address.startswith("tls://")
        cluster.worker("old", address, *tls)
        for name in ("new", "newer"):
            cluster.worker(name, address, *switched("worker", is_switched=True), *tls)
        spoken = json.loads(cluster.run(JOB, address, "3"))
        log = cluster.log("scheduler")
    assert spoken.pop("old") == "stock"
    assert spoken.pop("new") == spoken.pop("newer") == spoken.pop("client") == "ours"
    for pair, got in spoken.items():
        assert got == (["stock"] if "old" in pair else ["ours"]), pair
    assert "Traceback" not in log


def configure(monkeypatch: pytest.MonkeyPatch, paths: dict[str, str]) -> None:
    """Give Dask's configuration a client's certificate."""
    prefix = "DASK_DISTRIBUTED__COMM__TLS__"
    monkeypatch.setenv(f"{prefix}CA_FILE", paths["tls_ca_file"])
    monkeypatch.setenv(f"{prefix}CLIENT__CERT", paths["tls_client_cert"])
    monkeypatch.setenv(f"{prefix}CLIENT__KEY", paths["tls_client_key"])
