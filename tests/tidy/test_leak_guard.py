"""The guard that fails a leaking test sees each kind of leak."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from tests import leak_guard
from tests.leak_guard import Holdings


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leak that is meant to be seen need not be waited for."""
    monkeypatch.setattr(leak_guard, "SETTLE_S", 0.0)


@pytest.mark.usefixtures("impatient")
def test_an_open_descriptor_is_named_by_what_it_points_at():
    """Without the target in the message nobody finds who opened it."""
    before = Holdings.now()
    descriptor = os.open("/dev/null", os.O_RDONLY)
    try:
        assert before.leaks_until(Holdings.now) == [f"descriptor {descriptor}: /dev/null"]
    finally:
        os.close(descriptor)
    assert before.leaks_until(Holdings.now) == []


@pytest.mark.usefixtures("impatient")
def test_a_running_child_is_named_by_its_command():
    """A service that a test left behind would disturb every later one."""
    before = Holdings.now()
    command = [sys.executable, "-S", "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        (leak,) = [line for line in before.leaks_until(Holdings.now) if "child" in line]
        assert leak.startswith(f"child process {child.pid}: ")
        child.communicate()
    assert before.leaks_until(Holdings.now) == []


@pytest.mark.usefixtures("impatient")
def test_a_child_nobody_waited_for_is_a_leak():
    """Zombies of our own use up process ids."""
    before = Holdings.now()
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    try:
        assert before.leaks_until(Holdings.now) == [
            f"child process {pid}: a zombie: nobody waited for it"
        ]
    finally:
        os.waitpid(pid, 0)


@pytest.mark.usefixtures("impatient")
def test_a_thread_that_still_runs_is_a_leak():
    """A thread of Rust counts too, so the kernel is asked, not the threading module."""
    before = Holdings.now()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert any(leak.startswith("thread ") for leak in before.leaks_until(Holdings.now))
    finally:
        stop.set()
        thread.join()


@pytest.mark.usefixtures("impatient")
def test_a_signal_that_stays_blocked_is_a_leak():
    """Every program that a later test starts would have it blocked too."""
    before = Holdings.now()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        leaks = before.leaks_until(Holdings.now)
        assert leaks == [f"blocked signal {signal.SIGUSR1:d}: User defined signal 1"]
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])


def test_what_ends_a_moment_later_is_no_leak():
    """A thread that was told to end gets the time to do so."""
    before = Holdings.now()
    timer = threading.Timer(0.05, lambda: None)
    timer.start()
    assert before.leaks_until(Holdings.now) == []
