"""Echoes of a hundred busy connections, with 9,900 idle ones beside them and without."""

from __future__ import annotations

from typing import Any

from benchmarks.claim import Claim
from benchmarks.machine import raise_open_files
from benchmarks.stopwatch import Figures
from benchmarks.transport.contestants import FOREBAY, System
from benchmarks.transport.processes import Children, call, serve
from benchmarks.transport.round import exchanges, measure, nothing, shapes
from benchmarks.transport.side import side
from benchmarks.transport.work import echo

BUSY, ALL = 100, 10_000
HOLDERS = 2  # processes that the idle ones come from


def echoes_beside_idle(
    *,
    wanted: list[str],
    name: str,
    busy: int,
    idle: int,
    seconds: float,
    warm_up_s: float,
    **options: Any,
) -> Figures:
    """Echoes of every message in `wanted` on busy connections of one process."""
    raise_open_files()
    contestant = side(name, options)
    figures: Figures = {}
    with Children() as children:
        address = children.start(serve, contestant, echo, nothing).reply()
        share = [address] * (idle // HOLDERS)
        holders = [children.start(call, contestant, share) for _ in range(HOLDERS)]
        held = sum(holder.reply() for holder in holders)
        if held != idle:
            raise ValueError(f"{held} idle connections, not {idle}")
        caller = children.start(call, contestant, [address] * busy)
        caller.reply()
        times = {"seconds": seconds, "warm_up_s": warm_up_s}
        for message in shapes(wanted):
            figures |= measure(children, [caller], exchanges, message, **times)
    return figures


def _row(name: str, system: System) -> Claim:
    many, few = (
        system.contestant(
            f"{BUSY} of {total:,}",
            "benchmarks.transport.scale:echoes_beside_idle",
            busy=BUSY,
            idle=total - BUSY,
        )
        for total in (ALL, BUSY)
    )
    return Claim(f"transport.{name}", many, few, "1e3/rate", "requests/s", higher_is_better=True)


CLAIMS = [_row("scale.conn_10000.vs_100", FOREBAY)]
