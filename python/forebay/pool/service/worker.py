"""The program of a service process: make the service, then answer its calls one after another."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import sys
import traceback
from _socket import socketpair as _pair
from collections.abc import Iterator
from typing import Any

from forebay import _core, _trace
from forebay.errors import BrokenError, ConfigError, Error
from forebay.pool.service.application import resolve
from forebay.pool.service.directory import LeaseDirectory, move_in
from forebay.pool.service.farewell import Farewell
from forebay.pool.service.threads import extra_threads
from forebay.rpc import serve_connection
from forebay.rpc._internal import (
    ServedStreams,  # noqa: F401 - loaded once for all services: 3 ms of a first stream
    by_name,
    find_method,
)

START = "@start"
RESET = "@reset"
CHECK = "@check"
FORK = "@fork"
BRANCHED = "@branched"
PING = "@ping"
STOP = "@stop"
DIRECTORY = "@directory"
TRACED = "@traced"

WARM_ROUNDS = 32
"""Enough rounds for the interpreter to specialise the code that a service runs."""


class Target:
    """The object of all calls: the service, once it is made. Its own names are private."""

    __slots__ = ("_canary", "_connection", "_directory", "_failure", "_service")

    _connection: _core.Connection
    """The connection of the calls; set before the first one."""

    def __init__(self) -> None:
        self._directory = LeaseDirectory()
        self._service: Any = None
        self._canary: Any = None
        self._failure: Exception | None = None
        """Why a copy cannot be used: its first call raises this."""

    def __getattr__(self, name: str) -> Any:
        if self._directory.generation != self._connection.generation:
            self._directory.begin(self._connection.generation)
        return getattr(self._service, name)

    def _lease_directory(self) -> str:
        """The path of the lease's directory, which is empty if this is the lease's first call."""
        if self._directory.generation != self._connection.generation:
            self._directory.begin(self._connection.generation)
        return self._directory.path

    def _control(self, name: str, args: tuple[Any, ...]) -> Any:
        """Answer a call of the pool itself: make the service, reset it, check it."""
        if name == START:
            return self._start(*args)
        elif name == CHECK:
            return self._check(*args)
        elif name == PING:
            pass  # the answer itself is what the pool wants
        elif name == BRANCHED:
            if self._failure is not None:
                raise self._failure
        elif name == RESET:
            self._reset()
        elif name == DIRECTORY:
            return self._lease_directory()
        elif name == TRACED:
            return self._traced(*args)
        elif name == STOP:
            raise SystemExit
        else:
            raise ConfigError(f"a service knows no {name!r}")
        return None

    def _traced(
        self, traceparent: str, service: str, name: str, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Run a method of the service as a part of its caller's trace."""
        method = find_method(self, name)
        if _trace.spans is None:
            return method(*args, **kwargs)
        with _trace.spans.serve(service, name, traceparent):
            return method(*args, **kwargs)

    def _start(
        self,
        reference: tuple[str, str] | bytes,
        arguments: bytes,
        canary: bool = False,
        tell_methods: bool = False,
    ) -> list[str] | None:
        if self._service is None:
            self._service = make(reference, arguments)
        else:
            self._reseed()  # made in the template: each fork starts from the same state
        self._settle()
        if canary:
            from forebay.pool.service.canary import Canary

            self._canary = Canary(self._service)
        return _methods(self._service) if tell_methods else None

    def _settle(self) -> None:
        """Give the temporary directory to leases from now on."""
        enters = getattr(self._service, "chdir", None) is True
        self._directory.found(enters=enters)

    def _reseed(self) -> None:
        """Have a service that shares its state with other forks draw other random numbers."""
        if hasattr(self._service, "reseed"):
            self._service.reseed()

    def _reset(self) -> None:
        self._service.reset()
        if self._directory.path:
            self._directory.end()  # now no caller waits for it

    def _check(self, reset: bool) -> list[str]:
        """Reset it if it has a reset, and report what has changed since it was new."""
        if reset:
            self._reset()
        found: list[str] = self._canary.differences(self._service)
        return found


def make(reference: tuple[str, str] | bytes, arguments: bytes) -> Any:
    """Make a service. Its arguments are unpickled here, where its module is imported."""
    if isinstance(reference, bytes):
        from forebay.pool.service.by_value import received

        service, (args, kwargs) = received(reference), received(arguments)
    else:
        service = resolve(reference)
        args, kwargs = pickle.loads(arguments)  # from the process of this user that owns this one
    return service(*args, **dict(kwargs))


def _methods(service: Any) -> list[str]:
    """Names of the public methods of any object, found without evaluating properties."""
    own = getattr(service, "__dict__", {})
    return [
        name
        for name in dir(service)
        if not name.startswith("_")
        and callable(own.get(name) or getattr(type(service), name, None))
    ]


def warm() -> None:
    """Serve some calls in the template, as every service will.

    The interpreter rewrites code during its first runs (3.11 specialises a function's instructions
    after some eight runs). In a child, each page that it rewrites has to be copied; in the template
    it rewrites the page once, for all children.
    """
    ours, theirs = (end.detach() for end in _pair())
    caller = _core.Connection(ours, peer="warm-up")
    connection = _core.Connection(theirs, server=True, peer="warm-up")
    codec = by_name("pickle")
    target = Target()
    target._connection = connection
    reference, arguments = (__name__, "_Warm"), pickle.dumps(((), []), protocol=5)
    calls = [(START, (reference, arguments)), ("ping", ()), (RESET, ())] * WARM_ROUNDS
    for name, args in [*calls, (STOP, ())]:
        head, segments = codec.encode_call(name, args, None)
        caller.begin(codec.number, head, segments, 0)
    with contextlib.suppress(SystemExit):
        serve_connection(connection, target, codec="pickle", on_control=target._control)
    caller.close()
    connection.close()


