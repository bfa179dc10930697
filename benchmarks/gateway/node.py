"""A server on a small node with its gateway, as tables: `python -m benchmarks.gateway.node`.

The case of `benchmarks.executor.node` (0.5 CPU, 750 MB, 30 requests of 60 MB beside 110 MB of
imports), submitted and looked at over HTTP, and once more while 100 readers follow.
Then the memory of the processes while one request prints a line each second: without a gateway,
with it, with 1 and 20 open dashboards, each with a stream of all events and a question for the
overview each 2 s, and with 1, 10 and 100 readers of server-sent events, each with a stream of the
feed that the server filters and one of the log. Exit status 1 where a bound is broken.
Needs the right to make control groups.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.bounds import Bound, broken, table
from benchmarks.cgroup import Cgroup, cgroup
from benchmarks.executor.node import (
    APPLICATION,
    NODE_BYTES,
    NODE_CORES,
    READY_S,
    REQUESTS,
    server,
    submitted,
)
from benchmarks.gateway.address import Address, free_port
from benchmarks.gateway.dashboards import Dashboards
from benchmarks.gateway.readers import Readers
from benchmarks.table import aligned

READERS = (1, 10, 100)
DASHBOARDS = (1, 20)
REST_S = 5.0
"""Until what was needed to open the streams has been given back."""
LINES = 100_000
FOLLOWED = "tell"
HEAD = ("readers", "server", "gateway", "keeper, templates", "its worker", "together")

Row = dict[str, Any]


def rest(client: Any, server_pid: int) -> dict[str, int]:
    """The proportional set size of each kind of process, some seconds from now."""
    time.sleep(REST_S)
    pids = processes.tree(server_pid)
    workers = {one["pid"] for one in client.ask("workers")["workers"]}
    gateways = {pid for pid in pids if b"forebay.gateway" in _command(pid)}
    others = set(pids) - workers - gateways - {server_pid}
    kinds = {"server": {server_pid}, "gateway": gateways, "others": others, "workers": workers}
    return {kind: processes.memory_bytes(list(some)) for kind, some in kinds.items()}


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it ended meanwhile


def without() -> Row:
    """The server alone, with a request that runs."""
    with _group() as (group, state), server(group, state) as (client, pid):
        client.submit(FOLLOWED, lines=LINES)
        return {"readers": "no gateway", "served": 0, "asked": 0, **rest(client, pid)}


def with_gateway() -> dict[str, Any]:
    """The same behind its gateway: rows of the memory, and the two bursts over HTTP."""
    import forebay

    address = Address(free_port())
    arguments = ("--http", address.text)
    with _group() as (group, state), server(group, state, arguments=arguments) as (local, pid):
        _wait(address)
        feed, log = (_reader(address, state, name) for name in ("feed", "log"))
        token = _token(state, "submitter", "submit")
        with forebay.Client(f"http://{address.text}", token=token) as client:
            found: dict[str, Any] = {"burst": submitted(client, group)}
            id_ = local.submit(FOLLOWED, lines=LINES).id
            rows = [{"readers": "gateway, none", "served": 0, "asked": 0, **rest(local, pid)}]
            for count in DASHBOARDS:
                with Dashboards(feed, count) as pages:
                    served = pages.served()
                    row = {"readers": f"dashboards, {count}", "served": served, "asked": count}
                    rows.append(row | rest(local, pid))
            streams = {
                f"/v1/events?names={FOLLOWED}&cursor=0": feed,
                f"/v1/requests/{id_}/logs": log,
            }
            for count in READERS:
                with Readers(streams, count) as readers:
                    served = readers.served()
                    row = {"readers": f"gateway, {count}", "served": served, "asked": count}
                    rows.append(row | rest(local, pid))
                    if count == READERS[-1]:
                        found["burst, followed"] = submitted(client, group)
                        found["served after it"] = readers.served()
        return found | {"rows": rows, "kills": group.kills()}


@contextmanager
def _group() -> Iterator[tuple[Cgroup, str]]:
    with cgroup(NODE_BYTES, NODE_CORES) as group, tempfile.TemporaryDirectory() as state:
        yield group, state


def _wait(address: Address) -> None:
    deadline = time.monotonic() + READY_S
    while not address.answers("/readyz"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the gateway was not ready after {READY_S:.0f} s")
        time.sleep(0.1)


def _reader(address: Address, state: str, name: str) -> Address:
    return replace(address, headers={"Authorization": f"Bearer {_token(state, name, 'read')}"})


def _token(state: str, name: str, role: str) -> str:
    """A token of the server, made by its command."""
    made = subprocess.run(
        [
            *(sys.executable, "-m", "forebay.cli", "token", "add", name),
            *("--role", role, "--app", str(APPLICATION), "--json"),
        ],
        env=os.environ | {"FOREBAY_STATE_DIR": state, "XDG_RUNTIME_DIR": state},
        stdout=subprocess.PIPE,
        check=True,
    )
    return str(json.loads(made.stdout)["token"])


def bounds(found: dict[str, Any]) -> list[Bound]:
    """What was asked, beside what was found."""
    asked = [
        Bound(f"of {REQUESTS} over HTTP ended well", *(found["burst"]["done"], REQUESTS, ""), True),
        Bound(
            f"of {REQUESTS} beside {READERS[-1]} readers ended well",
            *(found["burst, followed"]["done"], REQUESTS, ""),
            at_least=True,
        ),
        Bound("killed by the kernel there", found["kills"], 0, ""),
    ]
    for row in found["rows"]:
        if row["asked"]:
            what = f"{row['readers']}: that were served"
            asked.append(Bound(what, row["served"], row["asked"], "", at_least=True))
    asked.append(
        Bound("the same after the burst", *(found["served after it"], READERS[-1], ""), True)
    )
    return asked


def memory_lines(rows: list[Row]) -> list[tuple[str, ...]]:
    """The table of the memory: a line for each number of readers, in MB."""
    lines = []
    for row in rows:
        sizes = [row[kind] for kind in ("server", "gateway", "others", "workers")]
        lines.append((row["readers"], *(f"{size / 1e6:.1f}" for size in (*sizes, sum(sizes)))))
    return lines


def _burst_line(how: str, burst: dict[str, Any]) -> tuple[str, ...]:
    told = f"{how}, at most {burst['at_once']} at once, {burst['seconds']:.0f} s"
    return (told, f"{burst['done']} of {REQUESTS}", str(burst["kills"]))


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    first = without()
    found = with_gateway()
    found["rows"].insert(0, first)
    print(f"\n{NODE_CORES} CPU and {NODE_BYTES / 1e6:.0f} MB, 60 MB a request, over HTTP:\n")
    bursts = [
        _burst_line("no readers", found["burst"]),
        _burst_line(f"{READERS[-1]} readers", found["burst, followed"]),
    ]
    print(aligned(("how", "ended well", "killed by the kernel"), bursts))
    print("\nproportional set size in MB, while one request prints a line each second:\n")
    print(f"{aligned(HEAD, memory_lines(found['rows']))}\n")
    asked = bounds(found)
    print(table(asked))
    if options.json:
        Path(options.json).write_text(json.dumps(found, default=str, indent=1))
    return broken(asked)


if __name__ == "__main__":
    sys.exit(main())
