"""An experiment from its beginning to its end: requests, faults, and what must be true then."""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from forebay.errors import ConfigError, Error
from forebay.executor import Client
from forebay.testing._ledger import VARIABLE, Ledger
from forebay.testing._verdict import Verdict
from forebay.testing.experiment.attached import Attached
from forebay.testing.experiment.checks import (
    differs_from_store,
    explained,
    left_behind,
    lost_records,
    never_taken,
    not_ours,
)
from forebay.testing.experiment.ground import Ground, prepared
from forebay.testing.experiment.injector import Injected, Injector
from forebay.testing.experiment.injectors import injectors_of
from forebay.testing.experiment.outcome import Outcome, Row
from forebay.testing.experiment.over_http import ByHttp
from forebay.testing.experiment.proxy import Proxies
from forebay.testing.experiment.schedule import Fault, Planned, draw
from forebay.testing.experiment.served import Served, Setting
from forebay.testing.experiment.workload import (
    CLIENTS_MAX,
    OWN,
    SETTLE_S,
    ByClient,
    Kind,
    Numbers,
    Submitter,
    Witness,
    kinds_of,
)

__all__ = ["NONE_THERE", "Design", "Experiment"]

OWN_TARGET: Final = "forebay.testing.experiment.app:app"
OWN_SERVICES: Final = 6
"""Room in the pool for all that it keeps, on a machine with one core too."""

DIRECTORY: Final = "FOREBAY_CHAOS_DIRECTORY"
CLIENTS: Final = 3
"""By `forebay.Client`: the first without a proxy in between."""

STEP_S: Final = 0.05
AGAIN_S: Final = 10.0
"""For so long a fault is tried again for which nothing was there to strike."""

RECOVERY_S: Final = 60.0
LEAVE_S: Final = 30.0
ASKED_TO_END: Final = 143
NONE_THERE: Final = "none was there"
"""Why a fault was not injected that the machine allows."""

TOKEN: Final = "local.token"
"""In the state directory: that of this user, which the server writes."""


@dataclass(frozen=True)
class Design:
    """What an experiment is to be.

    Attributes:
        seed: of the plan and of the requests.
        seconds: for which faults come.
        faults: which.
        target: the application; "": that of the experiment.
        requests: of another application: the arguments of each name.
        is_running: strike the server that runs, where it allows that, and start none.
    """

    seed: int
    seconds: float
    faults: list[Fault]
    target: str = ""
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    is_running: bool = False


class _Active(NamedTuple):
    """A fault that is to be undone."""

    until: float
    number: int
    what: str
    injected: Injected


class _Missed(NamedTuple):
    """A fault for which there was nothing to strike at its time; it is tried again for a while."""

    until: float
    number: int
    planned: Planned