class _Warm:
    """The service of the warm-up."""

    def ping(self) -> None:
        """Do nothing."""

    def reset(self) -> None:
        """Forget nothing."""


def prepare(directory: str) -> None:
    """Prepare the template for the service that is forked next.

    That service gets a place for temporary files, and random numbers of its own: `random` reseeds
    itself after a fork, numpy does not. This runs right after the last fork, when nobody waits.
    """
    move_in(directory)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


class Branched(BaseException):
    """Raised in a copy, so that it leaves the call in which the original was copied.

    It is no `Exception`, so that no handler in between treats it as a failure of that call.
    """

    def __init__(self, connection: _core.Connection, failure: Exception | None) -> None:
        super().__init__()
        self.connection = connection
        self.failure = failure


class Orphaned(BaseException):
    """Raised if a service that should be copied finds that its keeper has ended.

    No call is answered any more: the client learns from its pool that the keeper was killed. The
    order in which the kernel ends the processes would decide whether an answer reached it.
    """


def branch(keeper: _core.KeeperLink, target: Target, count: int, same_seed: bool) -> None:
    """Fork copies of this service, as the keeper orders them; in a copy raises `Branched`.

    Raises:
        ConfigError: it has more than one thread.
        Orphaned: the keeper has ended.
    """
    extra = extra_threads()
    if extra:
        with _kept():
            for _ in range(count):
                keeper.refuse()
        raise ConfigError(
            f"this service has {len(extra)} threads besides its own ({', '.join(extra.values())}), "
            "and a fork would copy none of them; end them first"
        )
    for _ in range(count):
        connection = _core.Connection.unconnected("the client")
        state = random_state() if same_seed else None
        with _kept():
            directory = keeper.branch(connection)
        if directory is not None:
            raise Branched(connection, _settled(target, directory, state))


@contextlib.contextmanager
def _kept() -> Iterator[None]:
    """Work with the keeper; no caller gets an error of the `with` block as an answer.

    If a copy cannot be made, it ends with the reason in its output: until it has a connection of
    its own it holds that of the original, on which only the original answers.
    """
    original = os.getpid()
    try:
        yield
    except Exception as failure:
        if os.getpid() == original:
            raise Orphaned from failure
        traceback.print_exc()
        os._exit(1)


def _settled(target: Target, directory: str, state: tuple[Any, Any] | None) -> Exception | None:
    """Make a copy ready for its first call, with its own random numbers or `state`.

    Returns an error instead of raising it: raised, it would be sent to the caller of the original.
    """
    try:
        gc.freeze()  # pages that it shares with the original stay shared
        prepare(directory)
        if state is not None:
            restore_random(state)
        else:
            target._reseed()  # not as a call, which would empty the original's directory
    except Exception as error:
        return error
    return None


def random_state() -> tuple[Any, Any]:
    """The states of the global generators of `random` and numpy, if these are imported."""
    numpy_random = sys.modules.get("numpy.random")
    own = sys.modules.get("random")
    return own and own.getstate(), numpy_random and numpy_random.get_state()


def restore_random(state: tuple[Any, Any]) -> None:
    """Restore these states: a fork reseeds `random`, and `prepare` reseeds numpy."""
    own, numpy_state = state
    if own:
        sys.modules["random"].setstate(own)
    if numpy_state:
        sys.modules["numpy.random"].set_state(numpy_state)


def main(keeper: _core.KeeperLink, target: Target) -> None:
    """Run the serving loop in the template, and fork services out of it, until the keeper ends.

    The loop waits for its first call in the template, and a child is forked during that wait. So
    the child has all objects of the loop already, on pages that it shares; objects that it made
    itself would need pages of its own.
    """
    target._connection = connection = _core.Connection.unconnected("the client")
    loop = _core.PreforkLoop(keeper, connection, prepare)
    next_call: Any = loop.next_call

    def control(name: str, args: tuple[Any, ...]) -> Any:
        if name == FORK:
            return branch(keeper, target, *args)
        if name == START:
            farewell.begin()
        return target._control(name, args)

    farewell = Farewell(keeper, target)
    while True:
        try:
            serve_connection(
                connection,
                target,
                codec="pickle",
                on_control=control,
                next_call=next_call,
                after_call=farewell.look,
            )
            break
        except (BrokenError, Orphaned):
            break  # the client ended in the middle of an answer, or the keeper did
        except Branched as copy:
            connection.close()
            target._connection = connection = copy.connection
            target._failure = copy.failure
            target._settle()
            farewell = Farewell(keeper, target)
            farewell.begin()
            next_call = None
    # The client of a service has ended or has given the service up. Only the keeper decides whether
    # and when the service ends: a decision here would race with it (see the concept page). The end
    # of file on the link does not race. The keeper closes its end of the link once it has reaped
    # this process, or if it will never know of it (its parent died before reporting it), or by its
    # own death. Then nobody else kills this process group, which this process leads.
    if loop.is_service:
        if farewell.wanted:
            farewell.run()
            with contextlib.suppress(Error):
                keeper.report_exit_hooks()  # a keeper that still runs ends what this process leaves
                os._exit(0)
        keeper.await_end()
        os.killpg(0, signal.SIGKILL)
