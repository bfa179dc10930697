"""What the tasks of one process of a cluster share: its templates and its directory."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.executor.engine import node as node_module
from forebay.executor.engine.node import APPLICATIONS_MAX, Node
from forebay.executor.engine.order import Order
from tests.executor.serving import until

PATIENCE_S = 10.0


@pytest.fixture
def node() -> Iterator[Node]:
    """That of a process."""
    made = Node()
    yield made
    made.close()


def order(number: int) -> Order:
    """One of an application of its own, which nobody imports."""
    return Order(kind="file", target=f"/nowhere/app{number}.py", attribute=None, directory=None)


def test_a_directory_that_was_removed_is_protected_again(node: Node) -> None:
    """The next process of this user removes directories that nobody has locked."""
    first = node.new_directory()
    shutil.rmtree(node.directory)
    again = node.new_directory()
    other = Node()
    try:
        assert os.path.isdir(again)
        assert not os.path.exists(first)
    finally:
        other.close()
    assert os.path.isdir(node.new_directory())


def test_a_directory_that_another_process_looks_at_is_waited_for(node: Node) -> None:
    """It has the lock for as long as it removes what it takes for left."""
    shutil.rmtree(node.directory)
    os.mkdir(node.directory, 0o700)
    taken = node_module._lock(node.directory)
    assert taken is not None
    made: list[str] = []
    asks = threading.Thread(target=lambda: made.append(node.new_directory()))
    asks.start()
    asks.join(0.2)
    assert not made
    shutil.rmtree(node.directory)
    os.close(taken)
    asks.join(PATIENCE_S)
    assert [Path(path).parent for path in made] == [Path(node.directory)]
    assert node_module._lock(node.directory) is None, "it is locked"


def test_no_more_templates_stay_warm_than_may(node: Node) -> None:
    """Those that nobody uses; one that is used stays."""
    with node.group(order(0)):
        for number in range(1, 2 * APPLICATIONS_MAX):
            with node.group(order(number)):
                pass
            assert len(node._versions) <= APPLICATIONS_MAX
        assert len(node._versions) == APPLICATIONS_MAX
        targets = {Path(key[1]).stem for key in node._versions}
        assert targets == {"app0", "app5", "app6", "app7"}


def test_the_end_of_a_template_holds_up_nobody(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds at worst, in which workers that start have to say that they live."""
    may_end, has_ended = threading.Event(), threading.Event()
    with node.group(order(1)) as group:
        pass
    close = group.close

    def slow(timeout: float) -> None:
        assert may_end.wait(PATIENCE_S)
        close(timeout)
        has_ended.set()

    monkeypatch.setattr(group, "close", slow)
    newer = Order("file", order(1).target, None, None, code="newer")
    entered = threading.Event()

    def start() -> None:
        with node.group(newer), node.lock:
            entered.set()

    starts = threading.Thread(target=start)
    starts.start()
    is_free = entered.wait(PATIENCE_S / 2)
    may_end.set()
    starts.join(PATIENCE_S)
    assert is_free, "it waits for the template of the older code"
    assert has_ended.wait(PATIENCE_S)
    until(lambda: not any(it.name == "forebay-node-end" for it in threading.enumerate()))
