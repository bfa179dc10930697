"""The settings of the systems, with sizes and times as people write them.

A size or a time that is configured may be a number, in bytes or seconds, or text with a unit.
The units are exact: `KB` is 1,000 bytes, `KiB` is 1,024.
Where a setting comes from (environment, files) is the business of `forebay.configuration`.
"""

from __future__ import annotations

import math
import operator
import os
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Self

from forebay.errors import ConfigError

__all__ = [
    "BlockioConfig",
    "ExecutorConfig",
    "GatewayConfig",
    "PoolConfig",
    "TensorConfig",
    "parse_bytes",
    "parse_seconds",
]

BYTES_MAX: Final = 2**63 - 1
"""The largest size, which every counter of bytes holds."""

_BYTES: Final = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_SECONDS: Final = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_QUANTITY: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", re.ASCII)


def parse_bytes(text: str | int) -> int:
    """Turn a size such as "300MB" into bytes.

    Args:
        text: a number and one of the units B, KB, MB, GB, KiB, MiB, GiB, as in "1.5GiB" or
            "300 MB"; or a whole number of bytes, which is returned as it is.

    Returns:
        The size in bytes, 0 or more; a fraction of a byte is cut off.

    Raises:
        ConfigError: the text is no size, its unit is unknown, or the number is negative or above
            `BYTES_MAX`.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        if text < 0:
            raise ConfigError(f"a size of {text} bytes is negative; give at least 0")
        return _at_most(text, text)
    amount, unit = _quantity(text, "size", "2GiB")
    if unit not in _BYTES:
        raise ConfigError(
            f"size {text!r}: unknown unit {unit!r}; the units are {', '.join(_BYTES)}"
        )
    return _at_most(int(amount * _BYTES[unit]), text)


def _at_most(size: int, text: str | int) -> int:
    if size > BYTES_MAX:
        raise ConfigError(
            f"size {text!r} is above {BYTES_MAX} bytes, the most that can be asked for"
        )
    return size


def parse_seconds(text: str | float) -> float:
    """Turn a time such as "30s" into seconds.

    Args:
        text: a number and one of the units ms, s, min, h, d, as in "1.5h" or "500 ms";
            or a number of seconds, which is returned as a float.

    Returns:
        The time in seconds, 0 or more.

    Raises:
        ConfigError: the text is no time, its unit is unknown, or the number is negative or a nan.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        if not text >= 0:  # also true for a nan
            raise ConfigError(f"a time of {text} seconds is negative or no number; give at least 0")
        return float(text)
    amount, unit = _quantity(text, "time", "30s")
    if unit not in _SECONDS:
        raise ConfigError(
            f"time {text!r}: unknown unit {unit!r}; the units are {', '.join(_SECONDS)}"
        )
    return float(amount * _SECONDS[unit])


def parse_timeout(timeout: str | float | None) -> float | None:
    """The same for a time that a caller waits, where None waits for ever.

    Raises:
        ConfigError: as `parse_seconds`.
    """
    return None if timeout is None else parse_seconds(timeout)


def _quantity(text: object, what: str, example: str) -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ConfigError(
            f"{what} {text!r} cannot be read; write a number and a unit, such as {example!r}"
        )
    return Decimal(match[1]), match[2]


