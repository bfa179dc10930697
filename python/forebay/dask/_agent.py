"""The agent: a client of a Dask cluster that submits a task for each worker that is wanted.

A stand-in connects to its Unix socket, sends its order in a line, another line once its worker is
ready, and stays connected as long as the worker is wanted. Until that second line the task is
submitted again whenever it was lost or has ended; its error is answered in a line. The program ends
with its stdin.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import secrets
import socket
import ssl
import sys
import time
from collections.abc import Awaitable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from dask.system import CPU_COUNT
from distributed import Client, KilledWorker, LocalCluster, Scheduler, get_worker, secede
from distributed.comm.addressing import get_address_host
from distributed.comm.core import CommClosedError

from forebay._runtime_directory import make_private
from forebay.errors import ConfigError
from forebay.executor._internal import run_worker

__all__ = ["run_task"]

CONNECT_S: Final = 10.0
"""For the first connection to a scheduler."""

LOST: Final = (CancelledError, CommClosedError, KilledWorker)
"""The scheduler is gone, and tasks with it; so many nodes of a task were that it is given up."""

FIRST_NODE_S: Final = 5.0
"""For the first node of a cluster that is only starting."""

AGAIN_S: Final = 0.5
"""Between two tries to reach a scheduler that was lost."""

LOOK_S: Final = 1.0
"""Between two looks at the agent's own socket."""

SIZE_S: Final = 2.0
"""Between two looks at the size of the cluster."""

WARN_S: Final = 30.0
"""Between two warnings that it is not reached."""

THREADS: Final = 8
"""Of each process of a cluster that is started here: so many workers of the application."""

ENCRYPTED: Final = ("tls", "forebay+tls")
"""Schemes of clusters with TLS."""

OUTPUT: Final = 3
"""The descriptor of what is told to the server."""

PROTOCOL: Final = "forebay+unix"
"""Of such a cluster: sockets of this user, so that no other one gives it work."""


def run_task(order: dict[str, Any]) -> str | None:
    """What a task is: a worker of the application, in a thread of a Dask worker.

    Once something that it runs waits for children, its thread is the cluster's again.

    Args:
        order: as `Order.told` gives it; a node of another version refuses it.

    Returns:
        As `run_worker`.
    """
    worker = get_worker()

    def tls() -> ssl.SSLContext:
        context: ssl.SSLContext = worker.security.get_connection_args("worker")["ssl_context"]
        return context

    return run_worker(order, tls, secede, worker.local_directory)


