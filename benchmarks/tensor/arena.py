"""A block of the arena against memory that is mapped and registered for one use; a loop in Rust."""

from __future__ import annotations

from benchmarks.claim import Claim, Contestant
from benchmarks.stopwatch import Figures
from benchmarks.tensor.programs import COST, run

FIGURE = "mean"  # of 64 KiB


def arena() -> Figures:
    """Allocate and free in the arena."""
    return {FIGURE: run(COST)["arena_ns"]}


def fresh() -> Figures:
    """Map, register, unregister, unmap."""
    return {FIGURE: run(COST)["fresh_ns"]}


CLAIMS = [
    Claim(
        "tensor.arena.alloc.vs_mmap_register",
        Contestant("arena, allocate and free", "benchmarks.tensor.arena:arena"),
        Contestant("map, register, unregister, unmap", "benchmarks.tensor.arena:fresh"),
        *(FIGURE, "ns"),
    )
]