_POOL_COUNTS: Final = (
    "max_size",
    "max_running",
    "min_idle",
    "spares",
    "max_uses",
    "canary_every",
)
_POOL_TIMES: Final = (
    "max_lifetime",
    "idle_timeout",
    "ping_after",
    "leak_after",
    "reset_timeout",
    "start_timeout",
)


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """Settings of a pool of services. Sizes are counts, times are seconds."""

    max_size: int = 0
    """Services at once, of all kinds together; 0: as many as this process may use cores."""

    max_running: int = 0
    """Services lent at once; 0: as many as there are. Below `max_size` the others wait warm."""

    min_idle: int = 0
    """Idle services of each kind that are kept ready, as far as `max_size` has room."""

    spares: int = 1
    """Processes that each template keeps forked ahead, from its second service on."""

    max_uses: int = 0
    """Leases that one service serves before it is replaced; 0: any number."""

    max_lifetime: float = 1800.0
    """Seconds, a tenth more or less, after which a service is replaced; 0: never."""

    idle_timeout: float = 300.0
    """An idle service is ended after so long, so that its memory goes back; 0: never."""

    ping_after: float = 60.0
    """Idle for longer, a service is asked whether it answers before it is lent; 0: never."""

    canary_every: int = 0
    """Each service is looked at after so many leases for state that one of them left; 0: never."""

    leak_after: float = 0.0
    """A lease that is out for longer is reported with the place that acquired it; 0: none is."""

    reset_timeout: float = 1.0
    """A reset that takes longer counts as hung: the service is replaced."""

    start_timeout: float = 120.0
    """A start that takes longer is given up: imports of minutes are real, endless ones are not."""

    max_memory: int = 0
    """A service with more private bytes is ended once it is idle, so that a leak ends; 0: never."""

    def __post_init__(self) -> None:
        for name in _POOL_COUNTS:
            object.__setattr__(self, name, _pool_count(name, getattr(self, name)))
        for name in _POOL_TIMES:
            object.__setattr__(self, name, _pool_time(name, getattr(self, name)))
        if self.max_size == 0:
            object.__setattr__(self, "max_size", len(os.sched_getaffinity(0)))
        if self.max_running == 0:
            object.__setattr__(self, "max_running", self.max_size)

    @classmethod
    def given(cls, **settings: Any) -> Self:
        """The settings that are not None, defaults for the others."""
        return cls(**{name: value for name, value in settings.items() if value is not None})


def _pool_count(name: str, value: Any) -> int:
    """A count as an int; a numpy integer is one too."""
    is_count = hasattr(value, "__index__") and not isinstance(value, bool)
    count = operator.index(value) if is_count else -1
    if count < 0:
        raise ConfigError(f"{name} is {value!r}; give a whole number, 0 or more")
    return count


def _pool_time(name: str, value: Any) -> float:
    try:
        seconds = parse_seconds(value)
    except ConfigError:
        seconds = math.inf
    if seconds == math.inf:
        raise ConfigError(f"{name} is {value!r}; give seconds, 0 or more, or text such as '30s'")
    return seconds


_EXECUTOR_COUNTS: Final = (
    "max_workers",
    "short_workers",
    "long_workers",
    "max_worker_uses",
    "async_at_once",
    "max_deaths",
    "max_queued",
    "max_queued_per_submitter",
    "max_items",
    "server_number",
)
_EXECUTOR_BYTES: Final = (
    "max_memory",
    "max_worker_growth",
    "max_argument_bytes",
    "max_queue_bytes",
    "max_result_bytes",
    "max_item_bytes",
    "max_stream_bytes",
    "max_log_bytes",
    "retention_bytes",
)
NODE_TIMEOUT_MIN: Final = 2.0
"""A shorter one takes busy nodes for lost."""

_EXECUTOR_TIMES: Final = (
    "worker_idle_timeout",
    "max_worker_age",
    "cancel_grace",
    "terminate_grace",
    "node_timeout",
    "retention_age",
    "idle_timeout",
    "drain_grace",
)
SERVER_NUMBER_MAX: Final = 63
"""An id has six bits for the number of its server: crates/executor/src/id.rs."""
ITEM_BYTES_MOST: Final = 64 << 20
"""No reader takes a longer item: crates/executor/src/limit.rs."""
SYNCHRONOUS: Final = ("full", "normal")
"""What a commit survives: the loss of power, or only the death of the server."""


