"""distributed's own tests over our comms, in three ways.

Wheels of `distributed` have no tests: `FOREBAY_DISTRIBUTED_TESTS` names a source checkout of
`dask/distributed`, whose tests and sources run unmodified. docs/guides/dask.md lists what is
skipped.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = os.environ.get("FOREBAY_DISTRIBUTED_TESTS", "")
ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 280
WARNED_OF_BY_ITSELF = "ignore:get_ipv6 is deprecated:FutureWarning"

pytestmark = [
    pytest.mark.skipif(
        not CHECKOUT,
        reason="FOREBAY_DISTRIBUTED_TESTS names no source checkout of dask/distributed",
    ),
    pytest.mark.slow,
    pytest.mark.timeout(TIMEOUT_S + 20),
]


def passed(*arguments: str) -> int:
    """Run pytest in the checkout, over our comms; how many tests passed, if all did."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "--color=no", "-p", "no:cacheprovider"]
    path = os.pathsep.join((CHECKOUT, *sys.path))
    outcome = subprocess.run(
        [*command, "-W", WARNED_OF_BY_ITSELF, "-p", "tests.dask.drop_in", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    counted = re.search(r"(\d+) passed", outcome.stdout)
    assert counted is not None, outcome.stdout
    return int(counted[1])


def test_as_a_drop_in_for_tcp() -> None:
    """Whoever changes tcp:// into forebay:// misses nothing that their tests ask for."""
    assert passed("distributed/comm/tests/test_comms.py") >= 50


def test_under_our_own_schemes() -> None:
    """The checks that take an address hold for each of ours."""
    own = str(Path(__file__).with_name("own_scheme.py"))
    assert passed("-c", "pyproject.toml", "--rootdir", CHECKOUT, own) >= 23


def test_servers_pools_and_batches() -> None:
    """What is built upon comms works upon ours: servers, rpc, pools of connections, batches."""
    elsewhere = "not test_server_listen"  # it fails over their own comms too
    files = ("distributed/tests/test_core.py", "distributed/tests/test_batched.py")
    assert passed("-k", elsewhere, *files) >= 60
