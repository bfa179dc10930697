"""Three ways to compile: in a leased service, in this very process, in a fresh one per trial."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from forebay.errors import BrokenError, DeadlineError, Error, StaleError

from .results import Result, ResultCache
from .toolchain import Toolchain

if TYPE_CHECKING:  # the application needs no gymnasium
    from forebay.gym import AcquireFunction

__all__ = ["Backend", "FreshBackend", "LocalBackend", "ServiceBackend"]


_ROOT = Path(__file__).resolve().parents[2]


class Backend(Protocol):
    """What a thread of the search compiles with; used by one thread at a time."""

    def compile(self, program: str, flags: Sequence[str]) -> Result | None:
        """Run one trial; None when it was lost with whatever ran it."""

    def close(self) -> None:
        """Give back what it holds; idempotent."""


class LocalBackend:
    """Run gcc from this process, without a service.

    Args:
        source_dir: folder of the programs.
        cache: shared by the threads of one search.
    """

    def __init__(self, source_dir: str | Path, cache: ResultCache):
        self._toolchain = Toolchain(source_dir, cache=cache)

    def compile(self, program: str, flags: Sequence[str]) -> Result:
        """Run one trial here."""
        return self._toolchain.compile(program, flags)

    def close(self) -> None:
        """Remove the working directory."""
        self._toolchain.clean()


class FreshBackend:
    """Run each trial in a fresh interpreter, so that a crash costs that trial alone.

    Args:
        source_dir: folder of the programs.
        command: starts the process of a trial; program and flags come behind it.
        timeout: seconds for one trial.
    """

    def __init__(
        self,
        source_dir: str | Path,
        *,
        command: Sequence[str] = (sys.executable, "-m", "examples.gcc_tuning.trial"),
        timeout: float = 60.0,
    ):
        self._source_dir = str(source_dir)
        self._command = command
        self._timeout = timeout

    def compile(self, program: str, flags: Sequence[str]) -> Result | None:
        """Run one trial; None when its process ended otherwise than it should."""
        command = [*self._command, self._source_dir, program, *flags]
        try:
            ended = subprocess.run(
                command, cwd=_ROOT, capture_output=True, timeout=self._timeout, check=True
            )
        except subprocess.SubprocessError:
            return None
        result: Result = json.loads(ended.stdout)
        return result

    def close(self) -> None:
        """Nothing outlives a trial."""


class ServiceBackend:
    """Compile in a leased service; another one is leased when it is lost.

    Args:
        acquire: who lends it, for example the `acquire` of a `forebay.ServicePool`.
        service_spec: what to lease.
        call_timeout: seconds for one trial.
        losses_max: how many losses are taken for bad luck; the next one is raised.

    Attributes:
        losses: the errors by which services were lost, in their order.
        busy: whether a trial runs; any thread may ask.
        pid: the process of the leased service, or None; any thread may ask.
    """

    def __init__(
        self,
        acquire: AcquireFunction,
        service_spec: Any,
        *,
        call_timeout: float = 60.0,
        losses_max: int = 10,
    ):
        self.losses: list[Error] = []
        self.busy = False
        self.pid: int | None = None
        self._acquire = acquire
        self._spec = service_spec
        self._call_timeout = call_timeout
        self._losses_max = losses_max
        self._lease: ExitStack | None = None
        self._service: Any = None

    def compile(self, program: str, flags: Sequence[str]) -> Result | None:
        """Run one trial in the service, leasing one first if none is held.

        Raises:
            forebay.BrokenError: more than `losses_max` services were lost.
            forebay.DeadlineError: likewise.
        """
        self.busy = True
        try:
            result: Result = self._leased().compile(program, list(flags))
            return result
        except (BrokenError, DeadlineError, StaleError) as error:
            self.losses.append(error)
            with suppress(Error):
                self.close()
            if len(self.losses) > self._losses_max:
                raise
            return None
        finally:
            self.busy = False

    def close(self) -> None:
        """Give the lease back."""
        self._service = self.pid = None
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()

    def _leased(self) -> Any:
        if self._service is None:
            stack = ExitStack()
            service = stack.enter_context(self._acquire(self._spec, timeout=30.0))
            self._lease = stack
            self.pid = service.lease.pid
            self._service = service.lease.options(timeout=self._call_timeout)
        return self._service
