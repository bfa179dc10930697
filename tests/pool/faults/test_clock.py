"""A pool goes by the monotonic clock: a step of the wall clock changes nothing.

The clock of the machine cannot be set for a test. A library that is loaded before libc moves what
programs see of it, and a look at the sources covers what asks the kernel itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pool.scripts import ROOT, write
from tests.preloaded import compiled

STEPPED = r"""
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <stdlib.h>
    #include <sys/syscall.h>
    #include <sys/time.h>
    #include <time.h>
    #include <unistd.h>

    static long step(void) {
        char text[32] = {0};
        int file = open(getenv("CLOCK_STEP"), O_RDONLY | O_CLOEXEC);
        if (file < 0) return 0;
        if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
        close(file);
        return atol(text);
    }

    int clock_gettime(clockid_t clock, struct timespec *now) {
        int done = syscall(SYS_clock_gettime, clock, now);
        if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += step();
        return done;
    }

    int gettimeofday(struct timeval *restrict now, void *restrict zone) {
        int done = syscall(SYS_gettimeofday, now, zone);
        now->tv_sec += step();
        return done;
    }

    time_t time(time_t *told) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        if (told) *told = now.tv_sec;
        return now.tv_sec;
    }
"""

PROGRAM = """
    import sys, threading, time
    import forebay
    from tests.pool.services import Echo, Notes

    def jump(seconds):
        before = time.time()
        with open(sys.argv[1], "w") as file:
            file.write(str(seconds))
        return time.time() - before

    def wait_in_vain(pool, seconds, expected):
        began = time.monotonic()
        threading.Timer(seconds / 4, jump, [expected]).start()
        try:
            with pool.acquire(Echo, timeout=seconds):
                return "lent"
        except forebay.DeadlineError:
            waited = time.monotonic() - began
        assert abs(time.time() - began_at - expected) < 1000, "the clock did not jump"
        return "early" if waited < seconds * 0.95 else "in time"

    if __name__ == "__main__":
        began_at = time.time()
        day = 86400
        settings = {"idle_timeout": 600, "max_lifetime": 600, "ping_after": 600}
        with forebay.ServicePool(max_size=1, reset_timeout=20, **settings) as pool:
            with pool.acquire(Notes) as notes:
                first = notes.lease.pid
                print(wait_in_vain(pool, 1.0, day))
                print(wait_in_vain(pool, 1.0, -day))
                assert abs(jump(day) - 2 * day) < 1000
                notes.lease.options(timeout=5).note("within its deadline")
            jump(0)  # while the reset may be under way
            for step in (2 * day, -2 * day):
                jump(step)
                with pool.acquire(Notes, timeout=20) as notes:
                    assert notes.lease.pid == first, "ended for a step of the clock"
            print(pool.stats()["deaths"])
"""


@pytest.mark.needs("gcc")
def test_a_step_of_the_clock_ends_no_wait_early_and_no_service(tmp_path: Path) -> None:
    """NTP that moves a clock by a day must neither fail every waiting acquire nor stop the pool."""
    library = compiled(write(tmp_path / "stepped.c", STEPPED), tmp_path)
    program = write(tmp_path / "program.py", PROGRAM)
    step = tmp_path / "step"
    ended = subprocess.run(
        [sys.executable, program, step],
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(tmp_path),
            "LD_PRELOAD": str(library),
            "CLOCK_STEP": str(step),
        },
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (ended.stdout, ended.stderr) == ("in time\nin time\n{}\n", "")


def test_only_the_journal_of_events_reads_the_wall_clock() -> None:
    """A deadline that is computed from it would be one that a step of the clock moves."""
    wall = re.compile(
        r"SystemTime|ClockId::Realtime|CLOCK_REALTIME|\btime\.time|\btime_ns|datetime"
    )
    folders = ["crates/pool/src", "python/forebay/pool", "python/forebay/gym"]
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.[rp][sy]")]
    assert len(files) > 100
    found = {str(file.relative_to(ROOT)) for file in files if wall.search(file.read_text())}
    assert found == {"crates/pool/src/client/journal.rs"}
