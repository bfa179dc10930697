"""What goes by value, and how it is noticed that it has changed."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import forebay
from forebay.pool.lend.kind import PythonKind
from forebay.pool.service import by_value
from forebay.pool.service.by_value import KEPT_MAX, Values, received, value_of
from tests.pool.processes import alive, eventually

pytest.importorskip("cloudpickle", reason="cloudpickle is not installed: pip install cloudpickle")

ROUNDS = 8
"""Definitions of one class, one after the other."""

FACTORY = """
def scaled(number):
    return FACTOR * number + len(TABLE)
"""


@pytest.fixture
def cell() -> dict[str, Any]:
    """The variables of a cell, in no module."""
    names: dict[str, Any] = {"__name__": "cell_of_a_test", "FACTOR": 6, "TABLE": []}
    exec(FACTORY, names)
    return names


def test_what_was_sent_is_what_it_was(cell: dict[str, Any]) -> None:
    """The receiver's variables are the sender's, as they were."""
    sent = value_of(cell["scaled"])
    cell["FACTOR"] = 1
    assert received(sent.data)(7) == 42


@pytest.mark.parametrize(
    ("name", "value", "current"),
    [
        ("FACTOR", 7, False),
        ("FACTOR", 6.0, False),
        ("FACTOR", 6, True),
        ("TABLE", [], False),
        ("OTHER", 1, True),
    ],
)
def test_an_assigned_variable_is_noticed(
    name: str, value: Any, current: bool, cell: dict[str, Any]
) -> None:
    """One that the code uses; equal numbers and texts are the same."""
    values = Values()
    before = values.of(cell["scaled"])
    cell[name] = value
    assert before.is_current() is current
    assert (values.of(cell["scaled"]) is before) is current


def test_a_variable_of_an_enclosing_function_is_noticed_too() -> None:
    """A closure that was given another value is sent again."""
    factor = 6

    def scaled(number: int) -> int:
        return factor * number

    sent = value_of(scaled)
    assert sent.is_current()
    factor = 7
    assert not sent.is_current()


def test_the_same_again_has_the_same_bytes(cell: dict[str, Any]) -> None:
    """So that services stay where a cell ran again and changed nothing."""
    before = value_of(cell["scaled"])
    cell["TABLE"] = []
    assert not before.is_current()
    assert value_of(cell["scaled"]).data == before.data


def test_a_bounded_number_is_kept(cell: dict[str, Any]) -> None:
    """A notebook that runs for a month does not grow with each cell."""
    values = Values()
    first = values.of(cell["scaled"])
    for number in range(KEPT_MAX):
        values.of(lambda number=number: number)
    assert values.of(cell["scaled"]) is not first
    assert len(values._kept) == KEPT_MAX


def test_the_limit_of_bytes_names_the_largest(
    cell: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sends a data set with each service without knowing."""
    monkeypatch.setattr(by_value, "BYTES_MAX", 10_000)
    cell["TABLE"] = bytes(20_000)
    with pytest.raises(forebay.LimitError, match=r"'TABLE', which scaled uses") as refused:
        value_of(cell["scaled"])
    assert refused.value.limit == 10_000


def test_a_variable_of_an_enclosing_function_is_named() -> None:
    """A closure has variables too."""
    guard = threading.Lock()

    def locked() -> bool:
        return guard.locked()

    with pytest.raises(forebay.ConfigError, match=r"locked uses 'guard', a _thread\.lock"):
        value_of(locked)


