"""What one service may use at most."""

from __future__ import annotations

import math
from dataclasses import dataclass

from forebay.config import parse_bytes, parse_seconds
from forebay.errors import ConfigError

OPEN_FILES_MIN = 16
"""With less, an interpreter cannot import the modules of a service."""

MEMORY_MIN = 1 << 20
"""With less, no process can start."""

CPU_MIN = 0.01
"""The kernel's smallest quota: 1 ms of each 100 ms."""

_COUNT_MAX = 2**32 - 1

Terms = tuple[int, int, int, int, bool, bool]
"""In the core's form: bytes, 1/1000 cores, open files, processes, advisory, stateful."""

STATEFUL: Terms = (0, 0, 0, 0, False, True)
"""Of a stateful service without limits."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What each process of a service may use at most, as the class attribute `limits`.

    A limit that is None costs nothing and limits nothing.
    They are enforced by a cgroup if one can be written, else by resource limits. If neither can
    enforce a limit here, starting a service raises an error, unless `advisory` is true.

    Args:
        memory: bytes, or text such as "1GB", beyond what a service shares with its template.
            Reaching it raises MemoryError in the service or has the kernel end it: DiedError with
            cause "out_of_memory".
        cpu: cores, for example 0.5 or 2.0; more is slowed down, nothing is ended.
        open_files: descriptors of one process; more raise OSError in the service.
        processes: processes and threads, the service's own included; more cannot be started.
        call_timeout: seconds, or text such as "30s", that one call may take if the caller gives
            no timeout; a call that takes longer raises DeadlineError and its service is ended.
        advisory: ignore limits that cannot be enforced here.

    Raises:
        ConfigError: a value is no such amount, or is too small for a process to start.

    Example:
        >>> import forebay
        >>> class Parser(forebay.Service):
        ...     limits = forebay.Limits(memory="1GB", open_files=256, call_timeout="30s")
        ...     def parse(self, text: str) -> list[str]:
        ...         return text.split()
        >>> Parser.limits.memory_bytes
        1000000000
    """

    memory: str | int | None = None
    cpu: float | None = None
    open_files: int | None = None
    processes: int | None = None
    call_timeout: str | float | None = None
    advisory: bool = False

    def __post_init__(self) -> None:
        if self.memory is not None and self.memory_bytes < MEMORY_MIN:
            raise ConfigError(f"Limits memory={self.memory!r}: give at least 1MiB, or None")
        if self.cpu is not None and not CPU_MIN <= self.cpu < math.inf:
            raise ConfigError(f"Limits cpu={self.cpu!r}: give cores, {CPU_MIN} or more, or None")
        _expect_count("open_files", self.open_files, OPEN_FILES_MIN)
        _expect_count("processes", self.processes, 1)
        if self.call_timeout is not None and not 0 < parse_seconds(self.call_timeout) < math.inf:
            raise ConfigError(
                f"Limits call_timeout={self.call_timeout!r}: give a time above 0, or None"
            )

    @property
    def memory_bytes(self) -> int:
        """The memory limit in bytes; 0 is none."""
        return 0 if self.memory is None else parse_bytes(self.memory)

    @property
    def call_seconds(self) -> float | None:
        """The longest time of a call, in seconds; None is no limit."""
        return None if self.call_timeout is None else parse_seconds(self.call_timeout)

    @property
    def terms(self) -> Terms | None:
        """The limits that the keeper enforces; None if there are none.

        Two services with equal terms are interchangeable: the longest time of a call, which only
        the client enforces, is no part of them.
        """
        enforced = (
            self.memory_bytes,
            round((self.cpu or 0) * 1000),
            self.open_files or 0,
            self.processes or 0,
        )
        return (*enforced, self.advisory, False) if any(enforced) else None


def _expect_count(name: str, value: int | None, least: int) -> None:
    if value is None:
        return
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not least <= value <= _COUNT_MAX:
        raise ConfigError(f"Limits {name}={value!r}: give a whole number, {least} or more, or None")
