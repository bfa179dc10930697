"""What callers give: records to append, indices to read, generators."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

from forebay._numpy import Array, np
from forebay.errors import ConfigError, OutOfRangeError

__all__ = ["count_of", "generator_of", "numbers_of", "rows_of"]


def rows_of(records: Any, dtype: np.dtype[Any], path: str) -> Array:
    """The bytes of a record or of an array of records, as u1[n, record_bytes].

    Raises:
        ConfigError: they are no records of this dtype.
    """
    if isinstance(records, np.ndarray) and not np.can_cast(records.dtype, dtype.base, "equiv"):
        raise ConfigError(
            f"record file {path} takes records of dtype {dtype}, not {records.dtype};"
            f" convert them with astype, if that is what you mean"
        )
    try:
        array = np.asarray(records, dtype.base)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"record file {path}: what was given is no record of dtype {dtype}: {error};"
            " give a record, or an array of records"
        ) from error
    shape = dtype.shape
    if array.shape == shape:
        array = array[np.newaxis]
    if array.shape[1:] != shape or array.ndim != 1 + len(shape):
        raise ConfigError(
            f"record file {path}: shape {array.shape} is neither that of a record, {shape},"
            f" nor that of an array of them, (n, {', '.join(map(str, shape))})"
        )
    packed = np.ascontiguousarray(array).reshape(-1)
    return packed.view(np.uint8).reshape(len(array), dtype.itemsize)


def numbers_of(indices: Any, first: int, length: int, path: str) -> Array:
    """Numbers of the records that indices of the window mean, as i8[n].

    Args:
        indices: 0 is the oldest; negative ones count from behind the newest.
        first: number of the oldest record.
        length: of the window.
        path: of the file, for messages.

    Raises:
        ConfigError: they are no one-dimensional integers.
        OutOfRangeError: one lies outside of the window.
    """
    given = np.asarray(indices)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ConfigError(
            f"record file {path}: indices are {given.dtype} of shape {given.shape};"
            " give integers in one dimension"
        )
    # Before they are made signed: the largest would become the newest record.
    outside = np.flatnonzero((given < -length) | (given >= length))
    if len(outside):
        raise OutOfRangeError(
            f"record file {path}: index {given[outside[0]]} is outside of the window of {length}"
            f" records; give {-length} to {length - 1}, or refresh()"
        )
    numbers = given.astype(np.int64)
    return np.where(numbers < 0, numbers + length, numbers) + first


def generator_of(rng: Any) -> np.random.Generator:
    """The generator that was given.

    Raises:
        ConfigError: it is no generator.
    """
    if not isinstance(rng, np.random.Generator):
        raise ConfigError(f"rng is {rng!r}; give a generator, such as numpy.random.default_rng(7)")
    return rng


def count_of(value: SupportsIndex, name: str, least: int) -> int:
    """A number of things.

    Raises:
        ConfigError: it is no integer, or too small.
    """
    try:
        count = operator.index(value)
    except TypeError as error:
        raise ConfigError(f"{name} is {value!r}; give a whole number") from error
    if count < least:
        raise ConfigError(f"{name} is {count}; give {least} or more")
    return count
