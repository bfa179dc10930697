"""Our other ways between two processes of a host, against our own TCP.

Where shared memory passes references, the sender rewrites one word of every page of what it sends
and the receiver reads them, on both sides of the comparison, so that both touch the memory.
"""

from __future__ import annotations

from benchmarks.transport.contestants import FOREBAY, echo_row, ours, row

PAGES = "benchmarks.transport.pages:pages"
UNIX = ours("forebay unix", scheme="unix")
SHARED = ours("forebay shm", scheme="shm")

CLAIMS = [
    echo_row("unix.1e3.p1c1.vs_own_tcp", UNIX, [FOREBAY], "1e3", 1, 1),
    echo_row("shm.1e3.p1c1.vs_own_tcp", SHARED, [FOREBAY], "1e3", 1, 1),
    *(
        row(
            f"shm.{size}.p1c1.vs_own_tcp",
            SHARED.contestant("pages", PAGES),
            [FOREBAY.contestant("pages", PAGES)],
            size,
        )
        for size in ("1e5", "1e6", "1e7")
    ),
]