class Cluster:
    """The cluster, as long as this process lives; it is found again where it was lost.

    Args:
        address: of its scheduler; empty: one is started here.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._local: LocalCluster | None = None
        self._client: Client | None = None
        self._lock = asyncio.Lock()
        self._size: dict[str, Any] = {}
        """What was told of it last."""

    async def start(self) -> dict[str, Any]:
        """Connect, or start it; what it is."""
        if not self._address:
            self._local = await LocalCluster(
                n_workers=CPU_COUNT,
                threads_per_worker=THREADS,
                protocol=PROTOCOL,
                dashboard_address="127.0.0.1:0",
                asynchronous=True,
            )
            self._address = self._local.scheduler_address
        client = await self._connect()
        with contextlib.suppress(TimeoutError):  # they come later
            await cast(Awaitable[None], client.wait_for_workers(1, timeout=FIRST_NODE_S))
        self._size = await self._measure(client)
        return self._size | {
            "is_here": self._local is not None,
            "certificates": _certificates(client.security) if self._is_encrypted else None,
        }

    async def watch(self) -> None:
        """Tell the server whenever it has another size, until cancelled.

        Nothing is told of one without nodes: its workers wait for the next.
        """
        while True:
            await asyncio.sleep(SIZE_S)
            client = self._client
            if client is None or client.status != "running":
                continue
            try:
                async with asyncio.timeout(CONNECT_S):
                    size = await self._measure(client)
            except Exception:  # whatever says that its scheduler was lost
                continue
            if size["threads"] and size != self._size:
                self._size = size
                say(**size)

    async def _measure(self, client: Client) -> dict[str, Any]:
        nodes, threads, memory = await client.run_on_scheduler(_totals)
        node = "node" if nodes == 1 else "nodes"
        return {
            "text": f"the Dask cluster at {self._address} ({nodes} {node}, {threads} threads)",
            "memory_bytes": memory,
            "threads": threads,
        }

    @property
    def _is_encrypted(self) -> bool:
        return urlsplit(self._address).scheme in ENCRYPTED

    @property
    def address(self) -> str:
        """Of its scheduler."""
        return self._address

    async def client(self) -> Client:
        """A client that is connected; waits until there is a scheduler."""
        async with self._lock:
            warned = -math.inf
            while self._client is None or self._client.status != "running":
                try:
                    await self._connect()
                except (OSError, TimeoutError, CommClosedError) as error:
                    if time.monotonic() - warned > WARN_S:
                        warned = time.monotonic()
                        say(
                            warning=f"the Dask scheduler at {self._address} is not reached, and"
                            f" requests wait: {error}"
                        )
                    await asyncio.sleep(AGAIN_S)
            return self._client

    async def close(self) -> None:
        """Let go of it; one that was started here ends."""
        if self._client is not None:
            with contextlib.suppress(Exception):  # it may be lost
                await self._client.close()
        if self._local is not None:
            await cast(Awaitable[None], self._local.close())

    async def _connect(self) -> Client:
        before, self._client = self._client, None
        if before is not None:
            with contextlib.suppress(Exception):  # it is lost
                await before.close()
        security = {} if self._local is None else {"security": self._local.security}
        self._client = await Client(
            self._address, asynchronous=True, timeout=CONNECT_S, set_as_default=False, **security
        )
        return self._client


def _totals(dask_scheduler: Scheduler) -> tuple[int, int, int]:
    """Nodes, threads and bytes of memory of a cluster; run in its scheduler."""
    workers = dask_scheduler.workers.values()
    threads = sum(worker.nthreads for worker in workers)
    return len(workers), threads, sum(worker.memory_limit or 0 for worker in workers)


def _certificates(security: Any) -> dict[str, str]:
    """The files of a client's TLS.

    Raises:
        ValueError: they are not in files.
    """
    files = {
        "ca": security.tls_ca_file,
        "cert": security.tls_client_cert,
        "key": security.tls_client_key or security.tls_client_cert,
    }
    for name, file in files.items():
        if not file or "\n" in file:
            raise ValueError(f"the {name} of distributed.comm.tls is no path of a file")
    return files


class Agent:
    """Answers stand-ins."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Have a task for a stand-in until it has gone."""
        line = await reader.readline()
        if not line:  # it has gone before it asked
            writer.close()
            return
        is_placed = asyncio.Event()
        asked = asyncio.create_task(self._keep(line, is_placed))
        left = asyncio.create_task(_until_left(reader, is_placed))
        try:
            await asyncio.wait((asked, left), return_when=asyncio.FIRST_COMPLETED)
            if not left.done() and (error := asked.result()) is not None:
                writer.write(json.dumps({"error": error}).encode() + b"\n")
                await writer.drain()
            await left
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            for task in (asked, left):
                task.cancel()
            writer.close()

    async def _keep(self, line: bytes, is_placed: asyncio.Event) -> str | None:
        """Have a task run to its end; why that cannot be.

        One that was lost or has ended before its worker was ready is submitted again.
        """
        order = json.loads(line)
        name = f"forebay-worker-{secrets.token_hex(8)}"
        tries = 0
        while not is_placed.is_set():
            tries += 1
            client: Client | None = None
            try:
                client = await self._cluster.client()
                reason = await _submitted(client, order, f"{name}-{tries}")
                if reason is not None:
                    return reason
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
            except Exception as error:  # whatever the cluster, or the task there, says
                if client is None or (client.status == "running" and not isinstance(error, LOST)):
                    return f"the Dask cluster at {self._cluster.address} runs no worker: {error!r}"
            await asyncio.sleep(AGAIN_S)
        return None


