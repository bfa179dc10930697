"""CPython's own tests pass on our event loop; those left out are listed, with a reason."""

from __future__ import annotations

import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.transport.cpython.skips import SKIPS, reason_to_skip

PACKAGE = "test.test_asyncio"
SLOW = {"test_ssl", "test_sslproto", "test_subprocess", "test_taskgroups", "test_tasks"}
"""Modules of more than a few seconds; about a minute together."""

ROOT = Path(__file__).parents[3]


def modules() -> list[str]:
    """The modules that the installed interpreter brings; skips the test where it has none."""
    if importlib.util.find_spec("test") is None or importlib.util.find_spec(PACKAGE) is None:
        pytest.skip(f"this interpreter comes without {PACKAGE}; install its test package")
    (folder,) = importlib.util.find_spec(PACKAGE).submodule_search_locations
    found = sorted(module.name for module in pkgutil.iter_modules([folder]))
    names = [name for name in found if name.startswith("test_")]
    return [name for name in names if reason_to_skip(f"{PACKAGE}.{name}") is None]


def run(*names: str, timeout: float) -> None:
    """Run test modules in a process of their own; fails with what they print."""
    command = [sys.executable, "-m", "tests.transport.cpython.run", *names]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr[-10_000:]


@pytest.mark.timeout(300)
def test_the_fast_modules_of_test_asyncio_pass():
    """What is written for asyncio works: sockets, servers, signals, streams, futures, locks."""
    fast = [f"{PACKAGE}.{name}" for name in modules() if name not in SLOW]
    run(*fast, timeout=290)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(SLOW))
def test_the_slow_modules_of_test_asyncio_pass(name: str):
    """Tasks, child processes and TLS work as well."""
    if name not in modules():
        pytest.skip(f"this interpreter has no {PACKAGE}.{name}")
    run(f"{PACKAGE}.{name}", timeout=590)


@pytest.mark.timeout(120)
def test_the_selector_passes_the_tests_of_selectors():
    """Whatever takes a `selectors.BaseSelector` may take ours."""
    modules()
    run("test.test_selectors.EpollSelectorTestCase", timeout=110)


def test_every_test_left_out_is_in_the_docs_with_its_reason():
    """A reader of the docs knows what was not tested."""
    page = (ROOT / "docs/concepts/transport/event_loop.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `test.")]
    assert rows == [f"| `{name}` | {reason} |" for name, reason in SKIPS.items()]
