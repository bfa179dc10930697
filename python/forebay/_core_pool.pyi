"""The pool in `forebay._core`: a stub alone, at run time there is no such module."""

from collections.abc import Callable
from os import PathLike
from typing import Any, Literal, TypedDict, final

from forebay._core_transport import Connection, _Call

_DiscardCause = Literal["discarded", "contaminated", "reset_failed", "returned"]
_Answer = tuple[int, Handle | None, int, int]
_Pairs = list[tuple[bytes, bytes]]
_Launch = tuple[list[bytes], _Pairs, bytes, tuple[int, bytes], bool, bool]
"""How a program is started:

1. path and arguments; 2. its whole environment; 3. its working directory;
4. who notices that it is ready: `(0, b"")`: itself, by a byte on its socket, which is descriptor 3;
`(1, pattern)`: the keeper, by a line; `(2, name)`: the keeper, by a file in its directory;
`(3, b"")`: that it runs. With all but the first the keeper writes to the socket: process id and two
lengths as little-endian u32, the directory, and the line or the file's content;
5. whether what is written says only where to look: a start that nobody has confirmed by `lend` when
its deadline comes is ended; 6. whether its socket becomes its stdin and stdout.
"""
_Limits = tuple[int, int, int, int, bool, bool]
"""Bytes of memory, thousandths of a core, open files, processes (0: none), only advice."""

@final
class Handle:
    """A lease, or a lease to be: a service's slot in its pool and the generation of the slot."""

    @property
    def slot(self) -> int:
        """Number of the service's place in the pool."""
    @property
    def generation(self) -> int:
        """Grows with each lease of the slot, 64 bits; what came before is stale."""
    @property
    def tag(self) -> int:
        """The part of the generation that travels with calls, 32 bits."""

@final
class WakeQueue:
    """Notifies a caller or an event loop that it pays to look again."""

    def __new__(cls) -> WakeQueue: ...
    def fileno(self) -> int:
        """The descriptor that is readable after a notification; it stays the queue's."""
    def drain(self) -> list[int]:
        """Take the notifications without waiting: tickets, or 0 for a death or an output."""