@dataclass(frozen=True, slots=True)
class ExecutorConfig:
    """Settings of a server that runs requests. Sizes are bytes or counts, times are seconds.

    What the machine tells by itself (cores, memory, low-resource mode) is no setting.
    """

    max_workers: int = 64
    """Workers at once, of all lanes; memory and processors admit fewer on most machines."""

    short_workers: int = 1
    """Workers of the short lane that stay; one answers a short request without a start."""

    long_workers: int = 1
    """Workers of the long lane that stay; more start in milliseconds and end when idle."""

    worker_idle_timeout: float = 10.0
    """A worker beyond those that stay is ended after so long, so that a burst leaves nothing."""

    max_worker_uses: int = 100_000
    """Requests that one worker runs before it is replaced: leaks of extension modules end."""

    max_worker_age: float = 3600.0
    """A worker is replaced after so long, between two requests; 0: never."""

    max_worker_growth: int = 256_000_000
    """A worker whose private memory has grown by more is replaced between requests; 0: never."""

    async_at_once: int = 10_000
    """Cooperative requests that one worker runs at once; a sleeping one takes some kilobytes."""

    max_deaths: int = 3
    """A request that has ended so many workers is set aside; twice may be chance."""

    cancel_grace: float = 5.0
    """From the exception that cancels a request to SIGTERM: time for `finally` and `with`."""

    terminate_grace: float = 5.0
    """From SIGTERM to SIGKILL."""

    max_memory: int = 0
    """Memory that the workers may have together; 0: what the cgroup or the machine has."""

    max_queued: int = 100_000
    """Requests that wait; one more is refused, for nobody waits for the last of so many."""

    max_queued_per_submitter: int = 0
    """Of one submitter; 0: as many as of all. A token of the gateway may have another number."""

    max_argument_bytes: int = 16 << 20
    """Of one request; what is larger belongs into a file that the arguments name."""

    max_queue_bytes: int = 64 << 20
    """Arguments of waiting requests in memory; those beyond stay on disk until their turn."""

    max_result_bytes: int = 1_000_000
    """Results above it become files, which do not pass through the database's log."""

    max_items: int = 1_000_000
    """Items of one generator; a reader that comes back passes over a million in some 10 ms."""

    max_item_bytes: int = 4_000_000
    """Of one item, which the server copies for each reader: a millisecond of its only thread."""

    max_stream_bytes: int = 256_000_000
    """Of all items of one generator: a quarter of what ended requests may take."""

    max_log_bytes: int = 10_000_000
    """Output kept of one request: its first 256 KiB and the last of it."""

    retention_age: float = 7 * 86_400.0
    """Ended requests are kept for so long; a week covers a holiday."""

    retention_bytes: int = 1_000_000_000
    """Ended requests take no more disk than this, the oldest go first."""

    synchronous: str = "full"
    """"full": what is accepted survives the loss of power; "normal": the death of the server."""

    idle_timeout: float = 900.0
    """A server that a command started ends after so long without a request."""

    drain_grace: float = 60.0
    """After SIGTERM, running requests have so long to end; then they end with the server."""

    engine: str = ""
    """Where workers run: "dask" on the nodes of a Dask cluster; empty on this machine."""

    scheduler: str = ""
    """Of the engine's cluster, as in tcp://10.0.0.1:8786; empty: the engine starts one here."""

    engine_host: str = ""
    """The address of this machine for the engine's nodes; empty: by which it reaches them."""

    node_timeout: float = 30.0
    """A node that says nothing for so long is lost, with what runs there."""

    server_number: int = 0
    """It is in the ids of the server's requests, so that stores of several may be merged."""

    def __post_init__(self) -> None:
        if not 0 <= self.server_number <= SERVER_NUMBER_MAX:
            raise ConfigError(
                f"server_number is {self.server_number}; give a number from 0 to"
                f" {SERVER_NUMBER_MAX}"
            )
        for name in (*_EXECUTOR_COUNTS, *_EXECUTOR_BYTES):
            value = getattr(self, name)
            if value < 0:
                raise ConfigError(f"{name} is {value}; give a number, 0 or more")
        for name in _EXECUTOR_TIMES:
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ConfigError(f"{name} is {value}; give seconds, 0 or more")
        if self.node_timeout < NODE_TIMEOUT_MIN:
            raise ConfigError(
                f"node_timeout is {self.node_timeout:g}; give at least {NODE_TIMEOUT_MIN:g} s,"
                " since a node says something each second"
            )
        for name in ("max_workers", "max_deaths", "async_at_once", "max_queued"):
            if getattr(self, name) == 0:
                raise ConfigError(f"{name} is 0, so nothing would run; give 1 or more")
        if self.max_item_bytes > ITEM_BYTES_MOST:
            raise ConfigError(
                f"max_item_bytes is {self.max_item_bytes}; give at most {ITEM_BYTES_MOST}, which"
                " is what a reader takes"
            )
        for name in ("scheduler", "engine_host"):
            if getattr(self, name) and not self.engine:
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r} and engine is not set, so that workers"
                    " would run here; give engine too, as in: forebay serve APP --engine dask"
                )
        if self.synchronous not in SYNCHRONOUS:
            raise ConfigError(
                f"synchronous is {self.synchronous!r}; give one of {', '.join(SYNCHRONOUS)}"
            )

    @classmethod
    def given(cls, **settings: Any) -> Self:
        """The settings that are not None, defaults for the others."""
        return cls(**{name: value for name, value in settings.items() if value is not None})


