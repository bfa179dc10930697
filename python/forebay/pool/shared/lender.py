"""The process that lends services to all programs of a user: what `forebay serve` runs."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
from typing import Self

from forebay import _core
from forebay.config import PoolConfig
from forebay.errors import ConfigError
from forebay.pool.lend.keeper import start_keeper
from forebay.pool.shared.path import shared_path

DESCRIPTORS = 8192
"""Enough for 256 programs and 2,048 services; services inherit the limit, so it is not endless."""

COUNT_MAX = 1_000_000
"""A count above this is a mistake; more services than a keeper can own are refused by the core."""

_log = logging.getLogger(__name__)


class Lender:
    """One pool, lent to every program of this user that connects to its socket.

    Args:
        path: where to listen; default: `FOREBAY_POOL_PATH`, else the usual place of this user.
            Its directory is made, for this user alone (0700), where it is missing.
        config: sizes and times, as of any pool; `max_size` and `max_running` count all kinds and
            all programs. `min_idle` is kept by the programs that have used a kind, for as long as
            they run; `leak_after` has each program report its own leases.
        max_leases: services that one program may hold at once; what it asks for above that waits
            until it gives one back. Default: `max_size`.
        max_waiters: requests of one program that may wait at once; one more is refused.

    Raises:
        ConfigError: a limit is below 1; another process lends there (the message names it), or the
            directory is not this user's alone.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        config: PoolConfig | None = None,
        max_leases: int | None = None,
        max_waiters: int = 1024,
    ) -> None:
        self.path = shared_path(path)
        self.config = PoolConfig() if config is None else config
        max_size = min(self.config.max_size, COUNT_MAX)
        max_leases = max_size if max_leases is None else max_leases
        for name, value in (("max_leases", max_leases), ("max_waiters", max_waiters)):
            if not 1 <= value <= COUNT_MAX:
                raise ConfigError(f"{name} is {value}; give a number between 1 and {COUNT_MAX}")
        _raise_descriptor_limit()
        self._wake, self._stop = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._core = _core.Lender(
                self.path,
                wake=os.dup(self._wake),
                config={
                    "max_size": max_size,
                    "max_running": min(self.config.max_running, max_size),
                    "max_uses": min(self.config.max_uses, COUNT_MAX),
                    "lifetime_ms": int(self.config.max_lifetime * 1000),
                    "private_bytes_max": self.config.max_memory,
                    "spares": min(self.config.spares, COUNT_MAX),
                    "leases_max": max_leases,
                    "waiters_max": max_waiters,
                    "start_ms": int(self.config.start_timeout * 1000),
                    "idle_ms": int(self.config.idle_timeout * 1000),
                    "ping_after_ms": int(self.config.ping_after * 1000),
                    "canary_every": min(self.config.canary_every, COUNT_MAX),
                    "min_idle": min(self.config.min_idle, max_size),
                    "leak_after_ms": int(self.config.leak_after * 1000),
                    "reset_ms": int(self.config.reset_timeout * 1000),
                },
            )
        except BaseException:
            self._close_pipe()
            raise

    @property
    def stop_fd(self) -> int:
        """A descriptor; a byte written to it makes `serve` return. For `signal.set_wakeup_fd`."""
        return self._stop

    def serve(self) -> None:
        """Serve until a byte comes to `stop_fd`, or a signal handler raises. Without the GIL."""
        while (turn := self._core.run()) is not False:
            if isinstance(turn, str):
                _log.warning("%s", turn)
                continue
            process = start_keeper(self._core)  # type: ignore[arg-type]
            if process is not None:
                self._core.attach(process)
        with contextlib.suppress(BlockingIOError):  # come back for a signal alone
            os.read(self._wake, 4096)

    def stop_listening(self) -> None:
        """Lend on to the programs that are connected, and let another lender have the path.

        In the thread that calls `serve`, between two calls.
        """
        self._core.stop_listening()

    def close(self, timeout: float = 5.0) -> None:
        """End every service, wait at most `timeout` seconds, remove the socket. Idempotent."""
        self._core.close(timeout)
        self._close_pipe()

    def _close_pipe(self) -> None:
        pipe, self._wake, self._stop = (self._wake, self._stop), -1, -1
        for descriptor in pipe:
            if descriptor >= 0:
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _raise_descriptor_limit() -> None:
    """Two descriptors for each program, three for each service: more than the usual 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
