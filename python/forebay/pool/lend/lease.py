"""A lease: the right to use one service until it is given back, for threads or an event loop."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from forebay._steps import awaited, block
from forebay.errors import BrokenError, ClosedError, ConfigError, DeadlineError, Error, StaleError
from forebay.pool.lend.record import PythonRecord, Record, socket_of
from forebay.pool.lend.step import Steps
from forebay.pool.programs.program import ProgramRecord
from forebay.pool.service.directory import LeaseDirectory

if TYPE_CHECKING:
    import socket
    from weakref import WeakSet

    from forebay.pool.lend.branch import Branches
    from forebay.pool.lend.pool import ServicePool
    from forebay.pool.watch.follow import Follow
    from forebay.rpc import AsyncStream, Stream


class Lease:
    """One lease of one service, reached as `proxy.lease`.

    It ends with the `with` block that made it. Any use after that raises StaleError, and can never
    reach the service's next holder.
    A call that timed out, was cancelled or broke the connection makes the service *dirty*: it is
    ended rather than given back.
    Thread-safe; a service answers one call after another.

    """

    __slots__ = (
        "_directory",
        "_dirty",
        "_handle",
        "_open",
        "_pool",
        "_record",
        "_streams",
    )

    asyncio: ClassVar[bool] = False
    """Whether it was acquired by `async with`."""

    _directory: Path
    """Made when it is first asked for."""

    def __init__(self, pool: ServicePool, record: Record) -> None:
        self._pool = pool
        self._record = record
        self._open = True
        self._dirty = False
        self._streams: WeakSet[Stream | AsyncStream] | None = None
        self._handle = record.handle  # a late call must not carry that of the next lease

    def __repr__(self) -> str:
        state = "open" if self._open else "ended"
        return f"<Lease of {self._record.kind.name}, process {self.pid}, {state}>"

    @property
    def pid(self) -> int:
        """The service's process id."""
        return self._record.pid

    @property
    def generation(self) -> int:
        """A number that grows with every lease of the service's slot; every call carries it."""
        return self._handle.generation

    @property
    def stderr(self) -> str:
        """The last output of the service to stdout and stderr, at most 16 KiB.

        Waits for the keeper's answer.
        """
        self._check()
        return block(self._pool.output(self._handle), self._pool)

    def follow(self) -> Follow:
        """The lines that the service writes, as it writes them; see `Follow`.

        Example: `for line in lease.follow(): ...` or `async for line in lease.follow(): ...`
        """
        self._check()
        return self._pool.follow(self._handle)

    @property
    def directory(self) -> Path:
        """A directory of this lease's own, empty when it begins and removed after it.

        A Python service has it as `TMPDIR`, and with `chdir = True` as its current directory. A
        program does not know it unless its holder sends it the path.
        The first use asks a Python service, which answers between two calls.

        Leases that share a service (`max_leases`) share its directory; it is emptied after the last
        of them.
        """
        if not hasattr(self, "_directory"):
            self._check()
            told = block(self._own_directory(), self._pool)
            self._directory = Path(told or self.call("@directory", (), {}, None))
        return self._directory

    @property
    def socket(self) -> socket.socket:
        """The connected socket of a program, valid until the lease ends.

        Raises:
            ConfigError: it has none: it is a Python service, which is called by its methods, or
                a program that was started without `{fd}` and without `stdio=True`.
        """
        self._check()
        connected = socket_of(self._record)
        if connected is None:
            raise ConfigError(f"{self._record.kind.name} has no inherited socket to speak on")
        return connected

    def options(self, *, timeout: float | None = None) -> Any:
        """A proxy of the same service whose calls raise DeadlineError after `timeout` seconds."""
        self._check()
        return self._record.kind.proxy(self, timeout)

    def fork(
        self, count: int = 1, *, same_seed: bool = False, timeout: float | None = 30.0
    ) -> Branches:
        """Copy the service, with its state, `count` times; in milliseconds, by copy-on-write.

        The copies are forks of the service's process, made between two of its calls; each is a
        service of its own for the keeper and belongs to this program. Copies do not count against
        the pool's `max_size`, and are never lent again. They share what the service opened (files,
        sockets), but not the processes that it started.

        Args:
            count: how many.
            same_seed: keep the states of `random` and numpy's global generator; otherwise each copy
                gets new ones, and its method `reseed()` is called, where it has one.
            timeout: seconds until all of them answer; None waits for ever.

        Returns:
            A context manager that gives a list of proxies; nothing happens before it is entered.

        Raises:
            ConfigError: the lease is of a program, or `count` is below 1.

        Entering raises RemoteError (the service has threads; the message names them), DiedError (it
        ended meanwhile), DeadlineError or LimitError. Source: clone(2).
        """
        from forebay.pool.lend.branch import Branches

        self._check()
        if count < 1:
            raise ConfigError(f"fork({count}): give a number of copies, 1 or more")
        record = self._python()
        return Branches(
            self,
            (Lease, AsyncLease),
            self._pool,
            record,
            count=count,
            same_seed=same_seed,
            timeout=timeout,
        )

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Use the service for the pool: an error in the `with` block makes the lease dirty."""
        self._check()
        try:
            yield
        except BaseException as error:
            self._weigh(error)
            raise

    def submit(self, method: str, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a public method without waiting; the future is done when the service has answered.

        Raises:
            ConfigError: the lease is of a program.
        """
        self._check()
        record = self._python()
        future: Future[Any] = record.channel.submit(
            method, args, kwargs, record.kind.call_timeout, generation=self._handle.tag
        )
        future.add_done_callback(self._judge)
        return future

    def stream(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        credit: int = 16,
    ) -> Any:
        """Call a public method that is a generator, and iterate what it yields.

        A method that the class itself writes as a generator does the same on the proxy.
        Leaving the stream early, or ending the lease, closes the generator before the service does
        anything else, its reset included.

        Args:
            method: its name.
            args: positional arguments.
            kwargs: keyword arguments.
            timeout: seconds until the end of the whole stream; default: `call_timeout` of the
                limits.
            credit: items that may be made beyond those that were taken.

        Returns:
            An `rpc.Stream` on a thread's lease, an `rpc.AsyncStream` on one of an event loop.

        Raises:
            StaleError: the lease has ended; also while iterating.
            ConfigError: the lease is of a program.
        """
        self._check()
        record = self._python()
        if self._streams is None:
            from weakref import WeakSet

            self._streams = WeakSet()
        if timeout is None:
            timeout = record.kind.call_timeout
        kind: type[Any]
        if self.asyncio:
            from forebay.pool.lend.stream_asyncio import AsyncLeaseStream as kind
        else:
            from forebay.pool.lend.stream_blocking import LeaseStream as kind
        record.streamed = True
        stream = kind(
            self,
            record.channel,
            method,
            args,
            kwargs,
            timeout=timeout,
            credit=credit,
            generation=self._handle.tag,
        )
        self._streams.add(stream)
        return stream

    def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | None
    ) -> Any:
        """Call a method and wait; the methods of the proxy call this."""
        if not self._open:
            self._check()
        try:
            return self._record.channel.call(  # type: ignore[union-attr]
                name, args, kwargs, timeout=timeout, generation=self._handle.tag
            )
        except BrokenError as error:
            raise self.explain(error) from None
        except BaseException as error:
            self._weigh(error)
            raise

    def discard(self) -> None:
        """Have the service ended when the lease ends, rather than lent again.

        For reasons that only you know, such as an exchange with a program that broke off halfway.
        """
        self._check()
        self._dirty = True

    def explain(self, error: BaseException) -> BaseException:
        """Why a program broke: its death if the keeper reports it in time, else `error`."""
        self._dirty = True
        return block(self._pool.explain(self._handle, self._record.kind.name, error), self._pool)

    def close(self) -> None:
        """Give the service back, or have it ended if it is dirty. Idempotent; never waits."""
        if self._open:
            self._open = False
            for stream in self._streams or ():
                stream.close()
            self._pool.give_back(self._record, self._dirty)

    def __del__(self) -> None:
        if self._open:
            self._pool.lost(self._record)

    def program(self) -> ProgramRecord:
        """The pool's record of the program; for the modules of this package.

        Raises:
            ConfigError: the lease is of a Python service.
        """
        if not isinstance(self._record, ProgramRecord):
            raise ConfigError(f"{self._record.kind.name} is a Python service; call its methods")
        return self._record

    def check(self) -> None:
        """Raise StaleError if the lease has ended."""
        if not self._open:
            self._check()

    def _own_directory(self) -> Steps[str | None]:
        """The directory of a program's lease, which this process manages; None for others."""
        if isinstance(self._record, PythonRecord):
            return None
        service = yield from self._pool.directory(self._handle)
        own = LeaseDirectory(service)
        own.begin(self._handle.generation)
        return own.path

    def _python(self) -> PythonRecord:
        if not isinstance(self._record, PythonRecord):
            raise ConfigError(f"{self._record.kind.name} is a program; speak to it over its socket")
        return self._record

    def _check(self) -> None:
        if not self._open:
            raise StaleError(
                f"the lease of {self._record.kind.name} (process {self.pid}) has ended "
                "and its service may belong to somebody else; acquire it again"
            )

    def _weigh(self, error: BaseException | None) -> None:
        """Make the lease dirty if the call that ended with `error` may still run in the service.

        It may if its time ran out, it was cancelled, or the connection broke. It does not if the
        method raised, or nothing was sent.
        """
        left = isinstance(error, (DeadlineError, BrokenError, ClosedError))
        if left or (error is not None and not isinstance(error, Exception)):
            self._dirty = True
        limit = self._record.kind.call_timeout
        if limit is not None and isinstance(error, DeadlineError) and error.timeout == limit:
            # The call must not run until the lease ends. The next call on this lease says why.
            with contextlib.suppress(Error):
                self._pool.core.end_overdue(self._handle)
            error.add_note(
                f"its service (process {self.pid}) is ended: call_timeout of the limits of "
                f"{self._record.kind.name} is {limit:g} s; raise it, or call by options(timeout=)"
            )

    def _judge(self, future: Future[Any]) -> None:
        if future.cancelled():
            self._dirty = True
        else:
            self._weigh(future.exception())


