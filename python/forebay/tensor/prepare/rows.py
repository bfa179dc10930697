"""Which rows a caller means.

A slice of step 1 is a first row and a count, which cost the same for one row and for all.
Everything else is an array of row numbers, as numpy's indexing has it.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from forebay._numpy import Array, np
from forebay.errors import ConfigError, OutOfRangeError

if TYPE_CHECKING:
    from forebay.tensor.prepare.ref import Meaning

__all__ = ["Wanted", "lent", "wanted"]

Wanted = tuple[Any, "int | None", tuple[int, ...]]
"""First row and count, or row numbers and None; and the shape in place of the first axis."""

_SIGNED = np.dtype(np.int64)
_UNSIGNED = np.dtype(np.uint64)
_NATIVE = (_SIGNED, _UNSIGNED)
_most = np.maximum.reduce


def wanted(rows: Any, meaning: Meaning) -> Wanted:
    """What `rows` means of a tensor.

    Raises:
        ConfigError: it is no slice, integer, or array of integers.
        OutOfRangeError: there is no such row.
    """
    if rows is None:
        return 0, meaning.rows, (meaning.rows,)
    if type(rows) is slice:
        start, stop, step = rows.indices(meaning.rows)
        if step == 1:
            count = stop - start if stop > start else 0
            return start, count, (count,)
        numbers = np.arange(start, stop, step, dtype=np.int64)
        return numbers, None, numbers.shape
    if not isinstance(rows, np.ndarray):
        try:
            number = operator.index(rows)
        except TypeError:
            rows = _array(rows, meaning)
        else:
            return _one(number, meaning), 1, ()
    return _numbers(rows, meaning), None, rows.shape


def lent(rows: Any, meaning: Meaning) -> Wanted:
    """The same for a plan, which reads an array of row numbers each time it is used.

    Raises:
        ConfigError: it is an array that could not be read where it is.
    """
    if not isinstance(rows, np.ndarray):
        return wanted(rows, meaning)
    if rows.dtype not in _NATIVE or not rows.flags.c_contiguous:
        raise ConfigError(
            f"tensor {meaning.name!r}: row numbers of a plan are read from the array each time, so"
            f" it has to be contiguous and of int64 or uint64; this one is {rows.dtype}"
        )
    return rows.reshape(-1), None, rows.shape


def _one(number: int, meaning: Meaning) -> int:
    if not -meaning.rows <= number < meaning.rows:
        raise _outside(number, meaning)
    return number + meaning.rows if number < 0 else number


def _array(rows: Any, meaning: Meaning) -> Array:
    try:
        made = np.asarray(rows)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"tensor {meaning.name!r}: rows cannot be used: {error}") from error
    return made.astype(np.int64) if made.size == 0 else made


def _numbers(rows: Array, meaning: Meaning) -> Array:
    kind = rows.dtype
    if kind is _SIGNED or kind in _NATIVE:
        numbers = rows
        if rows.ndim != 1 or not rows.flags.c_contiguous:
            numbers = np.ascontiguousarray(rows).reshape(-1)
    elif kind.kind in "iu":
        numbers = rows.astype(np.int64).reshape(-1)
    else:
        hint = "; numpy.flatnonzero makes them of a mask" if kind.kind == "b" else ""
        raise ConfigError(
            f"tensor {meaning.name!r}: rows are {kind}; give a slice or integers{hint}"
        )
    # One comparison for all: read as unsigned, a negative number is a large one.
    if numbers.size and _most(numbers.view(_UNSIGNED)) >= meaning.rows:
        return _counted_from_the_end(numbers, meaning)
    return numbers


def _counted_from_the_end(numbers: Array, meaning: Meaning) -> Array:
    most = int(_most(numbers))
    least = int(np.minimum.reduce(numbers))
    if most >= meaning.rows:
        raise _outside(most, meaning)
    if least < -meaning.rows:
        raise _outside(least, meaning)
    return np.where(numbers < 0, numbers + meaning.rows, numbers)


def _outside(number: int, meaning: Meaning) -> OutOfRangeError:
    return OutOfRangeError(
        f"row {number} is outside of tensor {meaning.name!r}, which has {meaning.rows} rows; give"
        f" {-meaning.rows} to {meaning.rows - 1}"
    )
