"""`lease.fork`: live copies of a service; and services that are forked for each lease."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.processes import alive, children, eventually, open_files_limited, parent
from tests.pool.scripts import run
from tests.pool.services import Barren, Costly, Tree


@pytest.fixture
def pool(pool_of: PoolOf):
    with pool_of(max_size=2) as pool:
        yield pool


@pytest.fixture
def spareless():
    """A pool whose keeper has no processes of services but those that are lent or idle."""
    with forebay.ServicePool(max_size=2, spares=0, name="tests") as pool:
        yield pool


def test_copies_have_the_state_and_go_their_own_ways(pool: forebay.ServicePool) -> None:
    with pool.acquire(Tree) as tree:
        tree.step(1)
        with tree.lease.fork(3) as copies:
            assert [copied.step(10 + n) for n, copied in enumerate(copies)] == [
                [1, 10],
                [1, 11],
                [1, 12],
            ]
            assert tree.step(2) == [1, 2]
            pids = {tree.lease.pid, *(copied.lease.pid for copied in copies)}
            assert len(pids) == 4
            assert {parent(pid) for pid in pids} == {parent(tree.lease.pid)}, "not the keeper's"


def test_copies_can_be_copied(pool: forebay.ServicePool) -> None:
    with pool.acquire(Tree) as tree:
        tree.step(1)
        with tree.lease.fork() as [left], left.lease.fork() as [leaf]:
            left.step(2)
            assert leaf.step(3) == [1, 3]


def test_copies_end_with_their_block_and_are_never_lent_on(pool: forebay.ServicePool) -> None:
    with pool.acquire(Tree) as tree:
        with tree.lease.fork(2) as copies:
            pids = [copied.lease.pid for copied in copies]
            copies[0].lease.close()
            assert eventually(lambda: not alive(pids[0]))
            assert copies[1].step(1) == [1]
        assert eventually(lambda: not any(map(alive, pids)))
        with pytest.raises(forebay.StaleError):
            copies[1].step(2)
        kept = tree.lease.pid
    assert pool.stats()["live"] == pool.stats()["idle"] == 1
    with pool.acquire(Tree) as tree:
        assert tree.lease.pid == kept


def test_copies_outlive_the_lease_of_the_original(pool: forebay.ServicePool) -> None:
    with pool.acquire(Tree) as tree:
        tree.step(1)
        branches = tree.lease.fork(1)
        [copied] = branches.__enter__()
    assert copied.step(2) == [1, 2]
    branches.close()


def test_copies_do_not_count_against_max_size(pool: forebay.ServicePool) -> None:
    with pool.acquire(Tree) as first, first.lease.fork(4), pool.acquire(Tree, timeout=5):
        assert pool.stats()["live"] == 2


def test_copies_draw_their_own_random_numbers(pool: forebay.ServicePool) -> None:
    with pool.acquire(Tree) as tree:
        tree.draw()
        with tree.lease.fork(3) as copies:
            drawn = [tree.draw(), *(copied.draw() for copied in copies)]
            assert len({own for own, _ in drawn}) == len({numpy for _, numpy in drawn}) == 4
            assert [copied.seeds() for copied in copies] == [1, 1, 1]
            assert tree.seeds() == 0


def test_copies_draw_the_same_where_asked_for(pool: forebay.ServicePool) -> None:
    with pool.acquire(Tree) as tree:
        tree.draw()
        with tree.lease.fork(2, same_seed=True) as copies:
            assert tree.draw() == copies[0].draw() == copies[1].draw()
            assert copies[0].seeds() == 0


def test_each_copy_has_a_directory_of_its_own(pool: forebay.ServicePool) -> None:
    with pool.acquire(Tree) as tree, tree.lease.fork(2) as copies:
        places = {os.path.dirname(service.where()[1]) for service in [tree, *copies]}
        assert len(places) == 3
    assert eventually(lambda: sum(map(os.path.exists, places)) == 1), "a copy's directory is left"


async def copied_on_a_loop(pool: forebay.ServicePool) -> list[list[int]]:
    async with pool.acquire(Tree) as tree:
        await tree.step(1)
        async with tree.lease.fork(3) as copies:
            return await asyncio.gather(*(copied.step(2) for copied in copies))


def test_copies_on_an_event_loop(pool: forebay.ServicePool) -> None:
    assert asyncio.run(copied_on_a_loop(pool)) == [[1, 2]] * 3


def test_a_service_with_threads_is_not_copied(pool: forebay.ServicePool) -> None:
    with pool.acquire(Tree) as tree:
        tree.start_thread()
        with (
            pytest.raises(forebay.RemoteError, match=r"1 threads besides its own \(ticker\)"),
            tree.lease.fork(2),
        ):
            pass
        assert tree.step(1) == [1], "it is as it was"
        assert eventually(lambda: len(pool.services()) == 1)


def test_a_service_that_dies_is_not_copied(pool: forebay.ServicePool) -> None:
    with pool.acquire(Tree) as tree:
        os.kill(tree.lease.pid, signal.SIGKILL)
        with pytest.raises(forebay.DiedError), tree.lease.fork(2):
            pass
    assert eventually(lambda: not pool.services())


ORPHAN = """
import socket
from forebay import _core
from forebay.pool.service.worker import Orphaned, Target, branch
keeper, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
keeper.close()
try:
    branch(_core.KeeperLink(end.detach()), Target(), count=1, same_seed=False)