class Experiment:
    """One run; `run` may be called once, in the main thread of a process with one thread.

    Args:
        design: what it is to be.
        tell: gets a line for each thing that happens.
    """

    def __init__(self, design: Design, tell: Callable[[str], None]) -> None:
        self._design = design
        self._tell = tell
        self._wrong: list[str] = []
        self._undone: dict[str, list[float]] = {fault.what: [] for fault in design.faults}
        """When the faults of each kind ended, by the monotonic clock."""
        self._missed: list[_Missed] = []
        self._injectors: dict[str, Injector] = {}
        self._reasons: dict[str, str] = {}
        self._began = 0.0
        self._active: list[_Active] = []
        self._submitters: list[Submitter] = []
        self._is_over = False
        self._is_interrupted = False
        self._verdict: Verdict | None = None
        self._ground: Ground
        self._server: Served | Attached
        self._witness: Witness

    def interrupt(self) -> None:
        """End soon, at a moment when every fault is known that has to be undone; from a handler."""
        self._is_interrupted = True

    def run(self) -> Outcome:
        """Run it, and put everything back, also where it is interrupted.

        Raises:
            ConfigError: the application, or a name of a request, cannot be used, or the server does
                not allow it.
            BrokenError, DeadlineError: no server serves before the first fault.
        """
        design = self._design
        interrupted = False
        try:
            with prepared(() if design.is_running else self._undone) as self._ground:
                self._witness = Witness(Ledger(self._ground.directory / "ledger"))
                with left_behind(self._ground, self._wrong):
                    self._serve()
                if not design.target:
                    self._wrong += lost_records(self._witness.ledger, self._ground.directory)
        except KeyboardInterrupt:
            interrupted = True
        return Outcome(
            seed=design.seed,
            seconds=design.seconds,
            rows=[self._row(fault) for fault in design.faults],
            verdict=self._verdict,
            wrong=self._wrong,
            interrupted=interrupted,
        )

    # Serving and striking.

    def _serve(self) -> None:
        design = self._design
        self._server = Attached(design.target) if design.is_running else Served(self._setting())
        try:
            self._server.start(self._look_for_interrupt)
            with contextlib.closing(self._proxies()) as proxies:
                self._injectors = injectors_of(self._server, self._ground, proxies)
                try:
                    self._begin_clients()
                    try:
                        self._strike()
                    finally:
                        self._undo_all()
                    self._settle()
                finally:
                    self._leave()
            self._look_at_the_end()
        finally:
            self._server.end_soon()

    def _leave(self) -> None:
        """Have the clients leave while their server and their proxies are there.

        Without one of them they wait for the next.
        """
        self._is_over = True
        for submitter in self._submitters:
            submitter.leave()
        deadline = time.monotonic() + LEAVE_S
        for submitter in self._submitters:
            while not submitter.join(STEP_S) and time.monotonic() < deadline:
                self._look_after_server()

    def _setting(self) -> Setting:
        ground = self._ground
        environment = {
            "XDG_RUNTIME_DIR": str(ground.sockets.parent),
            "TMPDIR": str(ground.scratch),
            DIRECTORY: str(ground.directory),
            VARIABLE: self._witness.ledger.path,
        }
        if not self._design.target:
            environment["FOREBAY_POOL_MAX_SIZE"] = str(OWN_SERVICES)
        if ground.clock is not None:
            environment |= ground.clock.environment
        group = None if ground.group is None else ground.group.procs
        return Setting(
            target=self._design.target or OWN_TARGET,
            directory=ground.directory,
            state=ground.directory / "disk" / "state",
            group="" if group is None else str(group),
            environment=environment,
        )

    def _proxies(self) -> Proxies:
        """In front of the server, and of what the requests of the own application connect to."""
        directory = self._ground.directory
        behind = {"server": self._server.socket}
        if not self._design.target:
            behind |= {name: directory / f"{name}.sock" for name in ("tensors", "echo")}
        return Proxies({directory / f"{name}-proxy.sock": path for name, path in behind.items()})

    def _begin_clients(self) -> None:
        kinds: tuple[Kind, ...] = OWN
        direct = f"unix://{self._server.socket}"
        if self._design.target:
            with Client(direct, start=False) as client:
                kinds = _kinds(client.ask("manifest"), self._design)
        proxied = f"unix://{self._ground.directory}/server-proxy.sock"
        witness, numbers, seed = self._witness, Numbers(), self._design.seed * CLIENTS_MAX
        for number in range(CLIENTS):
            reach = ByClient(proxied if number else direct, witness.ledger)
            self._submitters.append(Submitter(reach, kinds, witness, numbers, seed + number))
        over_http = [kind for kind in kinds if kind.over_http]
        if self._server.port is not None and over_http:
            by_http = ByHttp(
                self._server.port, self._server.state / TOKEN, witness.ledger, lambda: self._is_over
            )
            self._submitters.append(
                Submitter(by_http, over_http, witness, numbers, seed + CLIENTS, over_http=True)
            )

    def _strike(self) -> None:
        design = self._design
        for what in self._undone:
            reason = self._injectors[what].reason_not()
            if reason is not None:
                self._reasons[what] = reason
        self._began = began = time.monotonic()
        for number, planned in enumerate(draw(design.seed, design.seconds, design.faults)):
            self._wait_until(began + planned.at)
            if planned.what not in self._reasons and not self._inject(planned, number):
                self._missed.append(_Missed(time.monotonic() + AGAIN_S, number, planned))
        self._wait_until(began + design.seconds)
        while self._active or self._missed:
            self._wait_until(time.monotonic() + STEP_S)

    def _inject(self, planned: Planned, number: int) -> bool:
        """Whether there was something to strike."""
        try:
            injected = self._injectors[planned.what].inject(planned)
        except OSError as error:  # what was to be struck is changing
            self._tell(f"        {planned.what:14}  not yet: {error}")
            return False
        if injected is None:
            return False
        now = time.monotonic()
        heapq.heappush(self._active, _Active(now + planned.lasts, number, planned.what, injected))
        self._tell(f"{now - self._began:6.1f} s  {planned.what:14}  {injected.text}")
        return True

    def _wait_until(self, moment: float) -> None:
        """Undo meanwhile what has lasted long enough, and look after the server."""
        while True:
            while self._active and self._active[0].until <= time.monotonic():
                self._undo(heapq.heappop(self._active))
            self._look_for_interrupt()
            self._look_after_server()
            self._try_again()
            left = moment - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, STEP_S))

    def _try_again(self) -> None:
        now = time.monotonic()
        self._missed = [
            missed
            for missed in self._missed
            if missed.until > now and not self._inject(missed.planned, missed.number)
        ]

    def _look_for_interrupt(self) -> None:
        if self._is_interrupted:
            raise KeyboardInterrupt

    def _undo(self, active: _Active) -> None:
        try:
            active.injected.undo()
        except OSError as error:  # the others have to be undone all the same
            self._wrong.append(f"{active.what} could not be undone: {error}")
        self._undone[active.what].append(time.monotonic())

    def _undo_all(self) -> None:
        while self._active:
            self._undo(heapq.heappop(self._active))

    def _look_after_server(self) -> None:
        """Start it again where the kernel killed it, or it ended by itself, which is wrong."""
        killed = any(active.what == "kill-server" for active in self._active)
        if self._server.pid is None and not killed:
            told = self._server.unexpected_end()
            if told is not None:
                self._wrong.append(told)
            self._server.start_again()

    # What must be true afterwards.

    def _settle(self) -> None:
        """Let the clients hear of everything that they have submitted."""
        self._tell("no more faults; waiting for what was accepted")
        for submitter in self._submitters:
            submitter.finish()
        deadline = time.monotonic() + SETTLE_S + LEAVE_S
        for submitter in self._submitters:
            while not submitter.join(STEP_S) and time.monotonic() < deadline:
                self._look_for_interrupt()
                self._look_after_server()
            if not submitter.join(0.0):
                self._wrong.append(
                    f"{submitter.name} hangs: it {submitter.doing}; at {submitter.where()}"
                )
            elif submitter.failure is not None:
                self._wrong.append(f"a client has ended by a fault: {submitter.failure!r}")

    def _look_at_the_end(self) -> None:
        """Ask for the ends that no client was told, and the next server for all of them."""
        server, ledger = self._server, self._witness.ledger
        with Client(f"unix://{server.socket}", start=False) as client:
            for key, id_, check in self._witness.open:
                with contextlib.suppress(Error):
                    ledger.settle(key, client.get(id_), check=check, timeout=LEAVE_S)
        if isinstance(server, Served):
            code = server.end()
            if code != ASKED_TO_END:
                self._wrong.append(f"asked to end, the server left with {code}: {server.tail()}")
            server.start(self._look_for_interrupt)
            self._wrong += differs_from_store(ledger, server.socket)
            server.end()
        is_own = not self._design.target
        may_end = explained if is_own else not_ours
        self._verdict = ledger.verdict(may_end=may_end, counts_runs=is_own)
        self._wrong += never_taken(ledger)

    def _row(self, fault: Fault) -> Row:
        undone = self._undone[fault.what]
        if not undone:
            return Row(fault.what, 0, 0, self._reasons.get(fault.what, NONE_THERE))
        has_http = any(one.over_http for one in self._witness.successes)
        proof = "" if fault.proof == "http" and not has_http else fault.proof
        survived = [self._witness.survived(it, it + RECOVERY_S, proof) for it in undone]
        return Row(fault.what, len(undone), sum(survived), None)


def _kinds(manifest: dict[str, Any], design: Design) -> tuple[Kind, ...]:
    try:
        return kinds_of(manifest, design.requests)
    except KeyError as error:
        known = ", ".join(request["name"] for request in manifest["requests"]) or "none"
        raise ConfigError(
            f"{design.target} has no request {error.args[0]!r}; it has {known}"
        ) from None
