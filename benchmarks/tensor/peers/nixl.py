"""NIXL on its UCX back end, which goes through shared memory here: reads that are prepared once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.stopwatch import Figures
from benchmarks.tensor.load import (
    IN_FLIGHT,
    TENSORS,
    Bytes,
    Puller,
    addresses,
    contents,
    destinations,
)
from benchmarks.tensor.round import pulls, stay

SERVER, CLIENT = "server", "client"
MEMORY = "DRAM"
DEVICE = 0


def serve(pipe: Connection, size: int) -> None:
    """Register the tensors, and let the agent answer."""
    tensors = contents(size)
    agent = _agent(SERVER, tensors)
    pipe.send((agent.get_agent_metadata(), addresses(tensors)))
    stay(pipe)


@contextmanager
def connect(address: tuple[bytes, list[int]], size: int) -> Iterator[Puller]:
    """Prepare each read, and one of the first tensors together; post them again and again."""
    metadata, there = address
    out = destinations(size)
    agent = _agent(CLIENT, out)
    server = agent.add_remote_agent(metadata)
    ours = _prepared(agent, "NIXL_INIT_AGENT", addresses(out), size)
    theirs = _prepared(agent, server, there, size)

    def read(numbers: list[int]) -> Any:
        return agent.make_prepped_xfer("READ", ours, numbers, theirs, numbers)

    each = [read([number]) for number in range(TENSORS)]
    together = read(list(range(IN_FLIGHT)))

    def run(handle: Any) -> None:
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        if state != "DONE":
            raise RuntimeError(f"NIXL says {state}")

    yield Puller(out, lambda number: run(each[number]), lambda: run(together))


def _agent(name: str, memory: Bytes) -> Any:
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
    agent.register_memory([(memory.ctypes.data, memory.nbytes, DEVICE, "")], MEMORY)
    return agent


def _prepared(agent: Any, name: str, where: list[int], size: int) -> Any:
    return agent.prep_xfer_dlist(name, [(each, size, DEVICE) for each in where], MEMORY)


def reads(*, wanted: list[str], seconds: float, warm_up_s: float) -> Figures:
    """The contestant."""
    return pulls(wanted, serve, connect, seconds=seconds, warm_up_s=warm_up_s)
