"""Several pulls and pushes in one call: all at once, as they arrive, prepared."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.errors import ConfigError, OutOfRangeError, StaleError
from forebay.tensor import TensorClient, TensorServer
from tests.tensor.conftest import TABLE
from tests.tensor.contents import CONTENTS, same
from tests.tensor.faces import Face
from tests.tensor.shards import serving, url_in

pytestmark = pytest.mark.parametrize("fabric", ["auto", "stream"], indirect=True)


def test_pull_many_gives_all_in_order(face: Face) -> None:
    """Slices, rows, whole tensors, with and without out, beside each other."""
    out = np.zeros((2, 10), "f4")
    pulls = [("table", slice(3, 9)), "table", ("table", [5, 5], out), ("table", -1, None)]
    found = face.call("pull_many", pulls)
    assert found[2] is out
    for one, rows in zip(found, (slice(3, 9), slice(None), [5, 5], -1), strict=True):
        assert same(one, TABLE[rows])
    assert face.call("pull_many", []) == []


def test_push_many_applies_all(face: Face) -> None:
    """Gradients of several tensors, or of parts of one, in one call."""
    face.call(
        "push_many",
        [("table", slice(0, 50), 1), ("table", [60, 60], 2.0, "add"), ("table", 99, 3, "set")],
    )
    expected = TABLE.copy()
    expected[:50] = 1
    expected[60] += 4
    expected[99] = 3
    assert same(face.call("pull", "table"), expected)


def test_more_pulls_than_a_request_holds(client: TensorClient) -> None:
    """Thousands of small pulls, each into a place of its own."""
    rng = np.random.default_rng(5)
    rows = rng.integers(0, 100, 3_000)
    out = np.zeros((3_000, 1, 10), "f4")
    client.pull_many([("table", slice(row, row + 1), out[at]) for at, row in enumerate(rows)])
    assert same(out[:, 0], TABLE[rows])


def test_versions_tell_which_write_was_seen(client: TensorClient) -> None:
    """Who waits for a push of another worker compares versions."""
    versions = np.zeros(2, "u8")
    client.pull_many([("table", 0), ("table", 1)], versions=versions)
    before = versions.copy()
    client.push("table", 0, 5)
    client.push("table", 1, 5)
    client.pull_many([("table", 0), ("table", 1)], versions=versions)
    assert (versions == before + 2).all()
    client.push_many([("table", 0, 6)], versions=versions[:1])
    assert versions[0] == before[0] + 3
    with pytest.raises(ConfigError, match=r"uint64 of shape \(2,\)"):
        client.pull_many(["table", "table"], versions=np.zeros(2))


def test_the_error_names_the_pull_that_failed(face: Face) -> None:
    """Among many, the one that was wrong is told; the table is as it was."""
    with pytest.raises(OutOfRangeError, match="row 100"):
        face.call("pull_many", [("table", 1), ("table", [3, 100])])
    with pytest.raises(ConfigError, match="'tabel'"):
        face.call("pull_many", [("table", 1), "tabel"])
    for wrong in ([("table", 1, None, None)], [5], [()]):
        with pytest.raises(ConfigError, match="no pull"):
            face.call("pull_many", wrong)
    with pytest.raises(ConfigError, match="no push"):
        face.call("push_many", [("table", 1)])


def test_each_comes_once_and_whole(client: TensorClient) -> None:
    """Whoever computes on what is there need not wait for the rest."""
    pulls = [("table", slice(at, 100 - at)) for at in range(40)]
    seen = {}
    for at, array in client.pull_each(pulls):
        assert at not in seen
        assert same(array, TABLE[at : 100 - at])
        seen[at] = True
    assert sorted(seen) == list(range(40))


def test_leaving_early_cancels_the_rest(client: TensorClient) -> None:
    """A loop that has found what it sought leaves nothing outstanding."""
    for _ in range(20):
        arrived = client.pull_each([("table", slice(0, 100))] * 30)
        at, array = next(arrived)
        assert 0 <= at < 30
        assert same(array, TABLE)
        arrived.close()  # type: ignore[attr-defined]
    assert same(client.pull("table"), TABLE)


def test_each_on_an_event_loop(tmp_path: Path, shards: int, servers: Any) -> None:
    """The same by async for."""

    async def main() -> None:
        async with TensorClient(url_in(tmp_path), shards=shards) as client:
            seen = set()
            async for at, array in client.pull_each([("table", [at, 99]) for at in range(40)]):
                assert same(array, TABLE[[at, 99]])
                seen.add(at)
            assert seen == set(range(40))
            async with aclosing(client.pull_each(["table"] * 30)) as arrived:  # type: ignore[type-var]
                async for _, array in arrived:
                    assert same(array, TABLE)
                    break
            assert same(await client.pull("table", 5), TABLE[5])

    asyncio.run(main())


def test_a_plan_reads_its_rows_anew(client: TensorClient) -> None:
    """Prepared once, used for every batch: only the numbers in the array change."""
    rows = np.array([1, 2, 3])
    out = np.zeros((2, 10), "f4")
    plan = client.plan([("table", rows), ("table", slice(7, 9), out), "table"])
    for at in (0, 10, 50):
        rows[:] = (at, at + 1, at)
        found = plan.pull()
        assert found[1] is out
        assert same(found[0], TABLE[rows])
        assert same(found[1], TABLE[7:9])
        assert same(found[2], TABLE)
        assert all(one is other for one, other in zip(found, plan.arrays, strict=True))
    rows[1] = 100
    with pytest.raises(OutOfRangeError, match="row 100"):
        plan.pull()
    rows[1] = 4
    versions = np.zeros(3, "u8")
    assert same(plan.pull(versions=versions)[0], TABLE[rows])
    with pytest.raises(ConfigError, match="int64 or uint64"):
        client.plan([("table", np.array([1], "i2"))])


def test_a_plan_outlives_what_it_was_made_for(tmp_path: Path) -> None:
    """A tensor that was replaced is refused once, then pulled anew where it still fits."""
    url = url_in(tmp_path)
    with serving(tmp_path, {"table": TABLE}) as (server,), TensorClient(url) as client:
        plan = client.plan(["table"])
        assert same(plan.pull()[0], TABLE)
        server.publish("table", TABLE + 1)
        with pytest.raises(StaleError):
            plan.pull()
        assert same(plan.pull()[0], TABLE + 1)
        server.publish("table", TABLE[:50])
        with pytest.raises(StaleError):
            plan.pull()
        with pytest.raises(ConfigError, match="shape"):
            plan.pull()


def test_a_plan_on_an_event_loop(tmp_path: Path, shards: int, servers: Any) -> None:
    """The same, awaited."""

    async def main() -> None:
        async with TensorClient(url_in(tmp_path), shards=shards) as client:
            rows = np.array([1, 99])
            plan = await client.plan([("table", rows), "table"])
            for _ in range(3):
                rows[0] += 1
                found = await plan.pull()
                assert same(found[0], TABLE[rows])
                assert same(found[1], TABLE)

    asyncio.run(main())


def test_a_looked_up_tensor_stands_for_its_name(
    client: TensorClient, servers: list[TensorServer]
) -> None:
    """Its dtype and shape are known, and it goes on meaning the name."""
    ref = client.tensor("table")
    assert (ref.name, ref.dtype, ref.shape, ref.row_bytes) == (
        "table",
        np.dtype("f4"),
        (100, 10),
        40,
    )
    assert same(client.pull(ref, [3, 97]), TABLE[[3, 97]])
    for server in servers:
        server.publish("table", CONTENTS["i8"])
    with pytest.raises(StaleError):
        client.pull(ref, 0)
    assert same(client.pull(ref), CONTENTS["i8"])
    assert ref.dtype == np.dtype("i8")
    with pytest.raises(ConfigError, match="did you mean 'table'"):
        client.tensor("tables")
