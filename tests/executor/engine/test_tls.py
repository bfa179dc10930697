"""A cluster with TLS, whose certificates the links between server and nodes have too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from tests.executor.engine.cluster import Cluster
from tests.executor.serving import Serving
from tests.transport.certificates import Authority

APP = """
import forebay

app = forebay.App("encrypted")


@app.request(memory="10MB")
def large(size: int) -> bytes:
    print("here")
    return b"x" * size


@app.request(memory="10MB")
def echo(data: bytes) -> bytes:
    return data


@app.request(memory="10MB")
def parent(ctx: forebay.Context) -> int:
    return len(ctx.submit(large, 100).result())
"""
SECTION = "DASK_DISTRIBUTED__COMM__"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """One node; what it, the scheduler and the server are started with is in variables."""
    authority = Authority(tmp_path / "ca")
    environment = {
        f"{SECTION}REQUIRE_ENCRYPTION": "True",
        f"{SECTION}TLS__CA_FILE": str(authority.ca),
    }
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        signed = authority.sign(role.lower())
        environment[f"{SECTION}TLS__{role}__CERT"] = str(signed.cert)
        environment[f"{SECTION}TLS__{role}__KEY"] = str(signed.key)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made = Cluster(tmp_path, protocol="forebay+tls")
    made.add("alone", threads=4)
    with made:
        yield made


def test_requests_run_over_links_with_tls(tmp_path: Path, cluster: Cluster) -> None:
    """Also what is longer than a record of TLS and than a link's buffer, in both directions."""
    settings: dict[str, Any] = {"engine": "dask", "scheduler": cluster.address, "node_timeout": 5.0}
    with (
        Serving(tmp_path, APP, **settings) as serving,
        forebay.Client(f"unix://{serving.socket}", start=False) as client,
    ):
        assert client.run("large", 10) == b"x" * 10
        assert client.run("parent") == 100
        sent = bytes(range(256)) * 4096 * 5
        assert client.run("echo", sent) == sent
        for size in (20_000, 100_000, 6_000_000):
            assert len(client.run("large", size)) == size
