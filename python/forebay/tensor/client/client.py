"""The blocking face of the tensor client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, Self

from forebay import _forks
from forebay._numpy import Array
from forebay.configuration import find_configuration
from forebay.errors import ConfigError, StaleError
from forebay.tensor.client import futures, verbs
from forebay.tensor.client.blocking import each, run
from forebay.tensor.client.calls import METHODS, Calls, Make
from forebay.tensor.client.loops import Loops
from forebay.tensor.client.plan import PullPlan
from forebay.tensor.client.shards import Settings, Shards, summed
from forebay.tensor.client.shm import pull_few, pull_shm
from forebay.tensor.prepare.ref import TensorRef
from forebay.tensor.prepare.work import Op, Work, check_versions
from forebay.tensor.server.addresses import addresses, chosen

if TYPE_CHECKING:
    from forebay.memory import Arena
    from forebay.tensor.client.async_client import AsyncTensorClient
    from forebay.transport import Tls

__all__ = ["TensorClient"]

Name = str | TensorRef


class TensorClient:
    """Pulls rows of a server's tensors, and pushes rows to them.

    Connects on first use, and again after a server restarted. Names are looked up once, and again
    after a tensor was replaced or its server restarted.
    With several shards each holds a range of the rows, in the order of the URLs; callers see whole
    tensors.

    Memory that is given (`out`, `values`, arrays of rows) is lent until the call has returned, or
    its future is done. Where a call ends early (deadline, cancel, Ctrl-C), the client keeps what a
    server may still write from reuse until it cannot, so an `out` of such a call is not to be
    read as if it were filled.

    Threads: any, also at once; one waits for the sockets and the others for it. A forked child gets
    `StaleError` and makes a client of its own.
    `with` closes the client at the end. `async with` gives the asyncio face, `AsyncTensorClient`:
    one for each event loop, with connections of its own, which close when the last task of that
    loop leaves. The last task of all to leave closes the client, with what its threads use.

    Args:
        url: `tcp://host:port`, `tls://host:port` or `unix:///path`; `verbs://host:port` is tcp, and
            fabric "verbs". With `shards`, that of all:
            `{shard}` in it is each one's number, else each has the port after the one before.
            Or a list with the URL of each.
        shards: how many there are; 1 unless given, or the length of the list.
        arena: where results without `out` are made; elsewhere in memory if left out. An array
            keeps its block of the arena; with its last view the memory goes back.
        slots: requests with each shard at once, 1 to 1024; default 16.
        tls: whom to believe, by `transport.Tls.client`; for `tls://` alone.
        token: what the server asks for, if it does.
        piece_bytes: longer pulls and pushes go in pieces; text such as "1MiB" or bytes.
        fabric: "auto" reads the tensors of a server on the same host and of the same user from its
            memory, without the server taking part; of another server it has slices of rows
            written into `arena` by RDMA verbs, where both have a device; and everything else goes
            over the connection. "verbs" is that without the memory, and refused where it cannot
            be; "stream" has everything go over the connection. Default "auto".
        connect_timeout: seconds for connecting, or text with a unit; default 10. Meanwhile a
            server that does not listen yet is tried again, so it may be started later.
        liveness: a server that is silent for so many seconds while something is outstanding is
            given up; default 5.

    What is left out comes from the configuration (`FOREBAY_TENSOR_...`, `forebay.toml`).

    Raises:
        ConfigError: a setting or a URL is wrong, or verbs cannot be used here; the message has
            what is missing.

    Every method that waits raises, besides its own:
        BrokenError: a server cannot be reached, asks for another token, died, or was silent; the
            message names it, and `.delivered` says whether pushes may have been applied.
        DeadlineError: `timeout` seconds have passed, with those of connecting and looking names up.
        StaleError: a tensor was dropped or replaced; its next use looks the name up again.
        ClosedError: the client was closed.
        ProtocolError: the other side is no tensor server, or lies.
        LimitError: a limit was reached, such as 65,536 pulls that wait, or a full arena.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        shards: int | None = None,
        arena: Arena | None = None,
        slots: int | None = None,
        tls: Tls | None = None,
        token: str | bytes | None = None,
        piece_bytes: str | int | None = None,
        fabric: str | None = None,
        connect_timeout: str | float | None = None,
        liveness: str | float | None = None,
    ) -> None:
        url, fabric = chosen(url, fabric)
        config = find_configuration(
            {
                "tensor.slots": slots,
                "tensor.piece_bytes": piece_bytes,
                "tensor.fabric": fabric,
                "tensor.connect_timeout": connect_timeout,
                "tensor.liveness": liveness,
            }
        ).tensor
        verbs.check(config, arena)
        self._calls = Calls(arena)
        self._settings = Settings(addresses(url, shards), config, tls, token, arena)
        self._shards = Shards(self._settings)
        self._loops = Loops()
        self._futures: futures.Futures | None = None
        _forks.watch(self)

    @property
    def arena(self) -> Arena | None:
        """Where results without `out` are made."""
        return self._calls.arena

    @property
    def urls(self) -> tuple[str, ...]:
        """Where the shards are, the first row's first."""
        return tuple(self._settings.urls)

    def tensor(self, name: str, *, timeout: float | None = None) -> TensorRef:
        """Look a tensor up: its dtype and shape, and a handle to give in place of its name.

        Args:
            name: of the tensor.
            timeout: seconds.

        Raises:
            ConfigError: no tensor has that name; the message lists the nearest names.
        """
        self._shards.names(name, timeout)
        ref = self._shards.table.ref(name)
        if ref is None:
            raise StaleError(f"tensor {name!r} was replaced while it was looked up; try again")
        return ref

    def pull(
        self,
        tensor: Name,
        rows: Any = None,
        out: Array | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Pull rows of a tensor, all of one version at each shard.

        Args:
            tensor: its name, or what `tensor()` returned.
            rows: a slice, a row, or an array of rows of any shape, as numpy indexes a first axis:
                negative ones count from the end, repeated ones come repeatedly. None: all.
            out: a writable C-contiguous array of the tensor's dtype, and of the shape that
                `tensor[rows]` would have in numpy; made in the arena if left out.
            timeout: seconds.

        Returns:
            `out`, or an array of that shape.

        Raises:
            ConfigError: there is no such tensor, `rows` are no integers, or `out` does not fit;
                OutOfRangeError: a row that there is not. Nothing was asked.

        Cost: one round trip; a row number is 8 bytes on the way there, a slice none. From shared
        memory a microsecond and the copy, up to 256 KiB with the GIL.
        """
        link = self._shards.shm_link
        if link is not None:
            found = pull_shm(link, self._shards.table, tensor, rows, out, self._calls.arena)
            if found is not None:
                return found
        return self._run(self._calls.pull(tensor, rows, out), timeout)[0]

    def push(
        self,
        tensor: Name,
        rows: Any,
        values: Any,
        op: Op = "set",
        *,
        timeout: float | None = None,
    ) -> None:
        """Replace rows of a tensor, or add to them; applied when this returns.

        Args:
            tensor: as `pull`.
            rows: as `pull`.
            values: of the tensor's dtype, and of the shape that `tensor[rows]` has or broadcasts
                from.
            op: "set"; or "add", which adds a repeated row as often as it is there, like
                `numpy.add.at`, for numbers of the machine's byte order.
            timeout: seconds.

        Raises:
            ConfigError: as `pull`; or the values do not fit, or cannot be added.

        A push of one request (`piece_bytes`, one shard) is applied wholly or not at all.
        """
        self._run(self._calls.push(tensor, rows, values, op), timeout)

    def pull_many(
        self,
        pulls: Iterable[Any],
        *,
        versions: Any = None,
        timeout: float | None = None,
    ) -> list[Any]:
        """Pull several; what is ready when a slot is free travels in one request.

        Args:
            pulls: (tensor, rows, out) each, as of `pull`; (tensor, rows), or a tensor alone.
            versions: uint64 array of shape (n,) for the version of each tensor that its rows are
                of, with several shards the latest of them.
            timeout: seconds, for all together.

        Returns:
            The arrays, in the order of the pulls.

        Raises:
            As `pull`, of the first that failed, once all have ended; with a note that names it.
        """
        link = self._shards.shm_link
        if link is not None and versions is None:
            pulls = tuple(pulls)
            found = pull_few(link, self._shards.table, pulls, self._calls.arena)
            if found is not None:
                return found
        return self._run(self._calls.pull_many(pulls), timeout, versions)

    def push_many(
        self,
        pushes: Iterable[Any],
        *,
        versions: Any = None,
        timeout: float | None = None,
    ) -> None:
        """Push several: (tensor, rows, values, op) each, or without the op, as of `push`.

        They may be applied in any order. `versions` and errors as of `pull_many`.
        """
        self._run(self._calls.push_many(pushes), timeout, versions)

    def pull_each(
        self, pulls: Iterable[Any], *, timeout: float | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Pull several, and give each as soon as it is there.

        Args:
            pulls: as `pull_many`.
            timeout: seconds, for all together.

        Yields:
            The number of the pull, and its array.

        Raises:
            As `pull`, of the one whose turn it is. That cancels the rest, as leaving early does.
        """
        shards = self._shards
        work, links, timeout = shards.ready(self._calls.pull_many(pulls), timeout)
        return _with_checked_outs(work, each(self, work, links, timeout))

    def plan(self, pulls: Iterable[Any], *, timeout: float | None = None) -> PullPlan:
        """Prepare pulls that are made again and again: then they cost one call of the core.

        Args:
            pulls: as `pull_many`. Arrays of rows have to be int64 or uint64, contiguous, without
                negative ones: they are read each time. Result arrays are made once.
            timeout: seconds, for looking the names up.
        """
        plan = PullPlan(self, pulls, self._calls.arena)
        plan.prepare(timeout)
        return plan

    def submit(
        self,
        method: Literal["pull", "push", "pull_many", "push_many"],
        *arguments: Any,
        timeout: float | None = None,
        **options: Any,
    ) -> Future[Any]:
        """Begin a method; one thread completes the futures of all clients of the process.

        Args:
            method: its name.
            arguments: as the method has them.
            timeout: seconds.
            options: as the method has them, without `versions`.

        Returns:
            A future of what the method returns. `cancel` works until it is done: it lets go of
            the waiter, and memory is kept until no server writes it.

        Raises:
            As the method, for what is wrong before anything is sent; the first use of a name waits
            here for its look-up.
        """
        if method not in METHODS:
            raise ConfigError(
                f"there is no method {method!r} to submit; give one of {', '.join(METHODS)}"
            )
        make = getattr(self._calls, method)(*arguments, **options)
        work, links, timeout = self._shards.ready(make, timeout)
        futures = self._enter()
        try:
            return futures.submit(self, work, links, timeout, single=method == "pull")
        except ConfigError:
            work.check_outs()
            raise

    def metrics(self) -> dict[str, Any]:
        """What the connections of threads and futures have: outstanding, waiting, bytes.

        Keys: connections, outstanding, waiting, sent_bytes, received_bytes; shm_pulls and shm_bytes
        of what came from shared memory; how often pulls did not: shm_busy (the owner wrote each
        time), shm_stale (the tensor was dropped or replaced), shm_elsewhere (it does not lie in the
        server's arena). shm_chunks: pieces of servers' arenas that are mapped now. verbs_pulls and
        verbs_bytes of what came over verbs, and verbs_refused, which took the connection instead.
        fabric: "shm", "verbs", or "stream: " and why neither; "none: " before the first call.
        """
        return summed(self._shards.metrics())

    def close(self) -> None:
        """Close the connections; what is outstanding ends with `ClosedError`. Idempotent."""
        self._shards.close()
        futures, self._futures = self._futures, None
        if futures is not None:
            futures.leave()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.close()

    async def __aenter__(self) -> AsyncTensorClient:
        """Return the client's asyncio face for the running loop, the same for all of its tasks."""
        self._shards.refuse_over()
        return self._loops.enter(self)

    async def __aexit__(self, *_: object) -> None:
        """Leave the loop; see the class for what that closes."""
        if not await self._loops.leave():
            return
        if self._futures is None:
            self.close()
        else:
            from asyncio import to_thread

            # Closing waits for the thread of futures, whose callbacks may wait for this loop.
            await to_thread(self.close)

    def _enter(self) -> futures.Futures:
        """The thread of futures, which this client uses from now on."""
        return self._futures or futures.enter(self)

    def _run(self, make: Make, timeout: float | None, versions: Any = None) -> list[Any]:
        work, links, timeout = self._shards.ready(make, timeout)
        if versions is not None:
            check_versions(versions, len(work.arrays))
        try:
            run(self, work, links, timeout, versions)
        except ConfigError:
            work.check_outs()
            raise
        return work.arrays

    def _forget(self) -> tuple[object, ...]:
        """In a forked child: refuse everything; returns what must not be dropped there."""
        before = (self._futures, self._loops, self._shards.forget())
        self._futures, self._loops = None, Loops()
        return before

    def __repr__(self) -> str:
        return f"<TensorClient of {', '.join(self._settings.urls)}>"


def _with_checked_outs(work: Work, items: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    try:
        yield from items
    except ConfigError:
        work.check_outs()
        raise