_BLOCKIO_COUNTS: Final = ("max_batch", "max_concurrency", "threads")
_BLOCKIO_ENDS: Final = {"max_batch": 1 << 15, "max_concurrency": 1 << 16, "threads": 1025}
"""What a ring takes and holds; threads beyond a thousand only wait for each other."""
ENGINES: Final = ("auto", "ring", "threads")
"""What carries out block operations; "auto" is a ring where the kernel allows one."""


@dataclass(frozen=True, slots=True)
class BlockioConfig:
    """Settings of a queue of block operations. Sizes are bytes or counts."""

    max_batch: int = 64
    """Operations that one system call hands to the kernel; most disks do 64 at once."""

    max_concurrency: int = 192
    """Operations in flight per ring: two batches are under way while a third is filled."""

    engine: str = "auto"
    """"ring" (io_uring) or "threads"; "auto" takes a ring where the kernel allows one."""

    threads: int = 32
    """Operations in flight where there is no ring; twice as many read a disk 5 % faster."""

    max_quarantine_bytes: int = 64 << 20
    """Memory of cancelled operations that the kernel may still write; above it none begin."""

    def __post_init__(self) -> None:
        for name in _BLOCKIO_COUNTS:
            value, end = getattr(self, name), _BLOCKIO_ENDS[name]
            if value < 1:
                raise ConfigError(f"{name} is {value}; give 1 or more")
            if value >= end:
                raise ConfigError(f"{name} is {value}; give less than {end}")
        if self.max_batch > self.max_concurrency:
            raise ConfigError(
                f"max_batch is {self.max_batch}; give at most max_concurrency"
                f" ({self.max_concurrency})"
            )
        if self.engine not in ENGINES:
            raise ConfigError(f"engine is {self.engine!r}; give one of {', '.join(ENGINES)}")
        if not 0 <= self.max_quarantine_bytes < 1 << 63:
            raise ConfigError(
                f"max_quarantine_bytes is {self.max_quarantine_bytes}; give bytes, 0 or more"
            )


_TENSOR_COUNTS: Final = ("slots", "max_waiting", "max_tensors", "max_peers")
_TENSOR_BYTES: Final = ("grant_bytes", "piece_bytes", "staging_bytes")
_TENSOR_TIMES: Final = ("connect_timeout", "liveness")
FABRICS: Final = ("auto", "verbs", "stream")
"""How rows may get to a client of tensors."""

