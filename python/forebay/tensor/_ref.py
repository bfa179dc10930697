"""What the names of tensors mean at the shards of a server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any

from forebay.errors import BrokenError, ConfigError
from forebay.tensor._dtype import dtype_of
from forebay.tensor._numpy import Array, np

if TYPE_CHECKING:
    from forebay._core import TensorHandle, TensorLink
    from forebay.tensor._work import Work

__all__ = ["Book", "TensorRef"]

STALE = -1
"""The epoch of what has to be looked up again."""


class TensorRef:
    """A tensor that was looked up; given in place of its name, it saves a look into a table.

    It goes on meaning its name: after the tensor was replaced, or the server started anew, the
    next use looks the name up again.

    Attributes:
        name: of the tensor.
        dtype: of its elements.
        shape: rows of all shards, and the shape of a row.
        row_bytes: of one row.
    """

    __slots__ = (
        "book",
        "dtype",
        "ends",
        "epoch",
        "handles",
        "name",
        "near",
        "opaque",
        "row_bytes",
        "row_shape",
        "rows",
        "shape",
        "starts",
    )

    def __init__(self, book: Book, name: str) -> None:
        self.book = book
        self.name = name
        self.epoch = STALE
        self.dtype: np.dtype[Any]
        self.shape: tuple[int, ...] = ()
        self.row_bytes = 0
        # What follows is for the modules of this package.
        self.rows = 0
        self.row_shape: tuple[int, ...] = ()
        self.opaque = False  # its arrays export no buffer as they are
        self.near: TensorLink | None = None  # which has read it with these handles
        self.handles: tuple[TensorHandle, ...] = ()
        self.starts: tuple[int, ...] = ()  # the first row of each shard, and the end
        self.ends: Array  # the end of each shard's rows

    def learn(self, handles: Sequence[TensorHandle], epoch: int) -> None:
        """Mean this from now on."""
        first = handles[0]
        for shard, other in enumerate(handles):
            whose = f"tensor {self.name!r} at {self.book.urls[shard]}"
            dtype = dtype_of(other.dtype, other.item_bytes, whose)
            if other.dtype != first.dtype or tuple(other.shape[1:]) != tuple(first.shape[1:]):
                raise ConfigError(
                    f"tensor {self.name!r} is {first.dtype} of shape {tuple(first.shape)} at shard"
                    f" 0, and {other.dtype} of shape {tuple(other.shape)} at shard {shard}: they"
                    " are not shards of one server"
                )
        self.dtype = dtype
        self.opaque = self.dtype.kind in "mM"
        self.row_shape = tuple(first.shape[1:])
        self.row_bytes = math.prod(self.row_shape) * self.dtype.itemsize
        self.starts = tuple(accumulate((each.shape[0] for each in handles), initial=0))
        self.ends = np.array(self.starts[1:])
        self.rows = self.starts[-1]
        self.shape = (self.rows, *self.row_shape)
        self.near = None
        self.handles = tuple(handles)
        self.epoch = epoch

    def __repr__(self) -> str:
        return f"<TensorRef {self.name!r}: {self.dtype} of shape {self.shape}>"


class Book:
    """The names that one face has looked up.

    Attributes:
        epoch: grows when a shard was started anew, after which no handle means anything.
        urls: of the shards.
    """

    __slots__ = ("_epochs", "_incarnations", "_refs", "epoch", "urls")

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = urls
        self.epoch = 0
        self._epochs = count(1)  # in one step, where two shards are connected to at once
        self._refs: dict[str, TensorRef] = {}
        self._incarnations: list[int | None] = [None] * len(urls)

    def find(self, tensor: TensorRef | str) -> TensorRef | None:
        """The tensor; None: it has to be looked up.

        Raises:
            ConfigError: that is no name.
        """
        if type(tensor) is TensorRef and tensor.book is self:
            return tensor if tensor.epoch == self.epoch else None
        name = name_of(tensor)
        ref = self._refs.get(name)
        return ref if ref is not None and ref.epoch == self.epoch else None

    def learn(self, names: Sequence[str], meanings: Sequence[Sequence[Any]], epoch: int) -> None:
        """Remember what shards answered, `meanings` by shard, when they were asked in `epoch`.

        Raises:
            ConfigError: one has no such tensor, or they have different ones.
        """
        for place, name in enumerate(names):
            found = [each[place] for each in meanings]
            for shard, meaning in enumerate(found):
                if isinstance(meaning, list):
                    raise unknown(name, meaning, self.urls[shard])
            ref = self._refs.get(name)
            if ref is None:
                ref = self._refs.setdefault(name, TensorRef(self, name))
            ref.learn(found, epoch)

    def connected(self, shard: int, incarnation: int) -> None:
        """A shard was connected to; where it is another run of it, nothing is known any more."""
        if self._incarnations[shard] not in (None, incarnation):
            self.epoch = next(self._epochs)
        self._incarnations[shard] = incarnation

    def forget(self, work: Work) -> None:
        """Have the tensors of a call looked up again by their next use."""
        work.epoch = STALE
        for ref in work.refs:
            ref.epoch = STALE


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


def too_restless(urls: Sequence[str]) -> BrokenError:
    """The error where shards are started anew faster than they can be used."""
    return BrokenError(
        f"{', '.join(urls)}: started anew again and again while names were looked up; see its log",
        delivered="no",
    )
