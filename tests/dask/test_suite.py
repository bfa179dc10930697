"""The runner of distributed's whole suite, on a small one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dask.checkout import COPY
from tests.dask.record import (
    DIFFERS,
    ENDED,
    FAILED,
    OURS,
    OVER_BOTH,
    PASSED,
    PASSED_AGAIN,
    SKIPPED,
    SLOW,
    STARTED,
    Line,
    Record,
    verdict,
)
from tests.dask.skips import DIFFERENCES
from tests.dask.suite import NOT_RUN

ROOT = Path(__file__).resolve().parents[2]
FILE = "distributed/tests/test_small.py"
TESTS = """
import os
import subprocess
import sys

import pytest


def is_ours():
    import distributed
    return "forebay.dask.tcp" in sys.modules


def is_ours_in_a_child():
    code = "import sys, distributed; sys.exit('forebay.dask.tcp' not in sys.modules)"
    return subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_that_holds():
    assert is_ours() and is_ours_in_a_child()


def test_that_ends_the_process():
    if is_ours():
        os._exit(9)


def test_that_never_holds():
    assert False


def test_that_fails_once(request):
    alone = len(request.session.items) == 1
    assert alone


@pytest.mark.skip(reason="it is of no use")
def test_that_is_skipped():
    pass


def test_that_skips_over_ours():
    if is_ours():
        pytest.skip("it can do nothing with these comms")


@pytest.mark.slow
@pytest.mark.flaky(reruns=2)
def test_that_is_slow():
    pass
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Sources with one file of tests."""
    folder = tmp_path / "checkout"
    (folder / "distributed/tests").mkdir(parents=True)
    for name in ("conftest.py", "pyproject.toml"):
        (folder / name).write_bytes((COPY / name).read_bytes())
    (folder / "distributed/tests/__init__.py").touch()
    (folder / "distributed/tests/tls-cert.pem").write_text("theirs")
    (folder / FILE).write_text(TESTS)
    return folder


def suite(checkout: Path, record: Path, *options: str) -> str:
    """What the runner prints."""
    command = [sys.executable, "-m", "tests.dask.suite", str(checkout), "tests/test_small.py"]
    done = subprocess.run(
        [*command, "--record", str(record), *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_fails_over_ours_alone_is_told_from_what_fails_anyway(
    checkout: Path, tmp_path: Path
) -> None:
    """A difference is found, in a process that it kills too, and among failures that are none."""
    record = tmp_path / "record.jsonl"
    printed = suite(checkout, record)
    verdicts = {
        test.partition("::")[2].removeprefix("test_that_"): said
        for test, said in Record(record).verdicts().items()
    }
    assert verdicts == {
        "holds": PASSED,
        "ends_the_process": DIFFERS,
        "never_holds": OVER_BOTH,
        "fails_once": PASSED_AGAIN,
        "is_skipped": SKIPPED,
        "skips_over_ours": DIFFERS,
        "is_slow": SLOW,
    }
    different = [f"{FILE}::test_that_{name}" for name in ("ends_the_process", "skips_over_ours")]
    assert f"differ and are not listed: {different}" in printed
    assert (checkout / "distributed/tests/tls-cert.pem").read_text() == "theirs"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_record_is_continued_where_it_was(checkout: Path, tmp_path: Path) -> None:
    """Two hours are not lost to an interruption, nor to slow tests that are run later."""
    record = tmp_path / "record.jsonl"
    known = ("ends_the_process", "never_holds", "fails_once")
    for name in known:
        Record(record).add(Line(f"{FILE}::test_that_{name}", OURS, PASSED))
    Record(record).add(Line(f"{FILE}::test_that_holds", OURS, STARTED))
    suite(checkout, record)
    run_again = Record(record).lines()[len(known) :]
    assert [(line.test.partition("_that_")[2], line.outcome) for line in run_again] == [
        ("holds", STARTED),
        ("holds", FAILED),
        ("is_skipped", STARTED),
        ("is_skipped", SKIPPED),
        ("skips_over_ours", STARTED),
        ("skips_over_ours", SKIPPED),
        ("is_slow", STARTED),
        ("is_slow", SLOW),
        ("holds", STARTED),
        ("holds", PASSED),
        ("is_skipped", STARTED),
        ("is_skipped", SKIPPED),
        ("skips_over_ours", STARTED),
        ("skips_over_ours", PASSED),
        ("", ENDED),
    ]
    before = len(Record(record).lines())
    suite(checkout, record)
    assert len(Record(record).lines()) == before
    suite(checkout, record, "--slow")
    assert Record(record).verdicts()[f"{FILE}::test_that_is_slow"] == PASSED
    assert len(Record(record).lines()) == before + 3


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([PASSED], [], PASSED),
        ([SLOW], [], SLOW),
        ([SLOW, PASSED], [], PASSED),
        ([FAILED], [], FAILED),
        ([FAILED, PASSED], [], PASSED_AGAIN),
        ([FAILED, FAILED], [FAILED], OVER_BOTH),
        ([FAILED, FAILED], [PASSED], DIFFERS),
        ([FAILED, FAILED], [SKIPPED], DIFFERS),
        ([SKIPPED], [SKIPPED], SKIPPED),
        ([SKIPPED], [PASSED], DIFFERS),
    ],
)
def test_a_test_that_fails_over_ours_alone_differs(
    ours: list[str], theirs: list[str], said: str
) -> None:
    """What fails over both says nothing; what only ours skip or fail does."""
    assert verdict(ours, theirs) == said


def test_the_guide_says_what_differs_and_what_is_not_run() -> None:
    """Whoever chooses these comms knows where they are not Dask's own."""
    guide = (ROOT / "docs/guides/dask.md").read_text()
    rows = [line for line in guide.splitlines() if re.match(r"\| `\w+(/\w+)*/test_", line)]
    told = {**DIFFERENCES, **NOT_RUN}
    assert rows == [f"| `{name}` | {reason} |" for name, reason in told.items()]
