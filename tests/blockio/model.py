"""Files in memory, which the model test holds beside the real ones."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forebay.blockio import READ, WRITE

BEYOND = 1 << 62
"""After every byte of every file."""


@dataclass(frozen=True)
class Operation:
    """One operation of a batch; all but `kind` and `file` are bytes."""

    kind: int
    file: int
    offset: int
    length: int
    buffer_offset: int = 0

    def fields(self) -> tuple[int, int, int, int, int, int]:
        """As `OPERATION` has it."""
        return (self.offset, self.buffer_offset, self.length, self.file, self.kind, 0)


class ModelFile:
    """What a file holds, as its user thinks of it."""

    def __init__(self, content: bytes) -> None:
        self.content = bytearray(content)

    def read(self, offset: int, out: memoryview, *, exact: bool) -> int:
        """Read what is there; the rest of `out` stays as it is."""
        found = self.content[offset : offset + len(out)]
        out[: len(found)] = found
        return -errno.ENODATA if exact and len(found) < len(out) else len(found)

    def write(self, offset: int, data: memoryview) -> int:
        """Write all of it; what lies between the end and `offset` is zeros."""
        if data:
            self.content.extend(bytes(max(0, offset - len(self.content))))
            self.content[offset : offset + len(data)] = data
        return len(data)

    def tail(self, operation: Operation) -> slice:
        """Where in the buffer a read goes that passes the end of the file."""
        found = min(max(len(self.content) - operation.offset, 0), operation.length)
        return slice(operation.buffer_offset + found, operation.buffer_offset + operation.length)

    def reach(self, operation: Operation) -> range:
        """The bytes that it may depend on: all beyond the end, if it passes the end."""
        end = operation.offset + operation.length
        if not operation.length:
            return range(0)
        if end <= len(self.content):
            return range(operation.offset, end)
        return range(min(operation.offset, len(self.content)), BEYOND)


def carry_out(
    files: Sequence[ModelFile], operations: Iterable[Operation], memory: memoryview, *, exact: bool
) -> list[int]:
    """Do one after the other what a batch does; return its results."""
    results = []
    for each in operations:
        part = memory[each.buffer_offset : each.buffer_offset + each.length]
        if each.kind == READ:
            results.append(files[each.file].read(each.offset, part, exact=exact))
        elif each.kind == WRITE:
            results.append(files[each.file].write(each.offset, part))
        else:
            results.append(0)
    return results


def independent(files: Sequence[ModelFile], drawn: Iterable[Operation]) -> list[Operation]:
    """Leave out what another operation of the list would change, or be changed by.

    What is left has one right outcome, in whichever order it is carried out.
    """
    kept: list[Operation] = []
    for each in drawn:
        if each.kind not in (READ, WRITE) or not any(_clash(files, each, one) for one in kept):
            kept.append(each)
    return kept


def _clash(files: Sequence[ModelFile], one: Operation, other: Operation) -> bool:
    kinds = {one.kind, other.kind}
    if one.file != other.file or not kinds <= {READ, WRITE} or kinds == {READ}:
        return False
    if kinds == {WRITE}:
        return _overlap(_bytes(one), _bytes(other))
    return _overlap(files[one.file].reach(one), files[one.file].reach(other))


def _bytes(operation: Operation) -> range:
    return range(operation.offset, operation.offset + operation.length)


def _overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)
