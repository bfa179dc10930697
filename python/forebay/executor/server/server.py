"""A server of requests: the dispatcher and what stands around it.

The dispatcher decides and speaks to clients and workers in threads of its own (Rust); the
supervisor starts workers; a lender lends services. The main thread answers what is asked about
requests, and signals; a thread of its own does what waits for the disk. The server never imports
the application, and never forks.

| signal | what it does |
|---|---|
| SIGTERM, SIGINT | accept nothing more, let what runs end, end; the second one ends at once |
| SIGHUP | load the application anew |
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from forebay import _core
from forebay._runtime_directory import make_private, open_private
from forebay.config import ExecutorConfig, PoolConfig
from forebay.errors import ClosedError, ConfigError, Error, InternalError
from forebay.executor.app.sources import code_of
from forebay.executor.backup.layout import refuse_other
from forebay.executor.server.admin import HOOK_TEST, SLOW, Admin
from forebay.executor.server.plan import Plan
from forebay.executor.server.rows import Rows, rfc3339
from forebay.executor.server.services import Services
from forebay.executor.server.settings import item_limits, settings_of
from forebay.executor.server.supervisor import Supervisor
from forebay.executor.server.takeover.handover import Handover, HandoverListener, Offer
from forebay.executor.server.takeover.moved import aged
from forebay.executor.server.takeover.predecessor import Inherited, Predecessor
from forebay.executor.server.takeover.succession import Kept, Succession
from forebay.executor.server.worker_group import local_group
from forebay.executor.wire.paths import Notice, Running, ServerPaths, StateLock, paths_of

if TYPE_CHECKING:
    from types import FrameType

    from forebay._hook_config import HookConfig
    from forebay.executor.app.target import Target
    from forebay.executor.engine.engine import Cluster
    from forebay.executor.server.hooks.driver import Hooks
    from forebay.executor.server.worker_group import WorkerGroup
    from forebay.pool import Spec

OOM_SCORE = 500
"""Of workers (oom_score_adj): the kernel ends one of them before the server."""

_log = logging.getLogger(__name__)

Report = Callable[[str, dict[str, Any]], None]
"""Gets what happens, and its facts.

