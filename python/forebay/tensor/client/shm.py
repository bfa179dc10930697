"""Pulls from shared memory, without what pulls over connections need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay._numpy import np
from forebay.errors import ConfigError
from forebay.tensor.prepare.ref import TensorRef
from forebay.tensor.prepare.rows import wanted
from forebay.tensor.prepare.work import check_out, room

if TYPE_CHECKING:
    from forebay import _core
    from forebay.memory import Arena
    from forebay.tensor.prepare.ref import NameTable

__all__ = ["pull_few", "pull_shm"]

FEW = 8
"""With more, one call of the core for all of them costs less than one for each."""

_ARRAY = np.ndarray


def pull_shm(
    link: _core.TensorLink,
    table: NameTable,
    tensor: TensorRef | str,
    rows: Any,
    out: Any,
    arena: Arena | None,
) -> Any:
    """Pull rows of the one shard that there is.

    Returns:
        `out`, or a new array; None: the call has to take the connection, which also raises the
        errors of a call that cannot be made.

    Raises:
        ConfigError, OutOfRangeError: as `TensorClient.pull`.
    """
    if rows is None and type(tensor) is TensorRef and type(out) is _ARRAY:
        # The pull of every training step: the checks below cost as much as a copy of 8 KiB.
        known = tensor.meaning
        if known.shm_link is link and out.dtype is known.dtype and out.shape == known.shape:
            try:
                return out if link.read(known.handle, 0, known.rows, out) else None
            except ConfigError:
                pass  # checked again below, with the messages of other pulls
    meaning = table.find(tensor)
    if meaning is None:
        return None
    first, count, lead = wanted(rows, meaning)
    if out is None:
        out = room(lead + meaning.row_shape, meaning, arena)
    else:
        check_out(out, lead + meaning.row_shape, meaning)
    memory = out.reshape(-1).view(np.uint8) if meaning.opaque else out
    if not link.read(meaning.handle, first, count, memory):
        return None
    if not meaning.opaque:
        meaning.shm_link = link
    return out


def pull_few(
    link: _core.TensorLink, table: NameTable, pulls: tuple[Any, ...], arena: Arena | None
) -> list[Any] | None:
    """Pull several, if they are few: (tensor, rows, out) each.

    Returns:
        The arrays; None: the connection has to be used, for all of them.

    Raises:
        ConfigError, OutOfRangeError: as `TensorClient.pull_many`.
    """
    if len(pulls) > FEW:
        return None
    found = []
    for pull in pulls:
        if type(pull) is not tuple or len(pull) != 3:
            return None
        array = pull_shm(link, table, *pull, arena)
        if array is None:
            return None
        found.append(array)
    return found
