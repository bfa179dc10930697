"""The claims of tensors: one module per subject, each with its `CLAIMS`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from benchmarks.claim import Claim
from benchmarks.harness import Series
from benchmarks.tensor import arena, experiment, file, scale, shm, squares, tcp
from benchmarks.tensor import programs as tensor_programs

# One line per subject; in each round they run in this order.
SUBJECTS = (experiment, arena, tcp, shm, file, scale)

CLAIMS: list[Claim] = [claim for subject in SUBJECTS for claim in subject.CLAIMS]


@contextmanager
def around(claims: list[Claim], *, limits: bool) -> Iterator[list[str]]:
    """Have the programs and the file that the claims need, for the length of a run.

    Args:
        claims: those that will be measured.
        limits: whether a memory limit and the disk's read-ahead may be set.

    Yields:
        What the table's head says of them.
    """
    wanted = {claim.name for claim in claims}
    notes = []
    with ExitStack() as undo:
        programs = [
            program
            for program, subject in (
                (tensor_programs.TRAFFIC, experiment),
                (tensor_programs.COST, arena),
            )
            if not wanted.isdisjoint(claim.name for claim in subject.CLAIMS)
        ]
        if programs:
            tensor_programs.build(programs)
            undo.callback(tensor_programs.forget)
        if not wanted.isdisjoint(claim.name for claim in file.CLAIMS):
            said = undo.enter_context(file.around(limits=limits))
            notes.append(f"limits of the file-backed table: {said}")
        yield notes


def tables(series: Mapping[str, Series]) -> str:
    """The experiment's 2 x 2, where it was run."""
    return squares.squares(series)