def test_a_missing_cloudpickle_is_named_with_what_to_type(
    pool: forebay.ServicePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is installed by whoever needs it, and everything else works without."""

    class Local(forebay.Service):
        def pid(self) -> int:
            return os.getpid()

    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    by_value._pickler_class.cache_clear()
    missing = r"by_value=True needs the package cloudpickle: pip install cloudpickle"
    for use in (pool.acquire, pool.warm):
        with pytest.raises(forebay.ConfigError, match=missing):
            use(Local, by_value=True)
    with (
        forebay.Executor(1, by_value=True) as executor,
        pytest.raises(forebay.ConfigError, match=missing),
    ):
        executor.submit(os.getpid).result()
    with forebay.Executor(1) as executor:
        assert executor.submit(os.getpid).result() != os.getpid()


def test_a_service_by_value_is_lent_again(pool: forebay.ServicePool) -> None:
    """The same class has the same bytes each time, also in a shared pool, and for `warm`."""

    class Local(forebay.Service):
        def pid(self) -> int:
            return os.getpid()

    pids = set()
    for _ in range(3):
        with pool.acquire(Local, by_value=True) as local:
            pids.add(local.pid())
    assert len(pids) == 1
    pool.warm(Local, 1, by_value=True)
    with pool.acquire(Local, by_value=True) as local:
        assert {local.pid()} == pids
    pool.warm(Local, 0, by_value=True)


RESETTING = """
import os, time
import forebay

class Resetting(forebay.Service):
    __module__ = "__main__"

    def version(self):
        return os.getpid(), VERSION

    def reset(self):
        time.sleep(0.3)
"""


@pytest.fixture
def main() -> Iterator[dict[str, Any]]:
    """The variables of the main module, where a cell with `Resetting` has run."""
    names = vars(sys.modules["__main__"])
    before = dict(names)
    names["VERSION"] = 1
    names["__name__"] = "__main__"  # whatever a test before has made of it
    exec(RESETTING, names)
    yield names
    names.clear()
    names.update(before)


def version_of(pool: forebay.ServicePool, cell: dict[str, Any]) -> tuple[int, int]:
    """The process and the version of what the pool lends now."""
    with pool.acquire(cell["Resetting"], by_value=True) as service:
        told: tuple[int, int] = service.version()
        return told


def test_a_replaced_service_that_is_being_reset_ends_soon(main: dict[str, Any]) -> None:
    """It cannot be taken while its variable changes, and is looked for again."""
    with forebay.ServicePool(max_size=2) as pool:
        old, told = version_of(pool, main)
        assert told == 1
        main["VERSION"] = 2
        assert version_of(pool, main)[1] == 2
        assert eventually(lambda: version_of(pool, main)[1] == 2 and not alive(old))


def test_a_variable_that_has_its_earlier_value_again_is_that_of_its_services(
    main: dict[str, Any],
) -> None:
    """Whether one of the earlier ones is left or not."""
    with forebay.ServicePool(max_size=2) as pool:
        for version in (1, 2, 1, 1, 2):
            main["VERSION"] = version
            assert version_of(pool, main)[1] == version


def test_definitions_without_services_are_forgotten(main: dict[str, Any]) -> None:
    """A cell that runs again and again does not leave its pickles in the pool."""
    with forebay.ServicePool(max_size=2) as pool:
        for version in range(ROUNDS):
            main["VERSION"] = version
            assert version_of(pool, main)[1] == version
        assert eventually(lambda: version_of(pool, main)[1] == version and len(pool._kinds) == 1)
        assert eventually(lambda: kinds_named("Resetting") <= 2), "of a service that has ended"
        assert {one["name"] for one in pool.services()} == {"Resetting"}


def kinds_named(name: str) -> int:
    """How many kinds of services of that name there are in this process, whoever holds them."""
    gc.collect()
    kinds = [one for one in gc.get_objects() if isinstance(one, PythonKind) and one.name == name]
    return len({kind.key for kind in kinds})


def test_a_class_that_is_forked_for_each_lease_goes_by_value(pool: forebay.ServicePool) -> None:
    """Made once in its template; what is too long for the message to that is refused."""
    table = bytes(1000)

    class Forked(forebay.Service):
        resets = forebay.Reset.FORK

        def __init__(self) -> None:
            self.uses = 0

        def use(self) -> tuple[int, int]:
            self.uses += 1
            return self.uses, len(table)

    for _ in range(2):
        with pool.acquire(Forked, by_value=True) as forked:
            assert forked.use() == (1, 1000)
    table = bytes(1 << 20)
    with pytest.raises(forebay.LimitError), pool.acquire(Forked, by_value=True):
        pass