@final
class Pool:
    """The client's side of a pool of at most `max_size` services; it starts nothing by itself.

    Any thread may call any method, and only `wait` and `close` wait; a waiting thread also drives.
    Times that end in `_ms` are milliseconds, timeouts are seconds.
    A key says which services are interchangeable, a template number which one forks them: both are
    counted by the caller.
    In a forked child every method raises ConfigError but `forked`, and `close` does nothing.

    Raises:
        LimitError: `max_size` is 0 or above half of the services of one keeper.
        StaleError: a method was given a handle whose lease has ended.
        ClosedError: the pool was closed.
        BrokenError: the keeper is gone.
        OSError: a system call failed.
    """

    def __new__(
        cls,
        max_size: int,
        *,
        max_running: int | None = None,
        max_uses: int = 0,
        lifetime_ms: int = 0,
        ping_after_ms: int = 0,
    ) -> Pool: ...
    def watch(self) -> int:
        """A new descriptor, readable when `drive` has something to do; it is the caller's to close.

        It stays valid when the pool is closed.
        """
    def handover(self) -> tuple[int, int, int] | None:
        """What a new keeper is started with, as descriptors 3, 4 and 5; None where one runs.

        Returns:
            Control socket, page of words and pidfd of this process, all the caller's to close.
        """
    def attach(self, pidfd: int) -> int:
        """Take over the pidfd of a keeper that was started with the last handover.

        Returns:
            The keeper's number, from 1; it knows no template yet.
        """
    def epoch(self) -> int:
        """The number of the keeper that runs; 0 where none does."""
    def describe(
        self,
        template: int,
        arguments: list[bytes],
        environment: _Pairs,
        directory: bytes,
        setup: bytes,
        spares: int,
    ) -> None:
        """Tell the keeper how a template is started, and what it is to be told first.

        From its second service on, it has so many processes forked ahead.
        """
    def take(self, key: int, group: int) -> Handle | None:
        """Lend an idle service that owes no answer, where there is one; never waits.

        `group`: the callers that may share it, if its key is shared.
        """
    def ask(self, key: int, group: int) -> _Answer:
        """Ask for a service, or to share one that a caller of the group holds.

        Returns:
            `(0, handle, settled, 0)`: lent; unless settled (1) its answer is read before its use.
            `(1, handle, 0, 0)`: the caller starts one by `fork` or `launch`, then calls `lend`.
            `(2, None, ticket, grace_ms)`: wait; after the grace, where it is not 0, call `hurry`.
            `(3, handle, 1, 0)`: a further lease of a service, which owes no answer.
        """
    def await_on(self, ticket: int, queue: WakeQueue) -> None:
        """Have `queue` notified once the ticket is granted, at once where it has been."""
    def collect(self, ticket: int) -> _Answer | None:
        """What a ticket was granted, as from `ask`; None where it still waits."""
    def refill(self, key: int) -> Handle | None:
        """Room for a service that is to be kept ready, as from an answer that says start."""
    def keep(self, key: int, min_idle: int) -> None:
        """Keep so many idle services of a key, however long they are idle."""
    def share(self, key: int, leases: int) -> None:
        """One service of a key may have so many leases at once; they have the same handle."""
    def open(self, handle: Handle) -> None:
        """A lent service has answered what it owed: others of its group may join it.

        That is where its key is shared, and as far as it may be lent once more.
        """
    def release_shared(self, handle: Handle, closed: bool) -> bool:
        """One of several leases of a service ends; false where it is the last.

        The last is released or discarded. With `closed` no lease joins the service any more.
        """
    def hurry(self, ticket: int) -> None:
        """Rather have a service started than wait for a reset."""
    def leave(self, ticket: int) -> None:
        """Give a ticket up; what it was granted meanwhile goes to the next."""
    def fork(
        self,
        handle: Handle,
        template: int,
        *,
        start_ms: int,
        idle_ms: int,
        private_bytes_max: int = 0,
        limits: _Limits | None = None,
    ) -> int:
        """Have a service forked from a template that was described.

        Args:
            handle: from an answer that says start.
            template: its number.
            start_ms: after this the keeper ends a service that was not lent.
            idle_ms: after this the keeper ends it when it is idle; 0: never.
            private_bytes_max: above this it is not lent again; 0: no limit.
            limits: what it may use; None: nothing is limited.

        Returns:
            The caller's end of the service's socket, given away.
        """
    def branch(
        self,
        parent: Handle,
        key: int,
        *,
        start_ms: int,
        idle_ms: int,
        limits: _Limits | None = None,
    ) -> tuple[Handle, int]:
        """Have a copy of a lent service made; the holder tells the service itself to fork.

        Returns:
            The lease to be, and the caller's end of the copy's socket, given away.
        """
    def launch(
        self,
        handle: Handle,
        launch: _Launch,
        *,
        start_ms: int,
        idle_ms: int,
        own: int | None = ...,
        private_bytes_max: int = 0,
        limits: _Limits | None = None,
    ) -> int:
        """Have a program started as a service.

        Otherwise as `fork`; `arguments` begins with the path of the executable. A null byte in
        `arguments`, in values of `environment` and in `directory` becomes the service's directory.

        Args:
            handle: what `ask` or `collect` gave.
            launch: how, see `_Launch`.
            start_ms: milliseconds until it must be ready; 0: no limit.
            idle_ms: milliseconds after which it is ended when idle; 0: never.
            own: a socket that becomes its descriptor 3; given away.
            private_bytes_max: as for `fork`.
            limits: as for `fork`.

        Raises:
            LimitError: arguments and environment are longer than a control message.
        """
    @staticmethod
    def check_pattern(pattern: str) -> None:
        """Raise ConfigError where the keeper cannot match a line against a pattern."""
    def lend(self, handle: Handle, key: int) -> int | None:
        """Lend a service that the caller started and that is ready.

        Returns:
            Its process id; None where the keeper has not reported it yet, or ended it.
        """
    def process(self, handle: Handle) -> tuple[int, int] | None:
        """Process id and pidfd of a service; None where the keeper has not reported them.

        The pidfd stays the pool's, which keeps it until the service's slot is used again.
        """
    def release(self, handle: Handle, reset_ms: int | None = None) -> None:
        """Give a service back: at once, or with a deadline for the reset that it was sent."""
    def abandon(self, handle: Handle, answered: bool) -> None:
        """Leave a start that is under way to the next caller.

        Args:
            handle: of the start.
            answered: the caller has read that it is ready, so nothing more comes to its socket.
        """
    def discard(self, handle: Handle, cause: _DiscardCause = "discarded") -> None:
        """Have a service ended; its successor may start at once.

        One that was "returned" is as it should be, and first does what it does before its end.
        """
    def death(
        self, handle: Handle, queue: WakeQueue | None = None
    ) -> tuple[str, int, int, bytes, int, int] | None:
        """How a lent service ended; None where that is not known, then `queue` is notified of it.

        Returns:
            Cause, process id (0: there was none), exit code or signal, output, and in bytes the
            most memory that it used and its limit (0: not known).
        """
    def end_overdue(self, handle: Handle) -> None:
        """Have a service ended because a call took too long; its holder keeps the lease."""
    def heavy(self) -> int:
        """Leased services that have more private memory than the pool keeps."""
    def directory(self, handle: Handle) -> str:
        """The directory of a lent service; empty until the keeper has reported it."""
    def follow(self, handle: Handle, beyond: int) -> None:
        """Ask the keeper for what a service writes beyond so many bytes; it comes to `written`."""
    def written(
        self, handle: Handle, beyond: int, queue: WakeQueue | None = None
    ) -> tuple[int, bytes] | None:
        """How many bytes a service wrote in all, and the newest of them.

        None while they are not more than `beyond`, then `queue` is notified of more.
        """
    def ask_output(self, handle: Handle) -> None:
        """Ask the keeper for what a service wrote; the answer comes to `output`."""
    def output(self, handle: Handle, queue: WakeQueue | None = None) -> bytes | None:
        """The answer to `ask_output`, once; None before it has come, then `queue` is notified."""
    def dead_idle(self) -> list[Handle]:
        """Last leases of services that ended while idle, each reported once.

        What the caller kept for them can go.
        """
    def drive(self) -> None:
        """Handle whatever has happened; never waits."""
    def wait(self, queue: WakeQueue, timeout: float | None) -> None:
        """Wait without the GIL until `queue` is notified or there was something to drive.

        It returns at the timeout too, and at a signal after its handlers ran; what they raise is
        raised from here.
        """
    def stats(self) -> list[tuple[str, int]]:
        """Sizes now, and counters since the pool was made, by name."""
    def deaths(self) -> list[tuple[str, int]]:
        """Deaths since the pool was made, by cause."""
    def services(self) -> list[tuple[int, int, int, bool, int, int]]:
        """Of each service: slot, generation, process id, lent or not, key, ms of its lease."""
    def keep_notes(self, wanted: bool) -> None:
        """Keep notes of what happens from now on, or no longer."""
    def take_notes(
        self, queue: WakeQueue | None = None
    ) -> list[tuple[int, str, int, int, int, int, str | None]]:
        """Take the notes; where there are none, `queue` is notified when there may be.

        Each has milliseconds since 1970, what happened, key, process id, slot, generation and,
        of an end or a death, the cause.
        """
    def close(self, timeout: float) -> None:
        """End every service and the keeper, and wait for it without the GIL. Idempotent.

        A keeper that has not ended after the timeout is killed. Waiters are woken.
        """
    def forked(self) -> None:
        """In a forked child: let go of what belongs to the parent; never waits."""

