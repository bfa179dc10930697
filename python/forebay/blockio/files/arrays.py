"""Arrays of offsets, lengths or operations, made of whatever was given.

The core uses arrays as they are where they fit, and comes here for all others.
Where numpy is not installed, results are an `array.array` of 64-bit numbers.
"""

from __future__ import annotations

import functools
from array import array
from typing import TYPE_CHECKING, Any, Final

from forebay.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    OPERATION: np.dtype[np.void]
    _numpy: Any = np
else:
    try:
        import numpy as _numpy
    except ModuleNotFoundError:
        _numpy = None

__all__ = ["lengths", "new_results", "offsets", "operation_dtype", "operations"]

_FIELDS: Final = [
    ("offset", "<u8"),
    ("buffer_offset", "<u8"),
    ("length", "<u4"),
    ("file", "<u2"),
    ("kind", "u1"),
    ("flags", "u1"),
]


@functools.cache
def operation_dtype() -> np.dtype[np.void]:
    """The dtype of an operation, 24 bytes. Needs numpy.

    Fields: `offset` in the file and `buffer_offset` in the buffer in bytes, `length` in bytes,
    `file` (a number, from 0), `kind` (READ, WRITE, FSYNC or FDATASYNC), `flags` (0).
    """
    if _numpy is None:
        raise ModuleNotFoundError("forebay.blockio.OPERATION needs numpy: pip install numpy")
    made: np.dtype[np.void] = _numpy.dtype(_FIELDS)
    return made


def _new_array(count: int) -> array[int]:
    return array("q", bytes(8 * count))


new_results: Final = (
    _new_array if _numpy is None else functools.partial(_numpy.empty, dtype=_numpy.int64)
)
"""Make room for the results of so many operations."""


def offsets(values: Any) -> Any:
    """Offsets as unsigned 64-bit numbers.

    Raises:
        ConfigError: they are no whole numbers, negative, or have another shape than (n,).
    """
    return _integers("offsets", values, "Q")


def lengths(values: Any) -> Any:
    """Lengths as unsigned 32-bit numbers.

    Raises:
        ConfigError: as `offsets`.
    """
    return _integers("lengths", values, "I")


def operations(values: Any) -> Any:
    """Operations as an array of `OPERATION`.

    Raises:
        ConfigError: they have other fields, or another shape than (n,).
    """
    if _numpy is None:
        raise ConfigError(
            "operations have to be a buffer of 24 bytes each where numpy is not installed"
        )
    kind = operation_dtype()
    given = getattr(values, "dtype", kind)
    if given != kind:
        raise ConfigError(
            f"operations have dtype {given}; make them of dtype forebay.blockio.OPERATION"
        )
    try:
        made = _numpy.require(_numpy.asarray(values, kind), requirements=["C", "A"])
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"operations cannot be made into dtype forebay.blockio.OPERATION: {error}"
        ) from error
    return _flat("operations", made)


def _integers(name: str, values: Any, code: str) -> Any:
    try:
        if _numpy is None:
            return array(code, values)
        made = _flat(name, _numpy.asarray(values))
        if made.size and made.dtype.kind not in "iu":
            raise ConfigError(f"{name} have dtype {made.dtype}; give whole numbers")
        most = _numpy.iinfo(code).max
        if made.size and not 0 <= int(made.min()) <= int(made.max()) <= most:
            raise ConfigError(f"{name} reach from {made.min()} to {made.max()}; give 0 to {most}")
        return _numpy.require(made, code, ["C", "A"])
    except (TypeError, OverflowError) as error:
        raise ConfigError(
            f"{name} cannot be used: {error}; give whole numbers, 0 or more"
        ) from error


def _flat(name: str, made: Any) -> Any:
    if made.ndim != 1:
        raise ConfigError(f"{name} have shape {made.shape}; give one for each operation: (n,)")
    return made
