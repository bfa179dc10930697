"""Machines that forbid io_uring, or to pin memory: what is used instead, and who is told why."""

from __future__ import annotations

import asyncio
import errno
import os
import resource

import numpy as np
import pytest

from forebay.blockio import BlockFile, Queue
from forebay.cli.doctor.checks import findings
from forebay.errors import ConfigError
from forebay.memory import Arena
from tests.blockio.alone import alone
from tests.blockio.blocks import BLOCK_BYTES, BLOCKS, content, shuffled
from tests.blockio.seccomp import (
    IO_URING_ENTER,
    IO_URING_REGISTER,
    IO_URING_SETUP,
    forbid,
    needs_filters,
)

NOBODY = 65534
MEMLOCK_BYTES = 64 << 10


def check_reads(path: str, queue: Queue, arena: Arena) -> None:
    """Every face reads what is in the file."""
    rows = arena.empty((BLOCKS, BLOCK_BYTES), np.uint8)
    expected = content()[shuffled() // BLOCK_BYTES]

    async def read() -> None:
        async with BlockFile(path, queue=queue) as file:
            await file.read_many(shuffled(), rows)

    with BlockFile(path, queue=queue) as file:
        file.read_many(shuffled(), rows)
        assert (rows == expected).all()
        rows[:] = 0
        file.submit("read_many", shuffled(), rows).result(10)
        assert (rows == expected).all()
        rows[:] = 0
        asyncio.run(read())
        assert (rows == expected).all()


def shown(name: str) -> tuple[str, str]:
    """What `forebay doctor` says of something."""
    (found,) = (finding for finding in findings(None) if finding.name == name)
    return found.state, found.value


def _without_rings(path: str, call: str, number: str, words: str) -> None:
    forbid(int(call), int(number))
    with Queue() as queue:
        assert queue.engine == "threads"
        assert words in queue.reason
        check_reads(path, queue, Arena("64MiB"))
    with pytest.raises(ConfigError, match=f'{words}.*leave the engine at "auto"'):
        Queue(engine="ring")
    state, value = shown("block I/O")
    assert state == "note"
    assert value.startswith("threads: ")
    assert words in value


@needs_filters
@pytest.mark.parametrize(
    ("call", "number", "words"),
    [
        (IO_URING_SETUP, errno.EPERM, "io_uring_setup is forbidden"),
        (IO_URING_SETUP, errno.ENOSYS, "this kernel has no io_uring_setup"),
        (IO_URING_ENTER, errno.EPERM, "io_uring_enter is forbidden"),
    ],
)
def test_where_rings_are_forbidden_threads_take_their_place(
    path: object, call: int, number: int, words: str
) -> None:
    """A container forbids io_uring; programs must run there, and say why they are slower."""
    alone(_without_rings, path, call, number, words)


def _without_registering(path: str) -> None:
    forbid(IO_URING_REGISTER, errno.EPERM)
    arena = Arena("64MiB")
    with Queue(engine="ring", arena=arena) as queue:
        stats = queue.stats()
        assert stats["registered_bytes"] == 0
        assert "table of buffers" in stats["unregistered"]
        with BlockFile(path, queue=queue) as file:
            rows = arena.empty((BLOCKS, BLOCK_BYTES), np.uint8)
            file.read_many(shuffled(), rows)
            assert (rows == content()[shuffled() // BLOCK_BYTES]).all()


@needs_filters
def test_a_kernel_that_registers_nothing_is_used_without(path: object) -> None:
    """Registering saves time; its lack must not cost the reads."""
    alone(_without_registering, path)


def _as_nobody(path: str) -> None:
    out = np.zeros((BLOCKS, BLOCK_BYTES), np.uint8)
    places = list(enumerate(shuffled()))
    expected = content()[shuffled() // BLOCK_BYTES]
    with BlockFile(path) as file, Queue() as queue:  # opened while it may be
        operations = [(int(at), n * BLOCK_BYTES, BLOCK_BYTES, 0, 0, 0) for n, at in places]
        queue.run(operations, file, out)  # it and the next line import what another user may not
        shown("block I/O")
        out[:] = 0
        os.environ["HOME"] = "/"
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (MEMLOCK_BYTES, MEMLOCK_BYTES))
        os.setgroups([])
        os.setresuid(NOBODY, NOBODY, NOBODY)
        arena = Arena("16MiB")
        with Queue(engine="ring", arena=arena) as queue:
            rows = arena.empty((BLOCKS, BLOCK_BYTES), np.uint8)
            assert queue.run(operations, file, rows).tolist() == [BLOCK_BYTES] * BLOCKS
            assert (rows == expected).all()
            assert queue.run(operations, file, out).tolist() == [BLOCK_BYTES] * BLOCKS
            assert (out == rows).all()
            stats = queue.stats()
            assert stats["registered_bytes"] == 0
            assert "ulimit -l" in stats["unregistered"]
        state, value = shown("registered memory")
        assert state == "note"
        assert "ulimit -l" in value


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user takes root")
def test_memory_beyond_the_memlock_limit_is_used_unregistered(path: object) -> None:
    """The usual limit is 8 MiB; an arena that is larger must work, and the loss be told."""
    alone(_as_nobody, path)
