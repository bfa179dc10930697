"""The executor of functions: `concurrent.futures` on warm, supervised workers."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import os
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from forebay.config import parse_bytes
from forebay.errors import ConfigError
from forebay.executor.futures import shutdown
from forebay.executor.futures.answer import ERROR, unsendable
from forebay.executor.futures.future import CallFuture
from forebay.executor.futures.mapping import Mapping, chunks_of, flattened, results_of, run_chunk
from forebay.pool._internal import Values, refuse_in_template, value_of

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.executor.futures.calls import Calls

P = ParamSpec("P")
T = TypeVar("T")

PROTOCOL = 5


class Executor(concurrent.futures.Executor):
    """Runs functions in worker processes, as `concurrent.futures.ProcessPoolExecutor` does.

    Workers are forked from a template that has imported your program, so one costs milliseconds
    and a few megabytes. A worker that ends takes one call with it, whose future fails with
    `forebay.DiedError` (which is also a `BrokenProcessPool`); the others go on.
    Nothing is kept on disk. Functions and arguments are pickled, by the thread that submits.
    The output of a call goes to the output of your program.

    Thread-safe. After `os.fork()` the child's copy is unusable and the parent's is unaffected.
    A main module needs `if __name__ == "__main__":` around the code that runs the program.

    Args:
        max_workers: calls at once; default: as many as this process may use cores.
        memory: the most that one call needs, in bytes or as text such as "300MB". Calls wait while
            that does not fit the machine or the cgroup. Default: what earlier calls used.
        initializer: called in each worker before its first call; if it raises, the executor is
            broken.
        initargs: its arguments.
        max_tasks_per_child: calls after which a worker is replaced; default: any number.
        by_value: send functions, arguments and `initializer` themselves, with the variables that
            their code uses (by cloudpickle), where a worker cannot import them, as in a notebook.

    Raises:
        ConfigError: an argument is wrong. It is also a ValueError.
        TypeError: `initializer` cannot be called.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        memory: str | int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_tasks_per_child: int | None = None,
        by_value: bool = False,
    ) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ConfigError(f"max_workers must be greater than 0; it is {max_workers}")
        if max_tasks_per_child is not None and max_tasks_per_child <= 0:
            raise ConfigError(f"max_tasks_per_child must be >= 1; it is {max_tasks_per_child}")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._max_workers = max_workers or len(os.sched_getaffinity(0))
        self._max_tasks_per_child = max_tasks_per_child
        self._memory_bytes = None if memory is None else parse_bytes(memory)
        self._initializer = initializer
        self._initargs = initargs
        self._initializer_blob = b""
        self._values = Values() if by_value else None
        self._calls: Calls | None = None
        """Made by the first call, whose module the template imports."""
        self._shut_down = False
        self._start_lock = threading.Lock()

    @property
    def _broken(self) -> str | bool:
        """Why it runs no calls any more, by the name that the standard library's has."""
        return (self._calls is not None and self._calls.broken) or False

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[T]:
        """Have `fn(*args, **kwargs)` run in a worker.

        Returns:
            A future. Its exception is what the function raised, with the worker's traceback as its
            cause, or the error if function, arguments or result cannot be pickled.
            `cancel` works until a worker has begun.

        Raises:
            RuntimeError: the executor or the interpreter is shutting down.
            BrokenProcessPool: no worker can be started; the message says why.
            ConfigError: after a fork, in a main module without a guard, or for a function that
                was typed into an interactive session, without `by_value`.

        Cost: one pickling and one message to the dispatcher's thread.
        """
        calls = self._calls or self._start(fn)
        future: CallFuture[T] = CallFuture(calls)
        try:
            call = self._pickled(fn, args, kwargs)
        except Exception as error:
            self._check(calls)
            future.put(0, ERROR, unsendable(error))
            return future
        with calls.lock:
            if calls.leaving or calls.broken:
                self._check(calls)
            future.ticket = calls.begin(future, call)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Yield the results of `map(fn, *iterables)`, in order.

        Args:
            fn: what is called.
            *iterables: its arguments; the shortest one ends the map.
            timeout: seconds from now within which every result must be there.
            chunksize: calls that are sent and run as one.
            buffersize: calls (or chunks) that are submitted ahead; the iterables are read no
                further. Default: all of them, at once.

        Raises:
            TimeoutError: the time ran out. Calls that wait are cancelled.
            What a call raised, at its turn; calls that wait are cancelled.
        """
        if chunksize < 1:
            raise ConfigError("chunksize must be >= 1.")
        if buffersize is not None and buffersize < 1:
            raise ConfigError("buffersize must be None or > 0")
        deadline = None if timeout is None else time.monotonic() + timeout
        called: Callable[..., Any] = fn
        arguments: Iterator[tuple[Any, ...]] = zip(*iterables, strict=False)
        if chunksize > 1:
            called = functools.partial(run_chunk, fn)
            arguments = chunks_of(iterables, chunksize)
        mapping = Mapping(self._calls or self._start(fn))
        self._submit_all(mapping, called, itertools.islice(arguments, buffersize))
        submit_next = None
        if buffersize is not None:

            def submit_next() -> None:
                self._submit_all(mapping, called, itertools.islice(arguments, 1))

        results = results_of(mapping, submit_next, deadline)
        return flattened(results) if chunksize > 1 else results

    def _submit_all(
        self, mapping: Mapping, fn: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]
    ) -> None:
        """Submit calls of a map, one by one."""
        calls = mapping.calls
        for args in arguments:
            try:
                call = self._pickled(fn, args, {})
            except Exception as error:
                self._check(calls)
                mapping.add_failed(unsendable(error))
                continue
            with calls.lock:
                if calls.leaving or calls.broken:
                    self._check(calls)
                mapping.add(calls.begin(mapping, call))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, and end the workers once the last call has ended.

        Args:
            wait: return only then.
            cancel_futures: take back the calls that no worker has begun.

        Idempotent.
        """
        with self._start_lock:
            self._shut_down = True
            calls = self._calls
        if calls is None or calls.inherited:
            return
        calls.leave()
        if cancel_futures:
            calls.cancel_all()
        if wait:
            calls.join()

    def kill_workers(self) -> None:
        """End the workers at once, whatever they run, and shut down; as in Python 3.14.

        Futures that have not ended fail with a `BrokenProcessPool`.
        """
        with self._start_lock:
            self._shut_down = True
            calls = self._calls
        if calls is not None and not calls.inherited:
            calls.give_up("the workers of this executor were killed, as it was asked to")
            calls.join()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        """Shut down and wait; after Ctrl-C, which does not reach the workers, kill them."""
        if exc_type is not None and issubclass(exc_type, KeyboardInterrupt):
            self.kill_workers()
        else:
            self.shutdown()
        return False

    def _pickled(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> bytes:
        """What a worker runs."""
        call: tuple[Any, Any, Any] = fn, args, kwargs
        if self._values is not None:
            from forebay.executor.futures.worker import called_by_value

            data = self._values.of(fn).data
            call = called_by_value, (data, value_of((args, kwargs)).data), {}
        if self._initializer is not None:
            from forebay.executor.futures.worker import initialised

            call = initialised, (self._initializer_blob, *call), {}
        return pickle.dumps(call, PROTOCOL)

    def _pickled_initializer(self) -> bytes:
        made = self._initializer, self._initargs
        if self._values is None:
            return pickle.dumps(made, PROTOCOL)
        from forebay.executor.futures.worker import initialise_by_value

        return pickle.dumps((initialise_by_value, (value_of(made).data,)), PROTOCOL)

    def _start(self, fn: Callable[..., Any]) -> Calls:
        """Begin with the template; returns at once."""
        from forebay.executor.futures import start

        refuse_in_template()
        if self._values is None:
            start.refuse_unimportable(fn)
        with self._start_lock:
            if self._calls is None:
                self._check(None)
                if self._initializer is not None:
                    self._initializer_blob = self._pickled_initializer()
                self._calls = calls = start.start(
                    fn,
                    max_workers=self._max_workers,
                    memory_bytes=self._memory_bytes,
                    uses_max=self._max_tasks_per_child,
                )
                # An executor to which nothing refers any more is shut down, without a wait.
                self._held = weakref.finalize(self, calls.leave)
                self._held.atexit = False
            return self._calls

    def _check(self, calls: Calls | None) -> None:
        """Raise why a call cannot be taken, if it cannot."""
        from forebay.executor.futures import errors

        if calls is not None and calls.inherited:
            raise ConfigError(
                "this executor belongs to the parent of this process; make one after the fork"
            )
        if calls is not None and calls.broken:
            raise errors.BrokenExecutorError(calls.broken, delivered="no")
        if shutdown.is_exiting():
            raise errors.ShutDownError("cannot schedule new futures after interpreter shutdown")
        if self._shut_down:
            raise errors.ShutDownError("cannot schedule new futures after shutdown")
