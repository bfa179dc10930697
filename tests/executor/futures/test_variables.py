"""The variables of functions that go by value: each call sees those that it was submitted with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import forebay

pytest.importorskip("cloudpickle", reason="cloudpickle is not installed: pip install cloudpickle")

WAIT_S = 20.0

CELL = """
SCALE = 1

def scaled(number):
    return SCALE * number

def negated(number):
    return -SCALE * number
"""


@pytest.fixture
def cell() -> Iterator[dict[str, Any]]:
    """The variables of the main module, where a cell has run."""
    names = vars(sys.modules["__main__"])
    before = dict(names)
    exec(CELL, names)
    yield names
    names.clear()
    names.update(before)


@pytest.fixture
def executor() -> Iterator[forebay.Executor]:
    """One worker, which runs every call."""
    with forebay.Executor(1, by_value=True) as made:
        yield made


def test_a_variable_that_has_its_earlier_value_again(
    cell: dict[str, Any], executor: forebay.Executor
) -> None:
    """The worker has unpickled that function before, and another one's variables came since."""
    futures = []
    for scale in (1, 2, 1, 1, 2):
        cell["SCALE"] = scale
        futures.append(executor.submit(cell["scaled"], 10))
    assert [future.result(WAIT_S) for future in futures] == [10, 20, 10, 10, 20]


def test_a_variable_that_another_function_brought(
    cell: dict[str, Any], executor: forebay.Executor
) -> None:
    """Two functions use it, and each call has the value of its own submission."""
    futures = []
    for scale, name in ((1, "scaled"), (2, "negated"), (1, "scaled")):
        cell["SCALE"] = scale
        futures.append(executor.submit(cell[name], 10))
    assert [future.result(WAIT_S) for future in futures] == [10, -20, 10]
