"""What a pull costs in Python: counted, for time jitters and calls do not."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.tensor import TensorClient
from tests.tensor.conftest import TABLE
from tests.tensor.shards import serving, url_in


def calls_of(act: Callable[[], Any]) -> Counter[str]:
    """Calls of Python and of C functions while something is done, by kind of event."""
    counted: Counter[str] = Counter()

    def count(_: object, event: str, __: object) -> None:
        counted[event] += 1

    act()  # once before, for what is made once
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return counted


@pytest.fixture
def client(tmp_path: Path) -> Any:
    """Connect to one shard."""
    with serving(tmp_path, {"table": TABLE}), TensorClient(url_in(tmp_path), slots=16) as client:
        yield client


def pulls_of(client: TensorClient, count: int) -> list[Any]:
    """Prepared handles and places for what is pulled, by slices and by rows."""
    ref = client.tensor("table")
    outs = [np.zeros((1, 10), "f4") for _ in range(count)]
    rows: list[Any] = [slice(at % 100, at % 100 + 1) for at in range(count // 2)]
    rows += [np.array([at % 100]) for at in range(count - count // 2)]
    return list(zip([ref] * count, rows, outs, strict=True))


def test_a_plan_costs_the_same_for_one_pull_and_for_many(client: TensorClient) -> None:
    """One crossing into the core, and no Python for each pull."""
    few, many = (client.plan(pulls_of(client, count)) for count in (2, 500))
    assert calls_of(few.pull) == calls_of(many.pull)
    assert calls_of(many.pull)["call"] <= 10
    assert calls_of(many.pull)["c_call"] <= 5


def test_pull_many_crosses_once_and_calls_little_for_each(client: TensorClient) -> None:
    """What cannot be avoided: find the tensor, mean its rows, look at the place for them."""
    few, many = pulls_of(client, 100), pulls_of(client, 500)
    before, after = (calls_of(lambda given=given: client.pull_many(given)) for given in (few, many))
    for event, most in (("call", 5), ("c_call", 8)):
        assert after[event] - before[event] <= most * 400
