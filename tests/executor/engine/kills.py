"""Nodes and schedulers die while clients submit, and an account of all of it is kept."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forebay
from forebay.testing import Ledger, Verdict
from tests.executor.engine.cluster import Cluster, Node, strike
from tests.executor.serving import Serving

APP = (Path(__file__).parent / "kills_app.py").read_text()
MIX = ("once", "once", "short", "short", "short", "nap", "again", "idempotent", "long")
"""How often which request comes."""

MAY_BEGIN_AGAIN = ("again", "idempotent")
SLOW_S = 0.2
KINDS = ("worker", "stop", "node", "scheduler")
REQUESTS_A_KILL = 20
LIFE_S = 0.7
"""Something dies within this time after work was seen."""

WORK_S = 60.0
"""For work to begin after the last kill: far more than a node takes to start."""

LINGER_S = 3.0
"""For nodes to end that have lost their scheduler; then whoever runs them kills them."""

NODE_TIMEOUT_S = 2.0
SHORTEST_S = NODE_TIMEOUT_S - 1.2
"""One that is stopped for longer may be lost: it was heard of a second before, at most."""

STOPS_S = (0.3, 9.0)
TTL = "5s"
"""After which the scheduler takes a node for lost that says nothing."""

TOLD_S = 2.0
ENDS_S = 120.0
LOST = "node_lost"


@dataclass(frozen=True)
class End:
    """How a request ended, as its client was told."""

    at: float
    status: str
    cause: str


@dataclass(frozen=True)
class Run:
    """Where and when a run began."""

    node: str
    at: float


class Kills:
    """One application on a cluster of two nodes whose parts die.

    Args:
        directory: of everything.
        kills: how many.
        seed: of what dies when.
        stops_s: shortest and longest time that a node is stopped.
    """

    def __init__(
        self, directory: Path, kills: int, seed: int, stops_s: tuple[float, float] = STOPS_S
    ) -> None:
        self.ledger = Ledger(directory / "ledger")
        account = {"FOREBAY_CHAOS_LEDGER": self.ledger.path}
        ttl = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": TTL}
        self.cluster = Cluster(directory, {**account, **ttl})
        self.cluster.add("nannied", threads=3, nanny=True)
        self.cluster.add("alone", threads=3)
        self.serving = Serving(
            directory,
            APP,
            engine="dask",
            scheduler=self.cluster.address,
            node_timeout=NODE_TIMEOUT_S,
            long_workers=2,
            max_workers=5,
        )
        self.struck: Counter[str] = Counter()
        """What was done how often."""
        self.losses: dict[str, list[float]] = {node.name: [] for node in self.cluster.nodes}
        """When each node was lost."""
        self._kills = kills
        self._stops_s = stops_s
        self._chance = random.Random(seed)
        self._ends: dict[str, End] = {}
        self._watched: dict[int, int] = {}
        """A descriptor for each worker that lives, by its process."""
        self._number = 0

    async def run(self) -> None:
        """Kill, and wait until all that was submitted has ended."""
        order = [KINDS[number % len(KINDS)] for number in range(self._kills)]
        self._chance.shuffle(order)
        supervision = asyncio.create_task(self._supervise())
        try:
            async with (
                forebay.AsyncClient(f"unix://{self.serving.socket}", start=False) as client,
                asyncio.TaskGroup() as requests,
            ):
                for kind in order:
                    before = self._runs_bytes()
                    for _ in range(REQUESTS_A_KILL):
                        requests.create_task(self._request(client))
                    await self._until_work(before)
                    await asyncio.sleep(self._chance.uniform(0.0, LIFE_S))
                    self._watch()
                    await getattr(self, f"_kill_{kind}")()
                    self.struck[kind] += 1
        finally:
            supervision.cancel()
            for pid in list(self._watched):
                self._unwatch(pid)

    # Requests.

    async def _request(self, client: forebay.AsyncClient) -> None:
        self._number += 1
        name = self._chance.choice(MIX)
        key = f"{name}-{self._number}"
        seconds = self._chance.uniform(0.0, SLOW_S)
        request = await client.submit(name, arguments={"key": key, "seconds": seconds})
        max_runs = None if name in MAY_BEGIN_AGAIN else 1
        self.ledger.accepted(key, request.id, max_runs=max_runs)
        error = await request.exception(ENDS_S)
        at = time.monotonic()
        status, cause = await request.status(), str(getattr(error, "cause", "") or "")
        if error is not None and not cause:
            cause = type(error).__name__
        self._ends[key] = End(at, status, cause)
        is_right = None if error is not None else await request.result() == key
        self.ledger.ended(key, request.id, status, cause=cause, is_right=is_right)

    # What dies.

    async def _kill_worker(self) -> None:
        """The process that runs tasks; its nanny starts another one."""
        node = self._any_node()
        worker = await self._worker_of(node)
        strike(worker, signal.SIGKILL)

    async def _kill_node(self) -> None:
        """A nanny and its worker, or a worker without one."""
        node = self._any_node()
        node.kill()

    async def _kill_scheduler(self) -> None:
        """The scheduler; the nodes of it end by themselves, or are ended."""
        before = [(node, node.pid) for node in self.cluster.nodes if node.lives]
        self.cluster.scheduler.kill()
        self.cluster.scheduler.start()

        def have_ended() -> bool:
            return not any(node.lives and node.pid == pid for node, pid in before)

        with contextlib.suppress(TimeoutError):
            await self._until(have_ended, LINGER_S)
        for node, pid in before:
            if node.pid == pid:
                self._watch()  # its nanny may have started another worker meanwhile
                node.kill()

    async def _kill_stop(self) -> None:
        """A node is stopped, and goes on."""
        node = self._any_node()
        worker = await self._worker_of(node)
        stopped = self._chance.uniform(*self._stops_s)
        strike(worker, signal.SIGSTOP)
        began = time.monotonic()
        if stopped > SHORTEST_S:
            self.losses[node.name].append(began + NODE_TIMEOUT_S)
        await asyncio.sleep(stopped)
        strike(worker, signal.SIGCONT)  # unless its nanny has killed it

    def _any_node(self) -> Node:
        return self._chance.choice(self.cluster.nodes)

    async def _worker_of(self, node: Node) -> int:
        await self._until(lambda: node.worker is not None, WORK_S)
        worker = node.worker
        assert worker is not None
        self._watch()
        return worker

    async def _supervise(self) -> None:
        """Start nodes again that have ended, as whoever runs a cluster does."""
        while True:
            for node in self.cluster.nodes:
                if not node.lives:
                    node.start()
            self._watch()
            await asyncio.sleep(0.1)

    # When nodes are lost.

    def _watch(self) -> None:
        """Have the deaths of workers noted."""
        loop = asyncio.get_running_loop()
        for node in self.cluster.nodes:
            worker = node.worker
            if worker is None or worker in self._watched:
                continue
            with contextlib.suppress(ProcessLookupError):
                self._watched[worker] = os.pidfd_open(worker)
                loop.add_reader(self._watched[worker], self._died, node.name, worker)

    def _died(self, node: str, worker: int) -> None:
        self.losses[node].append(time.monotonic())
        self._unwatch(worker)

    def _unwatch(self, worker: int) -> None:
        watched = self._watched.pop(worker)
        asyncio.get_running_loop().remove_reader(watched)
        os.close(watched)

    async def _until_work(self, before: int) -> None:
        """Until more runs have begun than that many bytes tell of."""
        await self._until(lambda: self._runs_bytes() > before, WORK_S)

    async def _until(self, found: Callable[[], Any], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not found():
            if time.monotonic() > deadline:
                raise TimeoutError("it has not come in time")
            await asyncio.sleep(0.02)

    def _runs_bytes(self) -> int:
        try:
            return os.stat(f"{self.ledger.path}.runs").st_size
        except FileNotFoundError:
            return 0

    # What came of it.

    def verdict(self) -> Verdict:
        """Of the ledger; what may begin again has ended well."""
        verdict = self.ledger.verdict(
            may_end=lambda status, cause: (status, cause) == ("failed", LOST), counts_runs=True
        )
        verdict.wrong.extend(
            f"{key}: may begin again, and ended as {end.status}"
            for key, end in self._ends.items()
            if key.startswith(MAY_BEGIN_AGAIN) and end.status != "succeeded"
        )
        return verdict

    def delays(self) -> dict[str, float]:
        """For each request that ended with its node: seconds from the loss until it was told."""
        runs = self._last_runs()
        return {
            key: end.at - self._loss(runs.get(key), end.at)
            for key, end in self._ends.items()
            if end.cause == LOST
        }

    def _last_runs(self) -> dict[str, Run]:
        found: dict[str, Run] = {}
        for line in Path(f"{self.ledger.path}.runs").read_text().splitlines():
            key, _, node, at = line.split()
            found[key] = Run(node, float(at))
        return found

    def _loss(self, run: Run | None, told: float) -> float:
        """When that was lost which ran it: the first loss of its node since it began."""
        if run is None:  # sent, and not begun: on one or the other
            return max((at for one in self.losses.values() for at in one if at < told), default=0)
        return min((at for at in self.losses[run.node] if at > run.at), default=0)
