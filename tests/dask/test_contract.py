"""distributed's own tests over our comms, in three ways.

They run unmodified: the copy in `distributed_tests`, with the installed `distributed`, or a source
checkout of `dask/distributed` that `FOREBAY_DISTRIBUTED_TESTS` names.
What is skipped stands in `skips.py`, and docs/guides/dask.md lists the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.dask import checkout
from tests.dask.skips import SKIPS, listed

CHECKOUT = os.environ.get("FOREBAY_DISTRIBUTED_TESTS", "")
ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 280
WARNED_OF_BY_ITSELF = "ignore:get_ipv6 is deprecated:FutureWarning"

UNFIT = None if CHECKOUT else checkout.reason_not_to_run()


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which their tests run."""
    if CHECKOUT:
        return Path(CHECKOUT)
    return checkout.lay_out(tmp_path_factory.mktemp("checkout"))


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Where a run writes what became of each test."""
    return tmp_path / "report.xml"


def passed(theirs: Path, report: Path, *arguments: str) -> int:
    """Run pytest in the checkout, over our comms; how many tests passed.

    Fails when one of them failed, or was skipped without a row in the table.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "--color=no", "-p", "no:cacheprovider"]
    command += ["-W", WARNED_OF_BY_ITSELF, "-p", "tests.dask.drop_in", f"--junitxml={report}"]
    outcome = subprocess.run(
        [*command, *arguments],
        cwd=theirs,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(theirs), *sys.path, str(ROOT)))},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    cases = list(ET.parse(report).iter("testcase"))
    skipped = [case.attrib["name"] for case in cases if case.find("skipped") is not None]
    assert [name for name in skipped if listed(name) is None] == []
    return len(cases) - len(skipped)


@pytest.mark.skipif(UNFIT is not None, reason=str(UNFIT))
@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 20)
class TestThreeWays:
    def test_as_a_drop_in_for_tcp(self, theirs: Path, report: Path) -> None:
        """Whoever changes tcp:// into forebay:// misses nothing that their tests ask for."""
        assert passed(theirs, report, "--runslow", "distributed/comm/tests/test_comms.py") >= 52

    def test_under_our_own_schemes(self, theirs: Path, report: Path) -> None:
        """The checks that take an address hold for each of ours."""
        own = str(Path(__file__).with_name("own_scheme.py"))
        rooted = ("-c", "pyproject.toml", "--rootdir", str(theirs))
        assert passed(theirs, report, *rooted, own) >= 23

    def test_servers_pools_and_batches(self, theirs: Path, report: Path) -> None:
        """What is built upon comms works upon ours: servers, rpc, pools of connections, batches."""
        files = ("distributed/tests/test_core.py", "distributed/tests/test_batched.py")
        assert passed(theirs, report, "--runslow", *files) >= 68


def test_the_copied_tests_are_unmodified() -> None:
    """A pass over tests that somebody has bent says nothing."""
    assert checkout.modified() == []


def test_every_test_left_out_is_in_the_guide_with_its_reason() -> None:
    """A reader of the guide knows what was not tested."""
    rows = [
        line
        for line in (ROOT / "docs/guides/dask.md").read_text().splitlines()
        if line.startswith("| `test_")
    ]
    assert rows == [f"| `{name}` | {reason} |" for name, reason in SKIPS.items()]