class AsyncLease(Lease):
    """One lease that was acquired by `async with`, reached as `proxy.lease`.

    `stderr`, `directory`, `call` and `explain` are awaited; all else is as of `Lease`.

    Loop affinity: the loop that acquired it.
    """

    __slots__ = ()

    asyncio: ClassVar[bool] = True

    @property
    def stderr(self) -> Coroutine[Any, Any, str]:  # type: ignore[override]
        """The last output of the service, to be awaited. Cancellation: safe."""
        self._check()
        return awaited(self._pool.output(self._handle), self._pool)

    @property
    def directory(self) -> Coroutine[Any, Any, Path]:  # type: ignore[override]
        """The directory of this lease, to be awaited.

        Cancellation: the service will be ended, as by any call.
        """
        return self._ask_directory()

    async def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | None
    ) -> Any:
        """Call a method, and await its answer.

        Cancellation: the caller is free at once, the service will be ended.
        """
        if not self._open:
            self._check()
        try:
            return await self._record.channel.on_loop.call(  # type: ignore[union-attr]
                name, args, kwargs, timeout=timeout, generation=self._handle.tag
            )
        except BrokenError as error:
            raise await self.explain(error) from None
        except BaseException as error:
            self._weigh(error)
            raise

    async def explain(self, error: BaseException) -> BaseException:  # type: ignore[override]
        """Why a program broke, as `Lease.explain`. Cancellation: safe."""
        self._dirty = True
        steps = self._pool.explain(self._handle, self._record.kind.name, error)
        return await awaited(steps, self._pool)

    async def _ask_directory(self) -> Path:
        if not hasattr(self, "_directory"):
            self._check()
            told = await awaited(self._own_directory(), self._pool)
            self._directory = Path(told or await self.call("@directory", (), {}, None))
        return self._directory
