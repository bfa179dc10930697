"""Unmodified clusters over our comms: scheduler, nannies, workers and client as processes."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.dask.certificates import files, sign_like_theirs
from tests.dask.nodes import ROOT, environment, nodes

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


SECURITIES = ("ours", "our temporary", "dask's", "dask's temporary", "True")


@pytest.mark.parametrize(
    "arguments",
    [("forebay",), ("forebay+unix",), *(("forebay+tls", kind) for kind in SECURITIES)],
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
        env=environment(sys.executable),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout == "right\n"
    assert "dangling" not in outcome.stderr


def program(folder: Path, text: str) -> str:
    """A program of a client."""
    path = folder / "client.py"
    path.write_text(f"from distributed import Client, Security\n{text}")
    return str(path)


def ask(folder: Path, address: str, security: str = "None") -> str:
    """A program that prints the scheme of its scheduler, and a sum."""
    return program(
        folder,
        f"with Client({address!r}, security={security}) as client:\n"
        "    scheme = client.scheduler.address.partition(':')[0]\n"
        "    print(scheme, client.submit(sum, [1, 2]).result())\n",
    )


def test_the_commands_of_dask_take_our_scheme(tmp_path: Path) -> None:
    """`dask scheduler` and `dask worker` need no more than `--protocol forebay`."""
    with nodes(tmp_path) as cluster:
        address = cluster.scheduler("--host", "127.0.0.1", "--protocol", "forebay")
        cluster.worker("worker", address, "--protocol", "forebay")
        assert cluster.run(ask(tmp_path, address)) == "forebay 3\n"


def test_the_commands_of_dask_take_our_scheme_with_tls(tmp_path: Path) -> None:
    """So they do with the options for certificates that they have."""
    sign_like_theirs(tmp_path)
    tls = ("--tls-ca-file", "tls-ca-cert.pem", "--tls-cert", "tls-cert.pem")
    tls += ("--tls-key", "tls-key.pem", "--protocol", "forebay+tls")
    with nodes(tmp_path) as cluster:
        address = cluster.scheduler("--host", "127.0.0.1", *tls)
        assert address.startswith("forebay+tls://")
        cluster.worker("worker", address, *tls)
        arguments = repr(files(tmp_path))
        for security in (f"Security(**{arguments})", arguments):
            assert cluster.run(ask(tmp_path, address, security)) == "forebay+tls 3\n"


def test_with_tls_the_scheme_of_a_host_counts_for_nothing(tmp_path: Path) -> None:
    """The guide says so: Dask takes tls:// wherever it gets certificates and no protocol."""
    sign_like_theirs(tmp_path)
    tls = ("--tls-ca-file", "tls-ca-cert.pem", "--tls-cert", "tls-cert.pem")
    with nodes(tmp_path) as cluster:
        host = ("--host", "forebay+tls://127.0.0.1", "--tls-key", "tls-key.pem")
        assert cluster.scheduler(*host, *tls).startswith("tls://")


def test_a_client_and_a_worker_at_a_bare_address_learn_where_to_connect(tmp_path: Path) -> None:
    """The likeliest mistake of whoever changes over is told on both sides."""
    with nodes(tmp_path) as cluster:
        address = cluster.scheduler("--host", "127.0.0.1", "--protocol", "forebay")
        bare = address.partition("://")[2]
        text = f"try:\n    Client({bare!r})\nexcept Exception as error:\n    print(error)\n"
        assert f"connect to {address} instead" in cluster.run(program(tmp_path, text))
        warned = cluster.wait_for("scheduler", "WARNING")
        assert "distributed.comm.forebay" in warned
        assert f"speaks Dask's own tcp://, and is refused: {address} is served by" in warned
        cluster.worker("worker", bare, "--no-nanny")
        cluster.wait_for("worker", f"connect to {address} instead")


def test_a_worker_says_at_which_path_it_listens(tmp_path: Path) -> None:
    """Whoever reads a worker's log can find its socket."""
    unix = ("--protocol", "forebay+unix")
    with nodes(tmp_path) as cluster:
        address = cluster.scheduler("--host", "127.0.0.1", *unix)
        cluster.worker("worker", address, *unix)
        written = cluster.wait_for("worker", "Listening to: ")
        starts = written.partition("Start worker at: ")[2].split()[0]
        assert written.partition("Listening to: ")[2].split("\n")[0].split()[0] == starts
        assert starts.startswith("forebay+unix:///")
