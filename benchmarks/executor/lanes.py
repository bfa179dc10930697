"""Lanes do not wait for each other, as a table: `python -m benchmarks.executor.lanes`.

Ten thousand cooperative requests that sleep for a second, in one worker; and how long a short
request takes from its submission until it begins in its worker while a hundred long ones are
running or wait.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bounds import Bound, broken, table

if TYPE_CHECKING:
    from forebay import Client

NAPS, NAP_S, NAPS_BOUND_S = 10_000, 1.0, 4.0
LONG, SHORT, SHORT_BOUND_MS = 100, 500, 20.0
BETWEEN_S = 0.01


def naps(client: Client) -> float:
    """Seconds until all of them have ended."""
    from benchmarks.executor.lanes_app import nap

    client.run(nap, 0.0)
    started = time.monotonic()
    requests = [client.submit_nowait(nap, NAP_S) for _ in range(NAPS)]
    for request in requests:
        request.result()
    return time.monotonic() - started


def shorts(client: Client) -> list[float]:
    """Milliseconds until a short one began, sorted, with the long ones ahead of them."""
    from benchmarks.executor.lanes_app import begun, occupy

    client.run(begun)
    ahead = client.submit_many(occupy, [{}] * LONG)
    waits = []
    for _ in range(SHORT):
        submitted = time.monotonic()
        waits.append((client.run(begun) - submitted) * 1e3)
        time.sleep(BETWEEN_S)
    for request in ahead:
        request.cancel()
    return sorted(waits)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    import forebay

    application = Path(__file__).with_name("lanes_app.py")
    with tempfile.TemporaryDirectory(prefix="fb-", dir="/var/tmp") as state:
        os.environ.update({"FOREBAY_STATE_DIR": state, "XDG_RUNTIME_DIR": state})
        with forebay.Client(app=str(application)) as client:
            took, waits = naps(client), shorts(client)
            client.stop()
            client.wait_gone(10.0)
    bounds = [
        Bound(f"{NAPS:,} naps of {NAP_S:g} s in one worker", took, NAPS_BOUND_S, "s"),
        Bound(
            f"a short request behind {LONG} long ones begins, p99 of {SHORT}",
            *(waits[len(waits) * 99 // 100], SHORT_BOUND_MS, "ms"),
        ),
    ]
    print(table(bounds))
    print(f"a short one begins, p50: {statistics.median(waits):.2f} ms")
    if options.json:
        Path(options.json).write_text(json.dumps({"naps_s": took, "short_ms": waits}))
    return broken(bounds)


if __name__ == "__main__":
    sys.exit(main())
