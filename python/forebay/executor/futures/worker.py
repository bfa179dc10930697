"""The worker of an executor of functions, which imports the caller's program and no App."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import pickle
from collections.abc import Callable
from typing import Any, Literal

from forebay.executor.futures import output as program_output
from forebay.executor.futures.variables import Variables
from forebay.executor.worker.worker import Worker
from forebay.pool._internal import Application

CODE = "0" * 16

AHEAD = 8
"""Calls that a worker is handed beyond the one that it runs."""

_variables = Variables()
"""Those of this process, as its main module is."""


def manifest(call: str) -> bytes:
    """The manifest for the dispatcher: one request, whose arguments it does not read."""
    request: dict[str, Any] = {
        "name": call,
        "lane": "long",
        "parameters": [],
        "result": None,
        "retries": 0,
        "ahead": AHEAD,
    }
    told = {"schema": 1, "app": "executor", "target": "", "code": CODE, "sources": []}
    return json.dumps(told | {"requests": [request], "definitions": {}, "services": []}).encode()


class CallWorker(Worker):
    """Runs functions of the caller's program.

    Args:
        kind: how `target` is read, as in `forebay.pool.service.application.Application`.
        target: the caller's main module.
        modules: what else is imported before the first fork; a failed import is ignored.
        output: the socket that gives the caller's stdout and stderr.
        manifest: what `manifest` returns.
    """

    def __init__(
        self,
        kind: Literal["main", "path", "none"],
        target: str,
        modules: tuple[str, ...],
        output: str,
        manifest: bytes,
    ) -> None:
        super().__init__("none", "")  # there is no App
        Application(kind, target).load()
        for module in modules:
            # The call that needs it will raise the error.
            with contextlib.suppress(Exception):
                __import__(module)
        self._told = manifest
        self._output = program_output.ask(output)

    def manifest(self) -> bytes:
        """The entry of the only request."""
        return self._told

    def _redirect_output(self) -> int:
        """Print to the output of the program; nothing comes over the pipe that the server reads."""
        reading = super()._redirect_output()
        program_output.use(self._output)
        return reading


class InitializerFailedError(Exception):
    """The initializer raised in a worker.

    Attributes:
        initializer_failed: what and why, for the executor's message.
    """

    def __init__(self, initializer_failed: str) -> None:
        super().__init__(initializer_failed)
        self.initializer_failed = initializer_failed


def initialised(
    initializer: bytes, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call the function in a worker whose initializer has run."""
    initialise(initializer)
    return function(*args, **kwargs)


def called_by_value(function: bytes, arguments: bytes) -> Any:
    """Call a function that was sent by value; its arguments may be of classes that it brings."""
    called = _variables.function(function)
    args, kwargs = _variables.received(arguments)
    return called(*args, **kwargs)


def initialise_by_value(data: bytes) -> None:
    """Run an initializer that was sent by value."""
    _variables.initialise(data)


@functools.cache
def initialise(initializer: bytes) -> None:
    """Run the pickled initializer, once in each worker.

    Raises:
        InitializerFailedError: it raised.
    """
    try:
        function, arguments = pickle.loads(initializer)  # of the caller's program
        function(*arguments)
    except BaseException as error:
        logging.getLogger("concurrent.futures").critical("Exception in initializer:", exc_info=True)
        raise InitializerFailedError(f"the initializer raised {error!r}") from error
