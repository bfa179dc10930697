"""What the names of tensors mean at the shards of a server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any

from forebay._numpy import Array, np
from forebay.errors import BrokenError, ConfigError
from forebay.tensor.prepare.dtype import dtype_of

if TYPE_CHECKING:
    from forebay._core import TensorHandle, TensorLink
    from forebay.tensor.prepare.work import Work

__all__ = ["Meaning", "NameTable", "TensorRef"]

STALE = -1
"""The epoch of what has to be looked up again."""


class Meaning:
    """What a name means at one time; immutable, so that no reader sees half of a replacement.

    Attributes:
        dtype: of its elements.
        ends: the end of each shard's rows, for tensors of several.
        epoch: of its handles; STALE once one was refused.
        handle: of the first shard.
        handles: of each shard.
        name: of the tensor.
        shm_link: the connection that has read it from shared memory.
        opaque: whether its arrays export no buffer as they are.
        row_bytes: of one row.
        row_shape: of one row.
        rows: of all shards.
        shape: rows, and the shape of a row.
        starts: the first row of each shard, and the end.
    """

    __slots__ = (
        "dtype",
        "ends",
        "epoch",
        "handle",
        "handles",
        "name",
        "opaque",
        "row_bytes",
        "row_shape",
        "rows",
        "shape",
        "shm_link",
        "starts",
    )

    def __init__(
        self,
        name: str,
        dtype: np.dtype[Any],
        row_shape: tuple[int, ...],
        parts: Sequence[tuple[Any, int]],
        epoch: int,
    ) -> None:
        """Args: `parts` are the handle of each shard, and how many rows it has."""
        self.name = name
        self.epoch = epoch
        self.dtype = dtype
        self.opaque = dtype.kind in "mM"
        self.row_shape = row_shape
        self.row_bytes = math.prod(row_shape) * dtype.itemsize
        self.starts = tuple(accumulate((rows for _, rows in parts), initial=0))
        self.rows = self.starts[-1]
        self.shape = (self.rows, *row_shape)
        self.handles: tuple[TensorHandle, ...] = tuple(handle for handle, _ in parts)
        self.handle = self.handles[0]
        self.ends: Array | None = np.array(self.starts[1:]) if len(parts) > 1 else None
        self.shm_link: TensorLink | None = None


class TensorRef:
    """A tensor that was looked up; given in place of its name, it saves a dictionary lookup.

    It stays valid: after the tensor was replaced, or the server restarted, the next use looks the
    name up again.
    """

    __slots__ = ("meaning", "name", "table")

    def __init__(self, table: NameTable, name: str, meaning: Meaning) -> None:
        self.table = table
        self.meaning = meaning  # which is replaced as a whole
        self.name = name

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its elements."""
        return self.meaning.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows of all shards, and the shape of a row."""
        return self.meaning.shape

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.meaning.row_bytes

    def __repr__(self) -> str:
        meaning = self.meaning
        return f"<TensorRef {self.name!r}: {meaning.dtype} of shape {meaning.shape}>"


class NameTable:
    """The names that one face has looked up.

    Attributes:
        epoch: grows when a shard has restarted, which makes every handle invalid.
        urls: of the shards.
    """

    __slots__ = ("_epochs", "_incarnations", "_refs", "epoch", "urls")

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = urls
        self.epoch = 0
        self._epochs = count(1)  # atomic: two threads may connect to two shards at once
        self._refs: dict[str, TensorRef] = {}
        self._incarnations: list[int | None] = [None] * len(urls)

    def find(self, tensor: TensorRef | str) -> Meaning | None:
        """What the tensor means; None: it has to be looked up.

        Raises:
            ConfigError: it is no name.
        """
        if type(tensor) is TensorRef and tensor.table is self:
            meaning = tensor.meaning
        else:
            ref = self._refs.get(name_of(tensor))
            if ref is None:
                return None
            meaning = ref.meaning
        return meaning if meaning.epoch == self.epoch else None

    def ref(self, name: str) -> TensorRef | None:
        """The reference to a tensor that was looked up; None: it has to be looked up again."""
        return None if self.find(name) is None else self._refs[name]

    def learn(self, names: Sequence[str], meanings: Sequence[Sequence[Any]], epoch: int) -> None:
        """Remember what shards answered, `meanings` by shard, when they were asked in `epoch`.

        Raises:
            ConfigError: one has no such tensor, or they have different ones.
        """
        for index, name in enumerate(names):
            found = [each[index] for each in meanings]
            for shard, meaning in enumerate(found):
                if isinstance(meaning, list):
                    raise unknown(name, meaning, self.urls[shard])
            meaning = self._meaning(name, found, epoch)
            ref = self._refs.get(name)
            if ref is None:
                ref = self._refs.setdefault(name, TensorRef(self, name, meaning))
            ref.meaning = meaning

    def connected(self, shard: int, incarnation: int) -> None:
        """Note a connection to a shard; after a restart of it every name is unknown again."""
        if self._incarnations[shard] not in (None, incarnation):
            self.epoch = next(self._epochs)
        self._incarnations[shard] = incarnation

    def forget(self, work: Work) -> None:
        """Have the tensors of a call looked up again by their next use."""
        work.epoch = STALE
        for meaning in work.meanings:
            meaning.epoch = (
                STALE  # this object; a name that was looked up again meanwhile has another
            )

    def _meaning(self, name: str, handles: Sequence[TensorHandle], epoch: int) -> Meaning:
        first = handles[0]
        for shard, other in enumerate(handles):
            whose = f"tensor {name!r} at {self.urls[shard]}"
            dtype = dtype_of(other.dtype, other.item_bytes, whose)
            if other.dtype != first.dtype or tuple(other.shape[1:]) != tuple(first.shape[1:]):
                raise ConfigError(
                    f"tensor {name!r} is {first.dtype} of shape {tuple(first.shape)} at shard"
                    f" 0, and {other.dtype} of shape {tuple(other.shape)} at shard {shard}: they"
                    " are not shards of one server"
                )
        parts = [(handle, handle.shape[0]) for handle in handles]
        return Meaning(name, dtype, tuple(first.shape[1:]), parts, epoch)


def name_of(tensor: object) -> str:
    """The name that a caller gave, or gave a tensor of."""
    if isinstance(tensor, TensorRef):
        return tensor.name
    if not isinstance(tensor, str):
        raise ConfigError(f"{tensor!r:.80} names no tensor; give its name, or a TensorRef")
    return tensor


def unknown(name: str, nearest: Sequence[str], url: str) -> ConfigError:
    """The error of a name that a shard does not have."""
    hint = f"; did you mean {', '.join(map(repr, nearest))}?" if nearest else "; it has none"
    return ConfigError(f"there is no tensor {name!r} at {url}{hint}")


def restarted_too_often(urls: Sequence[str]) -> BrokenError:
    """The error where shards restart faster than a call can use them."""
    return BrokenError(
        f"{', '.join(urls)}: restarted several times while names were looked up; see its log",
        delivered="no",
    )
