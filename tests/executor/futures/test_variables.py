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

model = None
calls = 0

def load(first):
    global model, calls
    model, calls = "loaded", first

def used(function=None):
    global calls
    calls += 1
    return model, calls, SCALE

def used_again():
    return used()
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


def test_what_the_initializer_assigned_stays(cell: dict[str, Any]) -> None:
    """No call brings back what the cell had before, and what calls have made of it stays too."""
    with forebay.Executor(1, by_value=True, initializer=cell["load"], initargs=(10,)) as executor:
        first = executor.submit(cell["used"]).result(WAIT_S)
        cell["SCALE"] = 2
        second = executor.submit(cell["used"]).result(WAIT_S)
        third = executor.submit(cell["used_again"]).result(WAIT_S)
        fourth = executor.submit(cell["used"], cell["used_again"]).result(WAIT_S)
    assert first == ("loaded", 11, 1)
    assert second == ("loaded", 12, 2)
    assert third == ("loaded", 13, 2)
    assert fourth == ("loaded", 14, 2)