async def _until_left(reader: asyncio.StreamReader, is_placed: asyncio.Event) -> None:
    """Until a stand-in has gone; it says so with a line when its worker is ready."""
    if await reader.readline():
        is_placed.set()
    await reader.read()


async def _submitted(client: Client, order: dict[str, Any], key: str) -> str | None:
    """Have a task run to its end; what it returns. It is withdrawn if this is cancelled."""
    future = client.submit(run_task, order, key=key, pure=False)
    try:
        reason: str | None = await future
        return reason
    finally:
        future.release()


class AgentSocket:
    """The agent's socket, which is made again where a clean-up has removed it.

    Args:
        path: the socket.
        agent: answers who comes.
    """

    def __init__(self, path: Path, agent: Agent) -> None:
        self._path = path
        self._agent = agent
        self._server: asyncio.Server | None = None
        self._identity = (0, 0)

    async def open(self) -> None:
        """Listen, in the place of an agent of this server that was killed."""
        make_private(self._path.parent)
        with socket.socket(socket.AF_UNIX) as listener:
            self._path.unlink(missing_ok=True)
            listener.bind(str(self._path))
            self._path.chmod(0o600)
            self._identity = self._found()
            before, self._server = self._server, None
            if before is not None:
                before.close()
            self._server = await asyncio.start_unix_server(self._agent.answer, sock=listener.dup())

    async def keep(self) -> None:
        """Look after it until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._found() != self._identity:
                with contextlib.suppress(OSError, ConfigError):  # next time
                    await self.open()

    def close(self) -> None:
        """Listen no more, and remove it."""
        if self._server is not None:
            self._server.close()
        if self._found() == self._identity:
            self._path.unlink()

    def _found(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_dev, found.st_ino


def say(**told: Any) -> None:
    """Tell the server."""
    os.write(OUTPUT, json.dumps(told).encode() + b"\n")


def _own_host(address: str) -> str:
    """The address of this machine by which the cluster reaches it."""
    host = get_address_host(address) if "unix" not in urlsplit(address).scheme else "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        return str(probe.getsockname()[0])


async def _serve(given: dict[str, Any]) -> None:
    cluster = Cluster(given["scheduler"])
    loop, serving = asyncio.get_running_loop(), asyncio.create_task(_answer(given, cluster))

    def end() -> None:
        loop.remove_reader(0)
        serving.cancel()

    loop.add_reader(0, end)  # also while it starts
    await asyncio.wait((serving,))
    await cluster.close()
    if not serving.cancelled():
        serving.result()


async def _answer(given: dict[str, Any], cluster: Cluster) -> None:
    """Have the cluster, and answer stand-ins until this is cancelled, or the cluster refuses."""
    try:
        told = await cluster.start()
        told["host"] = given["host"] or _own_host(cluster.address)
        # Nodes on this machine share its memory.
        told["is_here"] = told["is_here"] or told["host"].startswith("127.")
    except Exception as error:  # whatever a scheduler says, as one without forebay does
        say(
            error=f"the Dask cluster at {given['scheduler'] or 'this machine'} cannot be used:"
            f" {error!r}; start one with dask scheduler and dask worker, with forebay[dask]"
            " installed for all of them, or leave --scheduler out"
        )
        return
    listener = AgentSocket(Path(given["socket"]), Agent(cluster))
    await listener.open()
    say(**told)
    try:
        await asyncio.gather(listener.keep(), cluster.watch())
    finally:
        listener.close()


def main() -> None:
    """Serve stand-ins until stdin ends."""
    os.dup2(1, OUTPUT, inheritable=False)
    os.dup2(2, 1)  # what libraries print is not for the server
    logging.getLogger("distributed").setLevel(logging.WARNING)  # each end of a comm is told below
    asyncio.run(_serve(json.loads(sys.argv[1])))


if __name__ == "__main__":
    # Under its own name, by which the nodes import the task.
    from forebay.dask._agent import main as serve

    serve()