_TENSOR_ENDS: Final = {
    "slots": 1 << 10,
    "max_waiting": 1 << 31,
    "max_tensors": 1 << 31,
    "max_peers": 1 << 20,
    "grant_bytes": 1 << 62,
    "piece_bytes": 1 << 31,
    "staging_bytes": 1 << 40,
}
"""The most that each may be; what a peer grants may be less."""


@dataclass(frozen=True, slots=True)
class TensorConfig:
    """Settings of tensor servers and their clients. Sizes are bytes or counts, times seconds."""

    slots: int = 16
    """Requests that a client has with each shard at once; the gain levels off at 4 to 16."""

    grant_bytes: int = 16 << 20
    """Answers that a server lets one client have outstanding, so that many do not swamp a link."""

    piece_bytes: int = 1 << 20
    """A longer pull or push goes in pieces, so that short ones are not behind it."""

    staging_bytes: int = 64 << 20
    """Of a server: memory for rows of files on their way, a page or more; pulls wait for it."""

    max_waiting: int = 65_536
    """Pulls and pushes of a client that wait for a slot; one more is refused."""

    max_tensors: int = 65_536
    """Of a server."""

    max_peers: int = 4_096
    """Clients of a server at once; the next one is turned away with the reason."""

    connect_timeout: float = 10.0
    """Seconds for connecting to a shard, the handshake included; a server allows it as much."""

    fabric: str = "auto"
    """"auto": memory of a server on the same host, else RDMA verbs, else the connection; "verbs"
    needs a device at both ends; "stream" has all go over the connection."""

    liveness: float = 5.0
    """A peer that is silent for so long while something is outstanding counts as gone."""

    def __post_init__(self) -> None:
        for name in (*_TENSOR_COUNTS, *_TENSOR_BYTES):
            value, most = getattr(self, name), _TENSOR_ENDS[name]
            if not 1 <= value <= most:
                raise ConfigError(f"{name} is {value}; give 1 to {most}")
        for name in _TENSOR_TIMES:
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value}; give seconds, more than 0")
        if self.fabric not in FABRICS:
            raise ConfigError(f"fabric is {self.fabric!r}; give one of {', '.join(FABRICS)}")


_GATEWAY_COUNTS: Final = ("max_connections", "max_connections_per_address")


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Settings of a gateway. Sizes are bytes or counts."""

    max_connections: int = 10_000
    """Of all clients; the next one is answered 503. Each takes some ten kilobytes."""

    max_connections_per_address: int = 1_000
    """Of one client's address. Raise it behind a proxy, from whose address all clients come."""

    max_body_bytes: int = 64 << 20
    """Of one HTTP request: arguments of `max_argument_bytes` as base64 fit several times."""

    def __post_init__(self) -> None:
        for name in (*_GATEWAY_COUNTS, "max_body_bytes"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} is {value}; give 1 or more")


KINDS: Final[dict[str, dict[str, str]]] = {
    "blockio": {
        **dict.fromkeys(_BLOCKIO_COUNTS, "count"),
        "engine": "word",
        "max_quarantine_bytes": "size",
    },
    "pool": {
        **dict.fromkeys(_POOL_COUNTS, "count"),
        **dict.fromkeys(_POOL_TIMES, "time"),
        "max_memory": "size",
    },
    "executor": {
        **dict.fromkeys(_EXECUTOR_COUNTS, "count"),
        **dict.fromkeys(_EXECUTOR_TIMES, "time"),
        **dict.fromkeys(_EXECUTOR_BYTES, "size"),
        **dict.fromkeys(("synchronous", "engine", "scheduler", "engine_host"), "word"),
    },
    "gateway": {**dict.fromkeys(_GATEWAY_COUNTS, "count"), "max_body_bytes": "size"},
    "tensor": {
        **dict.fromkeys(_TENSOR_COUNTS, "count"),
        **dict.fromkeys(_TENSOR_BYTES, "size"),
        **dict.fromkeys(_TENSOR_TIMES, "time"),
        "fabric": "word",
    },
}
"""Every setting of every system that can be configured, and how its text is read."""
