"""A server of tensors, which serves them without the GIL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from forebay import _core, _forks
from forebay._numpy import Array
from forebay.config import parse_bytes
from forebay.configuration import find_configuration
from forebay.errors import ConfigError
from forebay.pool import Reset, Service
from forebay.tensor.prepare.tensor import Tensor
from forebay.tensor.prepare.work import Op
from forebay.tensor.server.addresses import address_of, chosen
from forebay.tensor.server.listening import listen_at
from forebay.tensor.server.own_address import own_url
from forebay.tensor.server.table import Table

if TYPE_CHECKING:
    from forebay.memory import Arena
    from forebay.tensor.server.file_tensor import FileTensor
    from forebay.transport import Tls

__all__ = ["TensorServer"]

LEASES_MAX = 1 << 16
SLOTS_MAX = 1024


class TensorServer(Service):
    """Publishes tensors from an arena to any number of clients, in a separate thread.

    That thread answers pulls and pushes without taking the GIL or running Python.
    It may be one of several shards, each in a process: then it holds its range of the rows.

    As a service, `TensorServer.spec(...)` describes one that a pool starts, or
    `app.service(TensorServer.spec(...), name="ps", shards=2)` those of an application; its leases
    share it. In your own process, `with TensorServer(...) as server` closes it at the end.

    Args:
        tensors: by name what to publish at once: `Tensor(shape, dtype)`, an array, or
            `FileTensor(path)`.
        url: where to listen: `tcp://host:port` (port 0: any that is free), `tls://host:port`,
            `unix:///path` (its file gets 0600); `verbs://host:port` is tcp, and fabric "verbs".
            Left out: a Unix socket in this user's runtime directory, see the attribute `url`.
            With shards, `{shard}` in it is this one's number; else it listens so many ports
            further.
        shard: which one this is, from 0.
        shards: how many there are.
        arena: what tensors lie in, or its limit as text or in bytes; an own one as large as the
            machine's memory if left out, of which pages are taken when they are first written.
        token: what a client must show; needed where other machines can connect, unless `tls`
            asks for certificates. On the loopback interface, which every user of the machine
            reaches, without either only clients of this user are accepted.
        tls: what to show, by `transport.Tls.server`, or its arguments as a dict, which travel
            with a spec; for `tls://` alone.
        unprotected: let other machines, and other users of this one, connect without a token.
        slots: the most requests that one client may have here at once, 1 to 1024.
        grant_bytes: answers that one client may have outstanding, in bytes or as text.
        fabric: "auto" offers clients of the same host the memory, and others RDMA verbs where
            there is a device; "verbs" offers those alone, and needs a device; "stream" neither.
        staging_bytes: memory for rows of files on their way, taken when the first `FileTensor` is
            published; pulls wait for it.

    What is left out comes from the configuration (`FOREBAY_TENSOR_...`, `forebay.toml`).

    Raises:
        ConfigError: a setting, the URL or a tensor is wrong, or nothing protects the server.
        OSError: it cannot listen there.
        LimitError: the arena has no room for the tensors.

    Threads: any. A forked child gets `StaleError`.
    """

    max_leases: ClassVar[int] = LEASES_MAX
    resets: ClassVar[Reset | None] = Reset.STATELESS
    stateful: ClassVar[bool] = True

    def __init__(
        self,
        tensors: Mapping[str, Tensor | FileTensor | Any] | None = None,
        url: str | None = None,
        *,
        shard: int = 0,
        shards: int = 1,
        arena: Arena | str | int | None = None,
        token: str | bytes | None = None,
        tls: Tls | Mapping[str, Any] | None = None,
        unprotected: bool = False,
        slots: int = SLOTS_MAX,
        grant_bytes: str | int | None = None,
        staging_bytes: str | int | None = None,
        fabric: str | None = None,
    ) -> None:
        url, fabric = chosen(own_url() if url is None else url, fabric)
        config = find_configuration(
            {
                "tensor.grant_bytes": grant_bytes,
                "tensor.staging_bytes": staging_bytes,
                "tensor.fabric": fabric,
            }
        ).tensor
        _check_slots(slots)
        where = address_of(url, shard, shards)
        self._own_arena = None if _is_arena(arena) else _new_arena(arena)
        lying: Any = self._own_arena or arena
        self._url, listening, own = listen_at(where, token, tls, unprotected=unprotected)
        _forks.stop_listening()
        self._core = _core.TensorShard(
            [listening],
            name=self._url,
            limits={
                "slots": slots,
                "grant_bytes": config.grant_bytes,
                "tensors_max": config.max_tensors,
                "peers_max": config.max_peers,
                "liveness": config.liveness,
                "staging_bytes": config.staging_bytes,
            },
            handshake=config.connect_timeout,
            shared_memory=config.fabric == "auto",
            verbs=None if config.fabric == "stream" else lying,
            verbs_needed=config.fabric == "verbs",
            own=own,
        )
        self._table = Table(self._core, lying, shard, shards)
        try:
            for name, tensor in (tensors or {}).items():
                self._table.publish(name, tensor)
            self._core.open()  # only now, so that no client finds a part of them
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Where clients find this shard, with the port that was chosen."""
        return self._url

    def publish(self, name: str, tensor: Tensor | FileTensor | Any) -> None:
        """Offer a tensor under a name; in place of the one that has it, if any.

        A client with a handle of the replaced one gets `StaleError`, and looks the name up again.

        Args:
            name: at most 255 bytes of UTF-8.
            tensor: the whole one, of which this shard keeps its rows: a `Tensor`, an array, or a
                `FileTensor`, whose rows stay in their file and are read-only. A
                C-contiguous array of the server's arena is published where it lies, by one shard
                alone; any other is copied into the arena.

        Raises:
            ConfigError: the name or the dtype cannot be used, or the array lies in memory of
                another tensor of this server.
            LimitError: the arena is full, or there are 65,536 tensors.
            OSError: a file cannot be opened.
        """
        self._table.publish(name, tensor)

    def drop(self, name: str) -> None:
        """Offer a tensor no more; its memory goes back once no answer reads it.

        Raises:
            ConfigError: no tensor has that name.
        """
        self._table.drop(name)

    def array(self, name: str) -> Array:
        """The rows of this shard, in place, to read them in this process.

        Returns:
            A read-only array. What clients push changes it at any time; rows that were read while
            they were written may be of two versions. It keeps the memory, as any array does.

        Raises:
            ConfigError: no tensor has that name, or its rows are in a file.
        """
        return self._table.array(name)

    def write(self, name: str, rows: Any, values: Any, op: Op = "set") -> int:
        """Change rows as the owner, between two answers.

        Args:
            name: of the tensor.
            rows: as of `TensorClient.push`, counted over the whole tensor; this shard has them.
            values: as of `TensorClient.push`.
            op: "set" or "add".

        Returns:
            The version that the tensor has now.

        Raises:
            ConfigError: as of `TensorClient.push`, and for rows of a file.
            OutOfRangeError: a row is not here.
        """
        return self._table.write(name, rows, values, op)

    def describe(self) -> dict[str, Any]:
        """What it is: url, shard, shards, incarnation, and the tensors with their rows here.

        Each tensor has dtype, shape (of the whole tensor), first (row of this shard) and rows.
        """
        return {
            "url": self._url,
            "incarnation": self._core.incarnation,
            **self._table.describe(),
        }

    def metrics(self) -> dict[str, int]:
        """What was counted: peers, accepted, refused, broken, received_bytes, sent_bytes.

        verbs_peers and verbs_pulls: connections over RDMA verbs, and what was asked for there.
        """
        return self._core.metrics()

    def close(self) -> None:
        """Answer what was received, for half a second at most, and close. Idempotent.

        Where a disk still has reads of a `FileTensor`, it waits for them, up to five seconds more.
        """
        self._core.close()
        table: Table | None = getattr(self, "_table", None)
        if table is not None:
            table.close()
        if self._own_arena is not None:
            self._own_arena.close()

    def __enter__(self) -> Self:
        """Return the server itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the server."""
        self.close()

    def __repr__(self) -> str:
        return f"<TensorServer at {self._url}>"


def _check_slots(slots: object) -> None:
    """Refuse before there is a socket, which the core would take and not give back."""
    if type(slots) is not int or not 1 <= slots <= SLOTS_MAX:
        raise ConfigError(f"slots is {slots!r}; give a whole number from 1 to {SLOTS_MAX}")


def _is_arena(given: object) -> bool:
    return isinstance(given, _core.Arena)


def _new_arena(limit: Any) -> Arena:
    from forebay.memory import Arena

    if limit is None:
        limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if not isinstance(limit, str | int):
        raise ConfigError(f"arena is {limit!r}; give an Arena, or its limit as text or in bytes")
    return Arena(parse_bytes(limit), name="tensors")