@final
class KeeperLink:
    """A template's end of its keeper. `socket` is given away. Waiting holds the GIL: one thread."""

    def __new__(cls, socket: int) -> KeeperLink: ...
    def setup(self) -> tuple[bytes, str] | None:
        """Wait for what to import, and the first service's directory; None at the keeper's end."""
    def ready(self) -> None:
        """Say that services can be forked."""
    def unfit(self, reason: bytes) -> None:
        """Say why services cannot be forked; the reason is the user's to read."""
    def branch(self, connection: Connection) -> str | None:
        """In a service: fork the copy of it that the keeper orders next.

        In the copy: its directory, and `connection`, unconnected before, is its own.
        In the original None, also where the keeper could not order it.
        """
    def refuse(self) -> None:
        """In a service: take an order for a copy and do not make it."""
    def report_exit_hooks(self) -> None:
        """In a service: report that it has exit hooks to run before it ends."""
    def await_end(self) -> None:
        """In a service: wait, without the GIL, until the keeper has let go of it."""

@final
class PreforkLoop:
    """Where a service that is still to be forked gets its calls from.

    A template runs the serving loop and waits in it for the first call; that wait is where it
    forks, between Python's own hooks. Each child goes on from there with a socket of its own.

    Args:
        keeper: the template's end of its keeper.
        connection: made by `Connection.unconnected`; in a child it gets the service's socket.
        prepare: called in the template after each fork, with the directory of the next service.
    """

    def __new__(
        cls, keeper: KeeperLink, connection: Connection, prepare: Callable[[str], object]
    ) -> PreforkLoop: ...
    @property
    def is_service(self) -> bool:
        """Whether this is a service, and not the template."""
    def next_call(self) -> _Call | None:
        """Wait for the next call, as `Connection.next_call`; in the template fork until the end."""

