"""Tensors of many dtypes whose rows all differ, and rows to ask for."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

ROWS = 11

MIXED = np.dtype([("id", "i8"), ("weights", "f4", (3,)), ("tag", "S5"), ("on", "?")])


def _mixed() -> Array:
    made = np.zeros(ROWS, MIXED)
    made["id"] = np.arange(ROWS) * 1000
    made["weights"] = np.arange(ROWS * 3).reshape(ROWS, 3) / 7
    made["tag"] = [f"t{row}" for row in range(ROWS)]
    made["on"] = np.arange(ROWS) % 2
    return made


def _numbers(dtype: str, *row_shape: int) -> Array:
    count = ROWS * int(np.prod(row_shape, dtype=int))
    return (np.arange(count) % 120).astype(dtype).reshape(ROWS, *row_shape)


CONTENTS: dict[str, Array] = {
    "f4": _numbers("f4", 8),
    "f2": _numbers("f2", 3, 2),
    "f8": _numbers("f8"),
    "longdouble": _numbers("g", 2),
    "c8": _numbers("c8", 2) * np.complex64(1 + 2j),
    "c16": _numbers("c16", 5) * (3 - 1j),
    "i1": _numbers("i1", 7),
    "u2": _numbers("u2", 1),
    "i8": _numbers("i8", 2, 3),
    "bool": _numbers("i4", 9) % 3 == 0,
    "other byte order": _numbers(">i4", 4),
    "text": np.array([[f"w{row}", "x"] for row in range(ROWS)]),
    "bytes": np.array([b"%d" % row for row in range(ROWS)]),
    "time": np.arange(ROWS).astype("M8[s]"),
    "span": np.arange(ROWS * 2).astype("m8[ms]").reshape(ROWS, 2),
    "void": np.array([bytes([row] * 6) for row in range(ROWS)], "V6"),
    "mixed": _mixed(),
    "long rows": _numbers("u1", 20_000),
    "no rows": np.zeros((0, 4), "f4"),
}

ASKED: dict[str, Any] = {
    "all": None,
    "slice": slice(2, 7),
    "open slice": slice(6, None),
    "slice from the end": slice(-4, -1),
    "slice beyond the end": slice(8, 99),
    "every other row, backwards": slice(None, None, -2),
    "no rows": slice(5, 5),
    "a row": 3,
    "the last row": -1,
    "numpy's integer": np.int32(4),
    "a list": [0, 10, 4],
    "repeated, and from the end": [1, 1, -1, -11, 5, 1],
    "an array of two axes": np.array([[0, 9], [5, 5], [-2, 3]]),
    "short integers": np.array([4, 0], "u1"),
    "large integers": np.array([10, 0, 7], "u8"),
    "a part of an array": np.arange(20)[1:10:3],
    "none": [],
}


def picked(content: Array, rows: Any) -> Array:
    """What numpy makes of it."""
    if rows is None:
        return content
    if isinstance(rows, list):
        rows = np.array(rows, int)
    return np.asarray(content[rows], content.dtype)


def same(one: Any, other: Any) -> bool:
    """Whether two arrays agree in dtype, shape and every byte."""
    one, other = np.asarray(one), np.asarray(other)
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )
