"""Calls prepared for the core: what each shard is asked for.

Nothing here waits, connects or sends. A name that has to be looked up first is reported, and the
call is made ready again afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from forebay._numpy import Array, np
from forebay.errors import ConfigError
from forebay.tensor.prepare.dtype import ADDABLE
from forebay.tensor.prepare.ref import Meaning, NameTable, TensorRef, name_of
from forebay.tensor.prepare.rows import Wanted, wanted
from forebay.tensor.prepare.split import split

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
        meanings: of the tensors in it.
        missing: names to look up before there is any work.
        owners: for each shard the item of the call that each entry belongs to; where there is one
            shard, an entry is an item.
        parts: by shard, its entries.
        pushes: whether they push.
    """

    __slots__ = ("arrays", "epoch", "meanings", "missing", "owners", "parts", "pushes")

    def __init__(self, table: NameTable, *, pushes: bool) -> None:
        self.arrays: list[Any] = []
        self.epoch = table.epoch
        self.meanings: list[Meaning] = []
        self.missing: list[str] = []
        self.owners: dict[int, list[int]] = {}
        self.parts: dict[int, Entries] = {0: []} if len(table.urls) == 1 else {}
        self.pushes = pushes

    def check_outs(self) -> None:
        """Say what the core refused of an array, with the name of the tensor.

        Raises:
            ConfigError: one cannot be pulled into.
        """
        if not self.pushes:
            for out, meaning in zip(self.arrays, self.meanings, strict=True):
                check_out(out, out.shape, meaning)

    def add(self, meaning: Meaning, rows: Wanted, memory: Array, *extra: Any) -> None:
        """Ask for the rows of one item, from all shards that have some."""
        item = len(self.arrays)
        for shard, entry in split(meaning, rows, memory, extra):
            self.parts.setdefault(shard, []).append(entry)
            self.owners.setdefault(shard, []).append(item)


def pulls_of(
    table: NameTable,
    pulls: Iterable[Any],
    arena: Arena | None,
    mean: Callable[[Any, Meaning], Wanted] = wanted,
) -> Work:
    """Make pulls ready.

    Args:
        table: the names of this face.
        pulls: (tensor, rows, out) each, (tensor, rows), or a tensor alone.
        arena: where results without `out` are made; None: wherever numpy makes them.
        mean: what rows mean.

    Raises:
        ConfigError: one cannot be; OutOfRangeError: a row that there is not.
    """
    work = Work(table, pushes=False)
    one = work.parts.get(0) if len(table.urls) == 1 else None
    arrays, meanings, find = work.arrays, work.meanings, table.find
    for pull in pulls:
        tensor, rows, out = pull if type(pull) is tuple and len(pull) == 3 else _three(pull)
        meaning = find(tensor)
        if meaning is None:
            work.missing.append(name_of(tensor))
            continue
        meanings.append(meaning)
        if (
            rows is None
            and one is not None
            and type(out) is _ARRAY
            and out.dtype is meaning.dtype
            and out.shape == meaning.shape
            and not meaning.opaque
        ):
            # What is pulled in every step: the core holds the rest against the buffer itself.
            one.append((meaning.handle, 0, meaning.rows, out))
            arrays.append(out)
            continue
        meant = first, count, lead = mean(rows, meaning)
        if out is None:
            out = room(lead + meaning.row_shape, meaning, arena)
        else:
            check_out(out, lead + meaning.row_shape, meaning)
        memory = out.reshape(-1).view(np.uint8) if meaning.opaque else out
        if one is not None:
            one.append((meaning.handle, first, count, memory))
        else:
            work.add(meaning, meant, memory)
        arrays.append(out)
    return work


def pushes_of(table: NameTable, pushes: Iterable[Any]) -> Work:
    """Make pushes ready: (tensor, rows, values, op) each, or without the op.

    Raises:
        ConfigError: as `pulls_of`; or the values do not fit, or cannot be added.
    """
    work = Work(table, pushes=True)
    one = work.parts.get(0) if len(table.urls) == 1 else None
    for push in pushes:
        tensor, rows, values, op = _four(push)
        meaning = table.find(tensor)
        if meaning is None:
            work.missing.append(name_of(tensor))
            continue
        work.meanings.append(meaning)
        meant = first, count, lead = wanted(rows, meaning)
        given = _values(values, lead + meaning.row_shape, meaning)
        memory = given.reshape(-1).view(np.uint8) if meaning.opaque else given
        adds = _adds(op, meaning)
        if one is not None:
            one.append((meaning.handle, first, count, memory, adds))
        else:
            work.add(meaning, meant, memory, adds)
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


def room(shape: tuple[int, ...], meaning: Meaning, arena: Arena | None) -> Array:
    """An array for rows of a tensor, in the arena if there is one."""
    return np.empty(shape, meaning.dtype) if arena is None else arena.empty(shape, meaning.dtype)


def check_out(out: Any, shape: tuple[int, ...], meaning: Meaning) -> None:
    """Refuse what rows of this shape cannot be pulled into.

    Raises:
        ConfigError: see there.
    """
    if not isinstance(out, np.ndarray):
        raise ConfigError(
            f"tensor {meaning.name!r}: out is {type(out).__name__}; give a numpy array"
        )
    if out.shape != shape:
        raise ConfigError(
            f"tensor {meaning.name!r}: out has shape {out.shape}; the rows have {shape}"
        )
    dtype = out.dtype
    if dtype is not meaning.dtype and dtype != meaning.dtype:
        raise ConfigError(
            f"tensor {meaning.name!r}: out has dtype {dtype}; the tensor {meaning.dtype}"
        )
    flags = out.flags
    if not (flags.c_contiguous and flags.writeable):
        what = "writable" if flags.c_contiguous else "contiguous"
        raise ConfigError(
            f"tensor {meaning.name!r}: out is not {what}; give memory that can be filled"
        )


def _values(values: Any, shape: tuple[int, ...], meaning: Meaning) -> Array:
    dtype = meaning.dtype
    if isinstance(values, np.ndarray) and values.dtype != dtype:
        raise ConfigError(
            f"tensor {meaning.name!r}: values have dtype {values.dtype}, the tensor {dtype};"
            " convert them with astype, if that is what you mean"
        )
    try:
        given = np.asarray(values, dtype)
        return np.ascontiguousarray(np.broadcast_to(given, shape)).reshape(shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"tensor {meaning.name!r}: values do not fit {dtype} of shape {shape}: {error}"
        ) from error


def _adds(op: Any, meaning: Meaning) -> bool:
    if op not in OPERATIONS:
        raise ConfigError(f"op is {op!r}; give one of {', '.join(OPERATIONS)}")
    if op == "set":
        return False
    if meaning.dtype.kind not in ADDABLE or not meaning.dtype.isnative:
        raise ConfigError(
            f"tensor {meaning.name!r} is {meaning.dtype}, which cannot be added; op='set' replaces"
            " rows"
        )
    return True