Events: "engine", "ready", "reloading", "loaded", "unfit", "changed", "warning", "draining",
"ended"; where it takes another one's place "taking", where another one takes its place "given",
"resumed", "taken".
"""


class UnfitError(ConfigError):
    """The application of a server in the background cannot be imported, and nothing waits for it.

    Attributes:
        reason: the traceback.
    """

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"{target} cannot be imported: {reason}")
        self.reason = reason


def _say_nothing(event: str, facts: dict[str, Any]) -> None:
    """Nobody listens."""


class Server:
    """Serves the requests of one application, from `run` until a signal or `stop`.

    Args:
        target: the application.
        config: sizes and times.
        pool: of the services that it lends.
        reloads: load changed sources before the next request.
        ends_when_idle: end after `config.idle_timeout` without a request.
        state_dir: where servers keep their state; default: the usual place of this user.
        http: the address of its gateway, which others start, for `info`; None: it has none.
        log_format: of the workers' own log lines: "text" or "json".
        hooks: what is called when a request is dead or a limit is near.
        allows_chaos: whether `forebay chaos` may strike it, for `info`.
        predecessor: the running server whose place it takes; it stays the caller's.
        offer: what there is beside its sockets for the next one.
        report: called from any thread, and returns soon.

    Thread affinity: `run` is called in the main thread; `stop` and `reload` in any.
    """

    def __init__(
        self,
        target: Target,
        config: ExecutorConfig | None = None,
        *,
        pool: PoolConfig | None = None,
        reloads: bool = False,
        ends_when_idle: bool = False,
        state_dir: str | os.PathLike[str] | None = None,
        http: str | None = None,
        log_format: str | None = None,
        hooks: Sequence[HookConfig] = (),
        allows_chaos: bool = False,
        predecessor: Predecessor | None = None,
        offer: Callable[[], Offer] = Offer,
        report: Report = _say_nothing,
    ) -> None:
        self._target = target
        self._config = config or ExecutorConfig()
        self._pool = pool or PoolConfig()
        self._reloads = reloads
        self._ends_when_idle = ends_when_idle
        self._log_format = log_format
        self._hook_configs = hooks
        self.hooks: Hooks | None = None
        """None: there are none, or `run` has not made them."""
        self.paths: ServerPaths = paths_of(target, state_dir=state_dir)
        self.manifest: dict[str, Any] = {}
        """Of the newest code; empty until it was loaded once."""
        self._http = http
        self._allows_chaos = allows_chaos
        self.offer = offer
        self._succession = Succession(predecessor, self, report)
        self._gateway: int | None = None
        """Its process."""
        self._report = report
        self._started_at = time.time()
        self._asked_to_stop = 0
        self._drain_s: float | None = None
        self._draining = False
        self._over = threading.Event()
        self._fit = threading.Event()
        """Set once the application was loaded, or could not be."""
        self._unfit: str | None = None
        """Why the newest code cannot be imported."""
        self._fault: BaseException | None = None
        self._notice: Notice | None = None
        self._dispatcher: _core.Dispatcher | None = None
        self._cluster: Cluster | None = None
        """None: workers run here."""
        self._supervisor: Supervisor | None = None
        """Both are None until `run` has made them; signals may come before."""
        self._services: Services
        self._lock: StateLock
        self._slow: ThreadPoolExecutor
        """Answers what is in `SLOW`."""
        self._tests: ThreadPoolExecutor
        """Answers tests of hooks, each of which waits for its receiver."""
        self._was_ready = False
        self._rebound = threading.Event()
        """A socket was removed and made again."""
        self._signalled: int
        """Readable once a signal has come."""

    def run(self) -> int:
        """Serve until the end; returns the number of the signal that asked for it, or 0.

        Raises:
            BrokenError: the server whose place it was to take keeps it.
            BusyError: another server has the state of this application.
            ConfigError: a directory cannot be used, or a setting is wrong.
            UnfitError: it ends when idle, nothing waits, and there is nothing to serve.
            Error: the store cannot be opened; the message says why.
            InternalError: a part of the server ended by its own fault.
        """
        signals: list[int] = []
        with contextlib.ExitStack() as stack:
            self._signalled = stack.enter_context(_handling(self._handlers(signals)))
            succession = self._succession
            self._open_cluster(stack)
            stack.callback(succession.close)
            place = None
            if succession.takes and not self._asked_to_stop:
                place = succession.take(self._group, within_s=self._config.drain_grace)
            begins = place is not None or not self._asked_to_stop
            while begins:
                self._run_once(place)
                place = self._pass_on()
                begins = place is not None
        number = next(iter(signals), 0)
        if not self._succession.is_over:
            self._report("ended", {})
        if isinstance(self._fault, UnfitError):
            raise self._fault
        if self._fault is not None:
            raise InternalError(f"the server ended by a fault: {self._fault!r}") from self._fault
        return number

    def _open_cluster(self, stack: contextlib.ExitStack) -> None:
        """Have workers run where the configuration says."""
        if self._config.engine:
            from forebay.executor.engine.engine import Cluster

            socket = self.paths.engine_socket
            make_private(socket.parent)
            cluster = Cluster(self._config, self._target, self._pool, socket, self.warned)
            stack.callback(cluster.close)
            if not cluster.start(lambda: self._asked_to_stop > 0):
                return
            self._cluster = cluster
            self._report("engine", {"name": self._config.engine, **cluster.facts()})

    def _group(self) -> WorkerGroup:
        """Of the newest code."""
        return self._group_of(self._spec(), self._pool.start_timeout)

    @property
    def _group_of(self) -> Callable[[Spec[Any], float], WorkerGroup]:
        return local_group if self._cluster is None else self._cluster.group

    def _run_once(self, place: Inherited | None) -> None:
        """Serve until the end, or until the place is given to another server."""
        with contextlib.ExitStack() as parts:
            dispatcher, supervisor = self._build(parts, place)
            self._install_known(dispatcher)
            supervisor.start()
            self._serve(dispatcher)

    def stop(self, drain_s: float | None = None) -> None:
        """End once what runs has ended, at most after `drain_s` seconds (default: the setting's).

        Asked for again, it ends at once.
        """
        self._asked_to_stop += 1
        self._drain_s = self._config.drain_grace if drain_s is None else drain_s
        self._wake()

    def reload(self) -> None:
        """Load the application anew; what runs is not disturbed."""
        if self._supervisor is not None:  # else its first import is still to come
            self._supervisor.reload()

    def set_gateway(self, pid: int | None) -> None:
        """Take the connections of this process for the gateway's, which says for whom it calls.

        None: there is no gateway, and whoever gets its number next is none.

        In force when this returns; any thread.
        """
        self._gateway = pid
        if self._dispatcher is not None:
            with contextlib.suppress(ClosedError):  # the server is about to end
                self._dispatcher.set_gateway(pid)

    def facts(self) -> dict[str, Any]:
        """What it is, for `info`."""
        return {
            "pid": os.getpid(),
            "started_at": rfc3339(int(self._started_at * 1000)),
            "target": self._target.text,
            "file": str(self._target.file),
            "app": self.manifest.get("app"),
            "code": self.manifest.get("code"),
            "state_dir": str(self.paths.state),
            "socket": str(self.paths.socket),
            "pool_socket": str(self.paths.pool_socket),
            "http": self._http,
            "engine": None if self._cluster is None else self._cluster.facts(),
            "synchronous": self._config.synchronous,
            "retention_s": self._config.retention_age,
            "reloads": self._reloads,
            "idle_end_s": self._config.idle_timeout if self._ends_when_idle else None,
            "allows_chaos": self._allows_chaos,
            "draining": self._asked_to_stop > 0,
            "unfit": self._unfit,
            "fault": self._fault_of_state(),
        }

    def _fault_of_state(self) -> str | None:
        if not self._lock.removed:
            return None
        return (
            f"the state directory {self.paths.state} was removed while the server runs, and"
            " requests are refused; stop the server and start it again"
        )

    def services(self) -> list[dict[str, Any]]:
        """The services that it lends."""
        return self._services.seen()

    def figures(self) -> dict[str, list[Any]]:
        """What those are, as gauges of metrics."""
        return self._services.figures()

    def hook_figures(self) -> dict[str, list[Any]]:
        """Calls of hooks, as metrics."""
        return {} if self.hooks is None else self.hooks.figures()

    def pids(self) -> dict[int, int]:
        """Processes of the workers, by their slot."""
        pids = {} if self._supervisor is None else self._supervisor.pids()
        moved = self._succession.moved
        return pids if moved is None else pids | moved.pids

    def look(self) -> dict[str, Any] | None:
        """The figures of the dispatcher, as soon as it answers; None: it is not there.

        Any thread. Waits for as long as the dispatcher hangs.
        """
        with contextlib.suppress(ClosedError):
            return None if self._dispatcher is None else self._dispatcher.figures()
        return None

    # Its parts.

    def _build(
        self, parts: contextlib.ExitStack, place: Inherited | None
    ) -> tuple[_core.Dispatcher, Supervisor]:
        """Make the parts; `parts` closes them in the reverse order."""
        paths = self.paths
        refuse_other(paths.state)
        self._lock = StateLock(paths.state, None if place is None else place.lock)
        parts.callback(self._close_lock)
        make_private(paths.socket.parent)
        self._slow = ThreadPoolExecutor(1, "forebay-admin")
        self._tests = ThreadPoolExecutor(2, "forebay-hook-test")
        # Behind the dispatcher's end, which ends what `_slow` waits for, and behind that of the
        # hooks, which gives up the tests that `_tests` waits for.
        parts.callback(self._slow.shutdown, cancel_futures=True)
        parts.callback(self._tests.shutdown)
        self._dispatcher = dispatcher = self._dispatch(parts, place)
        if self._cluster is not None:
            self._cluster.attend(dispatcher)
        self._services = Services(paths.pool_socket, self._pool, self._warm, dispatcher.note_event)
        parts.callback(self._close_services, self._services)
        succession = self._succession
        self._supervisor = supervisor = Supervisor(
            dispatcher, self._plan(dispatcher), self, succession.take_loaded(), succession.moved
        )
        parts.callback(self._close_supervisor, supervisor)
        if succession.moved is not None:
            parts.callback(succession.moved.close)
        rows = Rows(_core.StoreReader(str(paths.state)), str(paths.state))
        self._admin = Admin(dispatcher, rows, self)
        parts.callback(self._take_notice_back)
        listener = HandoverListener(paths.takeover_socket, dispatcher, self)
        parts.callback(listener.close)
        return dispatcher, supervisor

    def _dispatch(self, parts: contextlib.ExitStack, place: Inherited | None) -> _core.Dispatcher:
        """Make the dispatcher, and what calls hooks."""
        config = self._config
        settings = settings_of(
            config, self.paths, reloads=self._reloads, ends_when_idle=self._ends_when_idle
        )
        if self._cluster is not None:
            settings.update(self._cluster.settings())
        if place is not None:
            settings.update(
                passed=place.clients, gateway=place.gateway or 0, moved=aged(place.workers)
            )
        hooks = None
        if self._hook_configs:
            from forebay.executor.server.hooks.driver import Hooks  # 2 MB, which few want

            hooks = Hooks(
                self._hook_configs,
                state=self.paths.state,
                app=str(self._target.file),
                number=config.server_number,
                max_queued=config.max_queued,
            )
            settings["hooks"] = hooks.outbox
        dispatcher = _core.Dispatcher(settings)
        parts.callback(dispatcher.close)
        if hooks is not None:
            hooks.start(dispatcher.metrics)
            parts.callback(hooks.close)
            # Before that, so that no test begins whose hooks have ended.
            parts.callback(self._tests.shutdown, wait=False, cancel_futures=True)
            self.hooks = hooks
        return dispatcher

    def _spec(self) -> Spec[Any]:
        """A worker of the application."""
        from forebay.executor.worker.worker import Worker

        if self._cluster is not None:
            return self._cluster.spec()
        target = self._target
        return Worker.spec(target.kind, target.where, target.attribute, target.directory)

    def _plan(self, dispatcher: _core.Dispatcher) -> Plan:
        return Plan(
            spec_of=self._spec,
            side_socket=str(self.paths.side_socket),
            options={
                "pool": str(self.paths.pool_socket),
                "clients": str(self.paths.socket),
                "state": str(self.paths.state),
                "result_bytes_max": self._config.max_result_bytes,
                "items": item_limits(self._config),
                "async_at_once": self._config.async_at_once,
                "oom_score": OOM_SCORE,
                "log_format": self._log_format,
                "memory_bytes": dispatcher.figures()["memory_limit_bytes"],
            },
            files=(str(self._target.file),),
            reloads=self._reloads,
            group_of=self._group_of,
            start_timeout=self._pool.start_timeout,
        )

    def _warm(self) -> None:
        if self._supervisor is not None:
            self._supervisor.warm()

    def _wake(self) -> None:
        """Have the main thread look at what it was told."""
        if self._dispatcher is not None:
            self._dispatcher.wake()

    def _install_known(self, dispatcher: _core.Dispatcher) -> None:
        """Accept requests before the application is imported, where its code is the last one's."""
        try:
            text = self.paths.manifest.read_bytes()
            told = json.loads(text)
            if code_of(told["sources"]) != told["code"]:
                return
        except (OSError, ValueError, KeyError, TypeError):
            return  # the first start, or of another version
        with contextlib.suppress(Error):  # the import tells what is wrong with it
            dispatcher.install(text)
            self.manifest = told
            self._fit.set()

    # The main thread.

    def _handlers(self, signals: list[int]) -> dict[int, Callable[[int, FrameType | None], None]]:
        def end(number: int, frame: FrameType | None) -> None:
            signals.append(number)
            self.stop()

        def reload(number: int, frame: FrameType | None) -> None:
            self.reload()

        return {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}

    def _serve(self, dispatcher: _core.Dispatcher) -> None:
        wanted = select.poll()
        for descriptor in (dispatcher.calls_fileno(), self._signalled):
            wanted.register(descriptor, select.POLLIN)
        while True:
            # Looked at before each wait: whoever changes it wakes us, at whatever moment.
            if self._fit.is_set() and self._notice is None:
                self._tell_ready()
            if self._rebound.is_set() and self._notice is not None:
                self._rebound.clear()
                self._tell_again()
            if self._asked_to_stop:
                self._begin_end(dispatcher)
            if self._over.is_set():
                return
            self._services.look()
            pause = self._services.pause
            wanted.poll(None if pause is None else math.ceil(pause * 1000))
            with contextlib.suppress(BlockingIOError):
                os.read(self._signalled, 4096)
            calls = dispatcher.calls(0.0)
            if calls is None:
                return
            for call in calls:
                if call[1] in SLOW:
                    self._slow.submit(self._answer, dispatcher, *call)
                elif call[1] == HOOK_TEST:
                    self._tests.submit(self._answer, dispatcher, *call)
                else:
                    self._answer(dispatcher, *call)

    def _answer(
        self, dispatcher: _core.Dispatcher, ticket: int, method: str, arguments: bytes, by: str
    ) -> None:
        head = self._admin.answer(method, arguments, by)
        with contextlib.suppress(ClosedError):  # who asked hears that the server has ended
            dispatcher.answer(ticket, head)

    def _tell_ready(self) -> None:
        self._renew_notice()
        assert self._dispatcher is not None
        self._succession.serves(self._dispatcher)
        if not self._was_ready:  # else it is ready again, with what stands around it
            self._was_ready = True
            self._report("ready", self.facts())

    def _tell_again(self) -> None:
        """The sockets are new: say so, unless nobody is to come any more."""
        if self._draining:
            return
        try:
            self._renew_notice()
        except OSError as error:
            self.warned(
                f"{self.paths.notice} cannot be written again: {error}; commands find the server"
                f" by its socket alone, unix://{self.paths.socket}"
            )

    def _renew_notice(self) -> None:
        """Say where it serves; the file may have been removed with the sockets.

        Where the new one cannot be written, the old one stays.
        """
        paths, target = self.paths, self._target
        attribute = f":{target.attribute}" if target.attribute else ""
        told = Running(
            pid=os.getpid(),
            started_at=self._started_at,
            target=f"{target.file}{attribute}",
            file=str(target.file),
            socket=str(paths.socket),
            state=str(paths.state),
        )
        before, self._notice = self._notice, Notice(paths.notice, told)
        if before is not None:
            before.close()

    def _take_notice_back(self) -> None:
        if self._notice is not None and not self._succession.is_given:
            self._notice.close()

    def _close_supervisor(self, supervisor: Supervisor) -> None:
        """Its workers end, unless they are to go over."""
        if not self._succession.is_given:
            supervisor.close()

    def _close_services(self, services: Services) -> None:
        """They end, unless what runs goes over and may have leased some."""
        if self._succession.is_given:
            services.retire()
        else:
            services.close()

    def _close_lock(self) -> None:
        """Nobody has it then, unless the place is to be given."""
        if not self._succession.is_given:
            self._lock.close()

    def _pass_on(self) -> Inherited | None:
        """Give the place to who asked for it; what to serve with again, if that has failed."""
        if not self._succession.is_given or self._supervisor is None:
            return None
        del self._admin  # with its reader of the store, which is the other server's
        kept = Kept(self._lock, self._supervisor, self._services, self._gateway)
        place = self._succession.pass_on(kept, self._config.drain_grace)
        if self._notice is not None:
            self._notice.close()  # unless it is the other one's by now
            self._notice = None
        self._over.clear()
        self._fit.clear()
        self._draining = False
        return place

    # For a server that asks for its place; called in the listener's thread.

    def unwilling(self) -> str | None:
        """Why it cannot be replaced now."""
        return "it ends" if self._asked_to_stop else None

    def moved(self) -> int:
        """How many workers it has that the server before it has started."""
        moved = self._succession.moved
        return 0 if moved is None else len(moved.pids)

    def keep_workers(self, keeps: bool) -> None:
        """Whether its workers live on when its dispatcher has closed."""
        assert self._supervisor is not None
        self._supervisor.keep(keeps)

    def given(self, given: Handover) -> None:
        """Its dispatcher has closed; `run` goes on with that."""
        self._succession.given(given)
        self._over.set()

    def stops(self) -> int:
        """How often it was asked to stop."""
        return self._asked_to_stop

    def _begin_end(self, dispatcher: _core.Dispatcher) -> None:
        """Let what runs end, and meanwhile go on to answer; the second time end at once."""
        asked, allowed = self._asked_to_stop, self._drain_s
        if asked > 1:
            self._over.set()
        elif not self._draining:
            self._draining = True
            self._take_notice_back()  # who comes now starts another, which waits for our lock
            self._report("draining", {"drain_s": allowed})
            threading.Thread(
                target=self._drain, args=(dispatcher, allowed), name="forebay-drain", daemon=True
            ).start()

    def _drain(self, dispatcher: _core.Dispatcher, allowed: float) -> None:
        with contextlib.suppress(Error):  # closed meanwhile, by the second signal
            dispatcher.drain(allowed)
        self._over.set()
        self._wake()

    # What the supervisor reports, in its thread.

    def loading(self) -> None:
        """The application is imported anew."""
        self._report("reloading", {})

    def loaded(self, manifest: dict[str, Any], text: bytes) -> None:
        """The application was imported."""
        self.manifest, self._unfit = manifest, None
        self._keep(text)
        self._services.want(manifest["services"])
        self._report("loaded", {"code": manifest["code"], "app": manifest["app"]})
        self._fit.set()
        self._wake()

    def unfit(self, reason: str, *, serves: bool) -> None:
        """The application cannot be imported.

        Requests wait, and further ones are refused, unless an older version `serves` on.
        A server in the background that never was of use would only be in the way: it ends.
        """
        _log.error("%s cannot be imported: %s", self._target.text, reason)
        if self._ends_when_idle and not self._fit.is_set() and not self._has_requests():
            self.broken(UnfitError(self._target.text, reason))
            return
        self._unfit = reason
        self._report("unfit", {"reason": reason, "serves": serves})
        self._fit.set()
        self._wake()

    def _has_requests(self) -> bool:
        return self._dispatcher is not None and self._dispatcher.figures()["unfinished"] > 0

    def changed(self, paths: list[str]) -> None:
        """Sources changed that are not loaded by themselves."""
        _log.warning("%s changed; SIGHUP or forebay serve --reload loads it", ", ".join(paths))
        self._report("changed", {"paths": paths})

    def warmed(self, services: list[Any]) -> None:
        """Services are ready."""
        _log.info("services are ready: %s", services)

    def idle(self) -> None:
        """Nobody has asked for anything in a long time."""
        if self._ends_when_idle and self._notice is not None:  # nobody could have asked before
            _log.info("nothing to do for %g s", self._config.idle_timeout)
            self.stop()  # what has come in between ends first

    def warned(self, text: str) -> None:
        """Clients are refused, or a socket is gone for good."""
        _log.warning("%s", text)
        self._report("warning", {"text": text})

    def rebound(self) -> None:
        """Its own sockets were removed, and were made again; the lender says it of its own."""
        _log.warning(
            "sockets of the server in %s were removed and made again", self.paths.socket.parent
        )
        self._rebound.set()
        self._wake()

    def broken(self, error: BaseException) -> None:
        """End at once: without a supervisor, or an application, nothing starts any more."""
        self._fault = error
        self._over.set()
        self._wake()

    def _keep(self, text: bytes) -> None:
        """Write down what the next server may accept before it has imported anything."""
        path = self.paths.manifest
        fresh = path.with_suffix(".new")
        try:
            with open(fresh, "wb", opener=open_private) as file:
                file.write(text)
            os.replace(fresh, path)
        except OSError as error:
            _log.warning("%s cannot be written: %s", path, error)


@contextlib.contextmanager
def _handling(
    handlers: dict[int, Callable[[int, FrameType | None], None]],
) -> Iterator[int]:
    """Signal handlers for the time of a block, and a descriptor that a signal makes readable.

    A handler runs once the main thread is back in Python. A signal that comes right before it
    waits, or to another thread, does not interrupt its wait; the descriptor ends that.
    """
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    waker = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield reading
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(waker)
        os.close(writing)
        os.close(reading)