except Exception as failure:
    print("answered", repr(failure))
except Orphaned as orphaned:
    print("ended by", repr(orphaned.__cause__))
"""


def test_a_service_whose_keeper_is_gone_answers_no_order_to_be_copied(tmp_path: Path) -> None:
    """Its caller learns of the keeper's death from the pool: an answer would race with the kill."""
    assert run("-c", ORPHAN, cwd=tmp_path).stdout.startswith("ended by BrokenError(")


def test_a_service_that_is_stopped_is_not_waited_for_longer_than_asked(
    pool: forebay.ServicePool,
) -> None:
    with pool.acquire(Tree) as tree:
        pid = tree.lease.pid
        os.kill(pid, signal.SIGSTOP)
        with (
            pytest.raises(forebay.DeadlineError, match=r"was not copied 2 times within 0\.1 s"),
            tree.lease.fork(2, timeout=0.1),
        ):
            pass
    assert eventually(lambda: not alive(pid)), "a service that did not answer is ended"
    with pool.acquire(Tree, timeout=10) as tree:
        assert tree.step(1) == [1]


def test_more_copies_than_the_socket_holds_orders(pool: forebay.ServicePool) -> None:
    with open_files_limited(1300), pool.acquire(Tree) as tree:  # each copy takes four
        tree.step(1)
        with tree.lease.fork(300, timeout=60) as copies:
            assert [copied.step(2) for copied in copies] == [[1, 2]] * 300
            assert len({copied.lease.pid for copied in copies}) == 300


def test_a_service_that_was_half_copied_is_not_lent_on(pool: forebay.ServicePool) -> None:
    with pool.acquire(Tree) as tree:
        pid = tree.lease.pid
        with open_files_limited(12), pytest.raises(forebay.LimitError), tree.lease.fork(20):
            pass
        assert tree.step(1) == [1], "its holder may go on"
    assert eventually(lambda: not alive(pid))
    with pool.acquire(Tree) as tree, tree.lease.fork(1, timeout=10) as [copied]:
        assert tree.lease.pid != pid
        assert copied.step(1) == [1]


def test_a_copy_that_cannot_be_reseeded_says_why(spareless: forebay.ServicePool) -> None:
    with spareless.acquire(Barren) as barren:
        barren.step(1)
        with pytest.raises(ValueError, match=r"no seed after \[1\]"), barren.lease.fork(2):
            pass
        keeper = parent(barren.lease.pid)
        assert barren.step(2) == [1, 2]
        assert eventually(lambda: len(services_of(keeper)) == 1), "a copy is left"
        with barren.lease.fork(2, same_seed=True) as copies:
            assert [copied.step(3) for copied in copies] == [[1, 2, 3]] * 2


def services_of(keeper: int) -> list[int]:
    """Processes of services, whether the keeper knows them or not."""
    found = []
    for pid in children(keeper):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/comm").read_text() == "fb service\n":
                found.append(pid)
    return found


def test_no_copy_outlives_an_original_that_ends_while_it_forks(
    spareless: forebay.ServicePool,
) -> None:
    with spareless.acquire(Tree) as other:
        keeper = parent(other.lease.pid)
        for attempt in range(60):
            with (
                contextlib.suppress(forebay.Error),
                spareless.acquire(Tree) as tree,
                tree.lease.fork(30, timeout=0.004 + attempt % 10 * 0.001),
            ):
                pass

        def only_known() -> bool:
            found = services_of(keeper)
            known = {service[2] for service in spareless.core.services()}
            return spareless.stats()["starting"] == 0 and known.issuperset(found)

        assert eventually(only_known), "copies are left that nobody owns"


def test_a_copy_that_dies_leaves_the_others_alone(pool: forebay.ServicePool) -> None:
    with pool.acquire(Tree) as tree, tree.lease.fork(2) as copies:
        os.kill(copies[0].lease.pid, signal.SIGKILL)
        with pytest.raises(forebay.DiedError, match="SIGKILL"):
            copies[0].step(1)
        assert copies[1].step(1) == tree.step(1) == [1]


def test_a_number_of_copies_below_one_is_refused(pool: forebay.ServicePool) -> None:
    with pool.acquire(Tree) as tree, pytest.raises(forebay.ConfigError, match="1 or more"):
        tree.lease.fork(0)


def test_every_lease_gets_a_fork_of_a_service_made_once(pool: forebay.ServicePool) -> None:
    origins = []
    for _ in range(3):
        with pool.acquire(Costly) as costly:
            assert costly.step(1) == [1], "what an earlier lease did"
            assert costly.seeds() == 1
            origins.append(costly.origin())
    assert len({made_by for made_by, _ in origins}) == 1
    assert len({pid for _, pid in origins}) == 3


def test_a_constructor_that_raises_in_the_template_is_told(pool: forebay.ServicePool) -> None:
    with pytest.raises(forebay.ConfigError, match="no such model"), pool.acquire(Costly.spec(True)):
        pass