_Told = tuple[Any, ...]
"""An answer of the lender, by the number that it begins with:

1 status: sizes and counters, deaths by cause.
2 kind: its number; canary_every, min_idle, leak_after_ms and reset_ms of the lender.
3 lent: handle, process id (0: not known yet), owed call (0: none), whether its preface was read,
whether another program held it last, whether it is to be asked whether it answers, whether it is
looked at at the end of the lease, and a tuple: socket and pidfd (-1 where this program has
them), our end of its own socket (-1: none), port (0: none), what its starter reported.
4 start: handle, socket (-1 for a program that is to be launched), leases of its kind so far.
5 met: process id, pidfd. 6 died: cause, process id, code, text. 7 output: text.
8 services: rows of slot, process id, name, state, holder and age in seconds; where to go on, or 0.
9 drained: services ended, services marked. 10 refused: limit, maximum, value, what to do.
11 failed: why. 12 written: bytes written in all, the newest of them. 13 directory: its path.
14 events: the number of the next one, rows of time, what, kind, pid, slot, generation and cause.
15 joined: the handle of a lease of this program, whose service a further lease shares.
Descriptors are the caller's to close.
"""

class _LenderConfig(TypedDict):
    """What a lender allows, and how long. Times ending in `_ms` are ms."""

    max_size: int  # services at once, of all kinds and for all programs
    max_running: int  # services lent at once
    max_uses: int  # leases that one service serves; 0: any number
    lifetime_ms: int  # 0: for ever
    private_bytes_max: int  # of a service until it is not lent again; 0: any number
    spares: int  # processes that each template keeps forked ahead
    leases_max: int  # services that one program may hold at once
    waiters_max: int  # questions of one program that may wait at once
    start_ms: int  # from start to ready
    idle_ms: int  # idle until ended
    ping_after_ms: int  # idle until it is asked whether it answers; 0: it is not
    canary_every: int  # leases between two looks for what one left; 0: none
    min_idle: int  # that programs keep ready of each kind that they use
    leak_after_ms: int  # until a lease that has not ended is reported; 0: never
    reset_ms: int  # from reset to answer

@final
class Lender:
    """A pool and the socket on which it is lent. One thread runs it.

    Raises:
        ConfigError: the directory is not this user's alone, or another process lends there.
        LimitError: `max_size` is 0 or above half of the services of one keeper.
        OSError: a system call failed.
    """

    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        wake: int,
        config: _LenderConfig,
    ) -> Lender:
        """Listen; `wake` is given away, its duplicates make `run` return when readable."""
    def run(self) -> bool | str:
        """Serve until a keeper is wanted (True), `wake` is readable (False), or there is news."""
    def handover(self) -> tuple[int, int, int] | None:
        """As `Pool.handover`."""
    def attach(self, pidfd: int) -> int:
        """As `Pool.attach`."""
    def stop_listening(self) -> None:
        """Lend to those that are connected alone, and remove the socket. Not during `run`."""
    def close(self, timeout: float) -> None:
        """End every service, wait for the keeper without the GIL, remove the socket. Idempotent."""

