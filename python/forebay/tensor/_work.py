"""Calls made ready for the core: what each shard is asked for, and where its rows go.

Nothing here waits, connects or sends. A name that has to be looked up first is reported, and the
call is made ready again afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from forebay.errors import ConfigError
from forebay.tensor._dtype import ADDABLE
from forebay.tensor._numpy import Array, np
from forebay.tensor._ref import Book, TensorRef, name_of
from forebay.tensor._rows import Wanted, wanted
from forebay.tensor._split import split

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.memory import Arena

__all__ = ["Op", "Work", "check_out", "check_versions", "pulls_of", "pushes_of", "room"]

Op = Literal["set", "add"]
OPERATIONS = ("set", "add")

_ARRAY = np.ndarray

Entries = list[tuple[Any, ...]]
"""Pulls or pushes as the core takes them."""


class Work:
    """One call, ready for the core.

    Attributes:
        arrays: what is pulled into, in the order of the call; for pushes the values.
        epoch: of the handles in it.
        missing: names to look up before there is any work.
        owners: for each shard the item of the call that each entry belongs to; where there is one
            shard, an entry is an item.
        parts: by shard, its entries.
        pushes: whether they push.
        refs: the tensors in it.
    """

    __slots__ = ("arrays", "epoch", "missing", "owners", "parts", "pushes", "refs")

    def __init__(self, book: Book, *, pushes: bool) -> None:
        self.arrays: list[Any] = []
        self.epoch = book.epoch
        self.missing: list[str] = []
        self.owners: dict[int, list[int]] = {}
        self.parts: dict[int, Entries] = {0: []} if len(book.urls) == 1 else {}
        self.pushes = pushes
        self.refs: list[TensorRef] = []

    def add(self, ref: TensorRef, rows: Wanted, memory: Array, *extra: Any) -> None:
        """Ask for the rows of one item, from all shards that have some."""
        item = len(self.arrays)
        for shard, entry in split(ref, rows, memory, extra):
            self.parts.setdefault(shard, []).append(entry)
            self.owners.setdefault(shard, []).append(item)


def pulls_of(
    book: Book,
    pulls: Iterable[Any],
    arena: Arena | None,
    mean: Callable[[Any, TensorRef], Wanted] = wanted,
) -> Work:
    """Make pulls ready.

    Args:
        book: the names of this face.
        pulls: (tensor, rows, out) each, (tensor, rows), or a tensor alone.
        arena: where results without `out` are made; None: wherever numpy makes them.
        mean: what rows mean.

    Raises:
        ConfigError: one cannot be; OutOfRangeError: a row that there is not.
    """
    work = Work(book, pushes=False)
    one = work.parts.get(0) if len(book.urls) == 1 else None
    arrays, refs, find = work.arrays, work.refs, book.find
    for pull in pulls:
        tensor, rows, out = pull if type(pull) is tuple and len(pull) == 3 else _three(pull)
        ref = find(tensor)
        if ref is None:
            work.missing.append(name_of(tensor))
            continue
        refs.append(ref)
        if (
            rows is None
            and one is not None
            and type(out) is _ARRAY
            and out.dtype is ref.dtype
            and out.shape == ref.shape
            and not ref.opaque
        ):
            # What is pulled in every step: the core holds the rest against the buffer itself.
            one.append((ref.handles[0], 0, ref.rows, out))
            arrays.append(out)
            continue
        meant = first, count, lead = mean(rows, ref)
        if out is None:
            out = room(lead + ref.row_shape, ref, arena)
        else:
            check_out(out, lead + ref.row_shape, ref)
        memory = out.reshape(-1).view(np.uint8) if ref.opaque else out
        if one is not None:
            one.append((ref.handles[0], first, count, memory))
        else:
            work.add(ref, meant, memory)
        arrays.append(out)
    return work


def pushes_of(book: Book, pushes: Iterable[Any]) -> Work:
    """Make pushes ready: (tensor, rows, values, op) each, or without the op.

    Raises:
        ConfigError: as `pulls_of`; or the values do not fit, or cannot be added.
    """
    work = Work(book, pushes=True)
    one = work.parts.get(0) if len(book.urls) == 1 else None
    for push in pushes:
        tensor, rows, values, op = _four(push)
        ref = book.find(tensor)
        if ref is None:
            work.missing.append(name_of(tensor))
            continue
        work.refs.append(ref)
        meant = first, count, lead = wanted(rows, ref)
        given = _values(values, lead + ref.row_shape, ref)
        memory = given.reshape(-1).view(np.uint8) if ref.opaque else given
        adds = _adds(op, ref)
        if one is not None:
            one.append((ref.handles[0], first, count, memory, adds))
        else:
            work.add(ref, meant, memory, adds)
        work.arrays.append(given)
    return work


def check_versions(versions: Any, items: int) -> None:
    """Refuse what is no room for the versions of a call.

    Raises:
        ConfigError: see there.
    """
    if (
        not isinstance(versions, np.ndarray)
        or versions.dtype != np.uint64
        or versions.shape != (items,)
        or not (versions.flags.c_contiguous and versions.flags.writeable)
    ):
        raise ConfigError(f"versions= has to be a writable array of uint64 of shape ({items},)")


def _three(pull: Any) -> Sequence[Any]:
    if isinstance(pull, str | TensorRef):
        return pull, None, None
    if not isinstance(pull, tuple | list) or not 1 <= len(pull) <= 3:
        raise ConfigError(f"{pull!r:.80} is no pull; give (tensor, rows, out) or (tensor, rows)")
    return (*pull, None, None)[:3]


def _four(push: Any) -> Sequence[Any]:
    if not isinstance(push, tuple | list) or not 3 <= len(push) <= 4:
        raise ConfigError(
            f"{push!r:.80} is no push; give (tensor, rows, values) or (tensor, rows, values, op)"
        )
    return (*push, "set")[:4]


def room(shape: tuple[int, ...], ref: TensorRef, arena: Arena | None) -> Array:
    """An array for rows of a tensor, in the arena if there is one."""
    return np.empty(shape, ref.dtype) if arena is None else arena.empty(shape, ref.dtype)


def check_out(out: Any, shape: tuple[int, ...], ref: TensorRef) -> None:
    """Refuse what rows of this shape cannot be pulled into.

    Raises:
        ConfigError: see there.
    """
    if not isinstance(out, np.ndarray):
        raise ConfigError(f"tensor {ref.name!r}: out is {type(out).__name__}; give a numpy array")
    if out.shape != shape:
        raise ConfigError(f"tensor {ref.name!r}: out has shape {out.shape}; the rows have {shape}")
    dtype = out.dtype
    if dtype is not ref.dtype and dtype != ref.dtype:
        raise ConfigError(f"tensor {ref.name!r}: out has dtype {dtype}; the tensor {ref.dtype}")
    flags = out.flags
    if not (flags.c_contiguous and flags.writeable):
        what = "writable" if flags.c_contiguous else "contiguous"
        raise ConfigError(f"tensor {ref.name!r}: out is not {what}; give memory that can be filled")


def _values(values: Any, shape: tuple[int, ...], ref: TensorRef) -> Array:
    dtype = ref.dtype
    if isinstance(values, np.ndarray) and values.dtype != dtype:
        raise ConfigError(
            f"tensor {ref.name!r}: values have dtype {values.dtype}, the tensor {dtype}; convert"
            " them with astype, if that is what you mean"
        )
    try:
        given = np.asarray(values, dtype)
        return np.ascontiguousarray(np.broadcast_to(given, shape)).reshape(shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"tensor {ref.name!r}: values do not fit {dtype} of shape {shape}: {error}"
        ) from error


def _adds(op: Any, ref: TensorRef) -> bool:
    if op not in OPERATIONS:
        raise ConfigError(f"op is {op!r}; give one of {', '.join(OPERATIONS)}")
    if op == "set":
        return False
    if ref.dtype.kind not in ADDABLE or not ref.dtype.isnative:
        raise ConfigError(
            f"tensor {ref.name!r} is {ref.dtype}, which cannot be added; op='set' replaces rows"
        )
    return True
