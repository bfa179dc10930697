"""What makes services of a shared pool interchangeable, and how the lender starts one.

The key is a digest of content, because programs that know nothing of each other compute it.
What a service is made with is covered by it but does not go to the lender, which must never
unpickle anything: whoever starts a service sends that over the service's own socket.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from typing import Any

from forebay.pool import _template
from forebay.pool._application import Application, application_of, reference_of
from forebay.pool._command import Command
from forebay.pool._kind import THREAD_VARIABLES
from forebay.pool._proxy import public_methods
from forebay.pool._reset import Reset
from forebay.pool._spec import Spec

VOLATILE = frozenset(
    ("_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "WINDOWID", "PYTEST_CURRENT_TEST")
)
"""Variables that tell one shell or terminal from another, and are not passed on to services."""

Pairs = list[tuple[bytes, bytes]]


class SharedKind:
    """One kind of service of a shared pool.

    Attributes:
        digest: of everything that makes two services interchangeable.
        name: stands in messages.
        resets: how a service is made clean.
        methods: names that calls may use; none for a program.
        make: arguments of the call that makes a Python service; None for a program.
        told: what the lender is told: digest, name, digest of the template (empty for a program),
            command line, environment, directory, what a template is to import.
    """

    def __init__(
        self,
        name: str,
        resets: Reset,
        *,
        methods: frozenset[str] = frozenset(),
        make: tuple[Any, ...] | None = None,
        template: bytes = b"",
        launch: tuple[list[bytes], Pairs, bytes],
        setup: bytes = b"",
        identity: Any,
    ) -> None:
        self.name = name
        self.resets = resets
        self.methods = methods
        self.make = make
        self.digest = _digest(template, identity)
        self.told = (self.digest, os.fsencode(name), template, *launch, setup)


def shared_kind(spec: Spec[Any] | Command, *, by_value: bool) -> SharedKind:
    """The kind of a spec or of a command.

    Raises:
        ConfigError: another process could not import the class, or there is no such program.
    """
    if isinstance(spec, Command):
        return _program_kind(spec)
    service = spec.service
    application = application_of(service, by_value=by_value)
    reference = reference_of(service, by_value=by_value)
    has_reset = callable(getattr(service, "reset", None))
    launch = (_template.command_line(), _environment(dict.fromkeys(THREAD_VARIABLES, "1")), _here())
    path, argv = _import_path(), _arguments(application)
    return SharedKind(
        service.__name__,
        service.resets or (Reset.METHOD if has_reset else Reset.STATELESS),
        methods=public_methods(service),
        make=(reference, spec.arguments),
        # Of the values: the bytes that a template is told depend on who else holds an object.
        template=_digest(launch, tuple(application), path, argv, _source_version(service)),
        launch=launch,
        setup=_template.setup_of(application, path=path, argv=argv),
        identity=(reference, spec.arguments),
    )


def _program_kind(command: Command) -> SharedKind:
    program = command.program()
    arguments = [program, *command.arguments[1:]]
    launch = (
        [os.fsencode(argument.replace("{fd}", "3")) for argument in arguments],
        _environment(command.env),
        os.fsencode(command.cwd or os.getcwd()),
    )
    return SharedKind(
        os.path.basename(program),
        Reset.STATELESS if command.reuse else Reset.NEVER,
        launch=launch,
        identity=(launch, _file_version(program), command.reuse),
    )


def _environment(extra: Any) -> Pairs:
    """The environment of this process, without what only tells its terminal, in one order."""
    merged = {
        **os.environb,
        **{os.fsencode(name): os.fsencode(value) for name, value in extra.items()},
    }
    dropped = {os.fsencode(name) for name in VOLATILE}
    return sorted(item for item in merged.items() if item[0] not in dropped)


def _here() -> bytes:
    return os.fsencode(os.getcwd())


def _import_path() -> list[str]:
    """`sys.path` in absolute terms, each once, so that programs of one directory agree on it."""
    return list(dict.fromkeys(os.path.abspath(entry) for entry in sys.path))


def _arguments(application: Application) -> list[str]:
    """Command lines differ between programs; a module that they share is not to depend on one."""
    return sys.argv if application.kind in ("path", "main") else [""]


def _source_version(service: type) -> tuple[int, ...]:
    """The file that defines a class: services of another version are another kind."""
    module = sys.modules.get(service.__module__)
    path = getattr(module, "__file__", None)
    return () if path is None else _file_version(path)


def _file_version(path: str) -> tuple[int, ...]:
    file = os.stat(path)
    return (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns)


def _digest(*parts: Any) -> bytes:
    # marshal writes equal values alike where they are made of tuples, lists, bytes, str and int;
    # version 2 has no references, which depend on who else holds an object.
    return hashlib.blake2b(marshal.dumps(parts, 2), digest_size=32).digest()