@final
class Borrower:
    """A program's connection to a lender.

    Any thread may call any method; only `wait` and `take` wait. What asks returns a ticket, to
    which the answer comes.

    Raises:
        BrokenError: no lender is there, or it is gone.
        ConfigError: it belongs to another user; or this is a forked child's copy.
        ClosedError: this end was closed.
        LimitError: a question is longer than a control message.
    """

    def __new__(cls, path: str | PathLike[str]) -> Borrower: ...
    def kind(
        self,
        digest: bytes,
        name: bytes,
        template: bytes,
        arguments: list[bytes],
        environment: _Pairs,
        directory: bytes,
        setup: bytes,
        private: bool,
        leases: int,
        limits: _Limits | None,
    ) -> int:
        """Ask for the number of a kind; `template` is a digest, empty for a program.

        `private`: this program alone can use its services, which end with it.
        `leases`: those that one of its services may have at once.
        """
    def take(self, key: int, patience: float, group: int) -> _Told | int:
        """Ask for a service and wait so many seconds: the answer, or else the ticket.

        `group`: the callers of this program that may share it: 0 those in threads, and one number
        for each event loop.
        """
    def launch(
        self,
        handle: Handle,
        launch: _Launch,
        port: int,
        own: tuple[int, int] | None,
    ) -> int:
        """Ask for a program to be started: 4.

        `own`: its end of its socket and a duplicate of ours for later holders; both are taken.
        """
    def lend(self, handle: Handle, report: bytes) -> int:
        """Say that a started service is ready, and what later holders must know: 5 or 6."""
    def death(self, handle: Handle) -> int:
        """Ask how a lent service ended: 6, once it has."""
    def output(self, handle: Handle) -> int:
        """Ask what a lent service wrote: 7."""
    def branch(self, parent: Handle) -> int:
        """Ask for a copy of a lent service: (4, handle, socket)."""
    def follow(self, handle: Handle, seen: int) -> int:
        """Ask what a lent service writes beyond `seen` bytes: 12, or 6 once it has ended."""
    def directory(self, handle: Handle) -> int:
        """Ask where the directory of a lent service is: 13."""
    def status(self) -> int:
        """Ask for sizes and counters: 1."""
    def services(self, from_: int) -> int:
        """Ask for the services from a slot on: 8."""
    def drain(self, name: bytes) -> int:
        """Have the services of a name (empty: all) ended, those on lease when they come back: 9."""
    def refill(self, key: int, min_idle: int) -> int:
        """Keep so many idle services of a kind, and ask to start one: 4, once it is missing."""
    def events(self, from_: int) -> int:
        """Ask what happened from an event on: 14, once there is some."""
    def stop_refill(self, key: int) -> None:
        """Keep a kind ready no longer."""
    def stop_events(self) -> None:
        """Read events no longer."""
    def open(self, handle: Handle) -> None:
        """As `Pool.open`."""
    def release_shared(self, handle: Handle, closed: bool) -> bool:
        """As `Pool.release_shared`."""
    def release(self, handle: Handle, owed: int) -> None:
        """Give a service back; `owed` is the call of its reset, 0 where it had none."""
    def abandon(self, handle: Handle, owed: int, met: bool, report: bytes) -> None:
        """Leave a start to the next caller; `owed` is the call that makes it, 0: answered.

        `report`: as for `lend`, of one that was answered.
        """
    def end_overdue(self, handle: Handle) -> None:
        """As `Pool.end_overdue`."""
    def discard(self, handle: Handle, cause: _DiscardCause = "discarded") -> None:
        """Have a service ended."""
    def look(self, ticket: int, queue: WakeQueue | None = None) -> _Told | None:
        """The answer, where it is there; otherwise `queue` is notified of the ticket."""
    def wait(self, ticket: int, timeout: float | None = None) -> _Told | None:
        """Wait for the answer without the GIL; None after `timeout` seconds. Signals run."""
    def leave(self, ticket: int) -> _Told | None:
        """Give a question up; its answer, where it was there already."""
    def withdraw(self, ticket: int) -> None:
        """Give a question up whose answer nobody takes: what it was granted is ended."""
    def drive(self) -> None:
        """Take in what has come; never waits."""
    def watch(self) -> int:
        """A new descriptor, readable when `drive` has something to do; the caller's to close."""
    @property
    def ended(self) -> bool:
        """Whether the lender is known to be gone."""
    @property
    def over(self) -> bool:
        """The same after a look at the socket."""
    def close(self) -> None:
        """Let go; the lender ends what this program holds. Idempotent."""
    def forked(self) -> None:
        """In a forked child, before anything else: let go of what is the parent's."""

def run_keeper(control: int, page: int, client: int, scratch: str | PathLike[str]) -> None:
    """Be the keeper until the client is gone; without the GIL, in a process of its own.

    Args:
        control: the control socket, given away like the two that follow.
        page: the page of words.
        client: the pidfd of the client.
        scratch: the directory under which services get their own.
    """
