"""Pulls on one machine, where the requester reads the owner's memory."""

from __future__ import annotations

from benchmarks.tensor.tcp import contestant, row

FOREBAY = contestant("forebay, shared memory", "benchmarks.tensor.forebay:shared_memory")
COPY = contestant("np.copyto from SharedMemory", "benchmarks.tensor.peers.copy:copies", "main")
NIXL = contestant("NIXL, UCX", "benchmarks.tensor.peers.nixl:reads", "nixl")

CLAIMS = [
    row("shm.64k.pull.vs_numpy_copy", FOREBAY, COPY, figure="p50"),
    row("shm.1m.pull.vs_numpy_copy", FOREBAY, COPY, figure="p50"),
    row("shm.64k.x16.vs_nixl", FOREBAY, NIXL, optional=True),
]
