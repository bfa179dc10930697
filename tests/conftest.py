"""For every test: fail it when it leaks, skip it when a program it needs is missing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import signal
import socket
from collections.abc import Iterator

import pytest
import uvloop

from forebay import _core
from forebay._runtime_directory import temporary_root
from forebay.errors import DeadlineError
from forebay.rpc._reader import reader
from tests.leak_guard import Holdings
from tests.skip_list import SkipList

# Before anything imports numpy: its thread pool would look like leaked threads.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

collect_ignore = ["vendored"]  # test_contract.py and test_cpython.py run them by themselves

PACKAGES = {
    "cc": "gcc",
    "chroot": "coreutils",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
    "unshare": "util-linux",
    "useradd": "passwd",
}
"""Debian packages that are not called what their program is."""

# A shell that starts the tests in the background ignores Ctrl-C for them, and for every child.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Hold skips to their list, in the process that reports to the user."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipList())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: at the end all processes are done at once."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `needs(program)` where the program is missing, and say what to type."""
    for marker in item.iter_markers("needs"):
        for program in marker.args:
            if shutil.which(program) is None:
                package = PACKAGES.get(program, program)
                pytest.skip(f"{program} is not installed; to have it: apt-get install {package}")


@pytest.fixture(scope="session", autouse=True)
def kept_for_good() -> None:
    """Make what a process makes once and keeps, so that no test is blamed for it.

    That is libuv's pipe for signals and its threads, the reader thread of submitted calls, the
    descriptor on which a thread sleeps while it waits for an answer, and this user's directory for
    sockets.
    """
    temporary_root().mkdir(mode=0o700, exist_ok=True)
    uvloop.run(_look_up())
    reader()
    ours, theirs = socket.socketpair()
    with theirs:
        connection = _core.Connection(ours.detach())
        call = connection.begin(0, b"", None, 0)
        with contextlib.suppress(DeadlineError):
            # Long enough that the thread comes to sleep: who is late makes no descriptor.
            connection.settle(call, 0, 0.1)
        connection.close()
    gc.freeze()  # what was imported stays: collections in tests need not go through it


async def _look_up() -> None:
    await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 0)


@pytest.fixture(autouse=True)
def leak_guard(request: pytest.FixtureRequest, kept_for_good: None) -> Iterator[None]:
    """Fail a test after which more descriptors, children or threads exist than before it."""
    before = Holdings.now()
    yield
    if request.node.get_closest_marker("leaks"):
        return
    request.node.funcargs.clear()  # pytest holds what fixtures returned for longer than they live
    leaks = before.leaks_until(Holdings.now)
    if leaks:
        listing = "\n  ".join(leaks)
        pytest.fail(
            f"{request.node.name} leaks:\n  {listing}\n"
            "close what it opened, or mark it @pytest.mark.leaks(reason='...')",
            pytrace=False,
        )
