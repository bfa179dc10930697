"""`python -m benchmarks SYSTEM [--quick] [--json FILE] [--rounds N] [--only CLAIM] [--limits]`.

Besides: `python -m benchmarks originals`, `python -m benchmarks echo`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType

from benchmarks import harness, machine, table
from benchmarks.claim import Claim
from benchmarks.runner import adopt_orphans

SYSTEMS = {
    "blockio": "benchmarks.blockio.claims",
    "engine": "benchmarks.engine.claims",
    "executor": "benchmarks.executor.claims",
    "gateway": "benchmarks.gateway.claims",
    "pool": "benchmarks.pool.claims",
    "product": "benchmarks.product.claims",
    "rpc": "benchmarks.rpc.claims",
    "tensor": "benchmarks.tensor.claims",
    "transport": "benchmarks.transport.claims",
}
COMMANDS = {"echo": "benchmarks.originals.echo", "originals": "benchmarks.originals.command"}
"""What is no system, and has options of its own."""
ROUNDS = 5
ROUNDS_QUICK = 3


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Forebay beside its peers, in interleaved rounds.",
        epilog="example: python -m benchmarks rpc --quick --only rpc.call.vs_pipe --json rpc.json;"
        " further: python -m benchmarks originals --help, echo --help",
    )
    parser.add_argument("system", choices=[*SYSTEMS, "all"])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, fewer calls a round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"at least {harness.ROUNDS_MIN}")
    parser.add_argument("--only", action="append", metavar="CLAIM", help="a row, or its beginning")
    parser.add_argument(
        "--limits",
        action="store_true",
        help="also the rows that set a memory limit and the disk's read-ahead, and set them back",
    )
    options = parser.parse_args(arguments)
    if options.rounds is None:
        options.rounds = ROUNDS_QUICK if options.quick else ROUNDS
    if options.rounds < harness.ROUNDS_MIN:
        parser.error(f"--rounds {options.rounds}: a median needs {harness.ROUNDS_MIN} or more")
    return options


def claims_of(system: str, only: list[str] | None) -> list[Claim]:
    """The claims of a system, or those whose names begin with one of `only`."""
    claims: list[Claim] = importlib.import_module(SYSTEMS[system]).CLAIMS
    return [claim for claim in claims if only is None or claim.name.startswith(tuple(only))]


def chosen(system: str, options: argparse.Namespace) -> list[Claim]:
    """The claims that a run measures: a quick one leaves long ones out, unless they are named."""
    claims = claims_of(system, options.only)
    return [claim for claim in claims if not claim.long or not options.quick or options.only]


def around(system: str, claims: list[Claim], *, limits: bool) -> AbstractContextManager[list[str]]:
    """What a system prepares for the length of its rounds; gives what the tables say of it."""
    prepare = getattr(importlib.import_module(SYSTEMS[system]), "around", None)
    if prepare is None:
        return nullcontext([])
    prepared: AbstractContextManager[list[str]] = prepare(claims, limits=limits)
    return prepared


def run(system: str, options: argparse.Namespace) -> list[harness.Row]:
    """Measure one system and print its tables."""
    claims = chosen(system, options)
    if not claims:
        return []
    where = machine.description()
    with around(system, claims, limits=options.limits) as notes:
        series = harness.measure(claims, rounds=options.rounds, quick=options.quick)
    where["prepared"] = "; ".join(notes)
    where["load_after"] = machine.load()
    rows = [harness.row(claim, series, where) for claim in claims]
    print(f"\n{system}: {table.machine_line(where)}\n{table.environment_lines(series.values())}")
    print("".join(f"{note}\n" for note in notes), end="")
    print(f"\n{table.series_table(series.values())}{table.further_figures(series.values())}")
    tables = getattr(importlib.import_module(SYSTEMS[system]), "tables", None)
    if tables is not None:
        print(f"\n{tables(series)}", end="")
    print(f"\n{table.claims_table(rows)}\n", flush=True)
    return rows


def stop(signum: int, frame: FrameType | None) -> None:
    """End on SIGTERM as on Ctrl-C, through the clean-up."""
    raise SystemExit(128 + signum)


def main() -> int:
    """Run what the command line asks for; 1 when a row that must be could not be measured."""
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        command: Callable[[list[str]], int] = importlib.import_module(COMMANDS[sys.argv[1]]).main
        return command(sys.argv[2:])
    options = parse()
    adopt_orphans()
    signal.signal(signal.SIGTERM, stop)
    rows: list[harness.Row] = []
    try:
        for system in SYSTEMS if options.system == "all" else (options.system,):
            rows += run(system, options)
    except KeyboardInterrupt:
        print("stopped; nothing is left running", file=sys.stderr)
        return 130
    if not rows:
        print(f"no claim begins with {', '.join(options.only)}", file=sys.stderr)
        return 2
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return int(any(row["ratio"] is None and not row["optional"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
