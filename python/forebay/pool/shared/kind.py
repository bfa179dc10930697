"""What makes services of a shared pool interchangeable, and how the lender starts one.

The key is a digest of content, because programs that know nothing of each other compute it.
The digest covers the arguments of a service. They do not go to the lender, which must never
unpickle anything: the program that starts a service sends them over the service's own socket.
If a class is forked for each lease (`Reset.FORK`), the lender gets them as bytes and passes them to
the template, which makes the service.
"""

from __future__ import annotations

import copy
import hashlib
import marshal
import os
import sys
from collections.abc import Mapping
from typing import Any

from forebay._working_directory import path_to_tell_apart, working_directory
from forebay.errors import ConfigError
from forebay.pool.lend.kind import is_stateful, parts_of
from forebay.pool.lend.proxy import proxy_class, public_methods, streaming_methods
from forebay.pool.programs.backend import Backend
from forebay.pool.programs.command import Command
from forebay.pool.service import identity, template
from forebay.pool.service.application import Application, application_of, reference_of
from forebay.pool.service.factory import Factory
from forebay.pool.service.limits import Limits
from forebay.pool.service.reset import Reset
from forebay.pool.service.spec import Spec
from forebay.pool.service.threads import template_variables

Pairs = list[tuple[bytes, bytes]]


class SharedKind:
    """One kind of service of a shared pool.

    A service has one lease at a time, whatever `max_leases` its class allows.

    Attributes:
        digest: of everything that makes two services interchangeable.
        name: for messages.
        resets: how a service is made clean.
        proxy: what holders of a lease see.
        copies: the kind of copies of its services, which end with their lease.
        call_timeout: seconds that a call may take unless its caller says otherwise; None: for ever.
        make: arguments of the call that makes a Python service; None for a program.
        told: what the lender is told: digest, name, digest of the template (empty for a program),
            command line, environment, directory, what a template is to import, limits.
    """

    speaks_on_link = True
    """A program gets nothing but its socket."""

    faces = None
    """A program has no client."""

    def __init__(
        self,
        name: str,
        resets: Reset,
        *,
        methods: frozenset[str] | None = None,
        streams: frozenset[str] = frozenset(),
        limits: Limits | None = None,
        stateful: bool = False,
        make: tuple[Any, ...] | None = None,
        template: bytes = b"",
        launch: tuple[list[bytes], Pairs, bytes],
        setup: bytes = b"",
        identity: Any,
    ) -> None:
        self.name = name
        self.resets = resets
        terms, self.call_timeout = parts_of(limits, stateful=stateful)
        self.proxy: type[Any] = Backend
        if methods is not None:
            self.proxy = proxy_class(name, methods, self.call_timeout, streams)
        self.make = make
        self.digest = _digest(template, identity, terms)
        self.told = (self.digest, os.fsencode(name), template, *launch, setup, terms)
        self.copies = self
        if resets is not Reset.NEVER:
            self.copies = copy.copy(self)
            self.copies.resets = Reset.NEVER
            self.copies.copies = self.copies


def shared_kind(spec: Spec[Any] | Command, *, by_value: bool) -> SharedKind:
    """The kind of a spec or of a command.

    Raises:
        ConfigError: another process could not import the class, the program does not exist, or it
            needs something that only a `ServicePool` offers.
    """
    if isinstance(spec, Command):
        return _program_kind(spec)
    if isinstance(spec, Factory):
        raise not_offered(
            f"{spec!r}: a program could not know the methods of what another one made"
        )
    service = spec.service
    application = application_of(service, by_value=by_value)
    made = (reference_of(service, by_value=by_value), spec.arguments)
    in_template = made if spec.resets is Reset.FORK else None
    launch = (template.command_line(), _environment(template_variables(os.environ)), _here())
    path, argv = _import_path(), _arguments(application)
    # Of the values: the bytes that a template is told depend on who else holds an object.
    imported = (launch, tuple(application), path, argv, _source(service), in_template)
    return SharedKind(
        service.__name__,
        spec.resets,
        methods=public_methods(service),
        streams=streaming_methods(service),
        limits=spec.limits,
        stateful=is_stateful(service),
        make=(*made, False, False),  # without a canary; the methods are known
        template=_digest(*imported),
        launch=launch,
        setup=template.setup_of(application, in_template, path=path, argv=argv),
        identity=made,
    )


def _program_kind(command: Command) -> SharedKind:
    name = os.path.basename(command.arguments[0])
    if not command.speaks_on_link:
        raise not_offered(
            f"Command {list(command.arguments)}: a program that is not ready by a byte to {{fd}}, "
            "or that has connect=, stdio=True, or a directory, socket or port of its own,"
        )
    program = command.program()
    arguments = [os.fsencode(program)]
    arguments += [command.filled(argument, None) for argument in command.arguments[1:]]
    env = {variable: command.filled(value, None) for variable, value in command.env.items()}
    directory = command.filled(command.cwd or working_directory(), None)
    launch = (arguments, _environment(env), directory)
    return SharedKind(
        name,
        Reset.STATELESS if command.reuse else Reset.NEVER,
        limits=command.limits,
        launch=launch,
        identity=(launch, identity.executable(program), command.reuse),
    )


def not_offered(what: str) -> ConfigError:
    """The error for something that a `ServicePool` offers and the shared pool does not."""
    return ConfigError(f"{what} is not offered by the shared pool; use a ServicePool")


def _environment(extra: Mapping[str, str | bytes]) -> Pairs:
    """The variables of this process that distinguish kinds, replaced by `extra`, sorted."""
    merged: dict[str, str | bytes] = {**dict(identity.environment_that_matters()), **extra}
    return sorted((os.fsencode(name), os.fsencode(value)) for name, value in merged.items())


def _here() -> bytes:
    return os.fsencode(working_directory())


def _import_path() -> list[str]:
    """`sys.path` as absolute paths without repetitions: equal for programs of one directory."""
    here = path_to_tell_apart()
    return list(dict.fromkeys(os.path.normpath(os.path.join(here, entry)) for entry in sys.path))


def _arguments(application: Application) -> list[str]:
    """The command line, or none for a module that programs share, since theirs differ."""
    return sys.argv if application.kind in ("path", "main") else [""]


def _source(service: type) -> tuple[Any, ...]:
    """The version of a class's source: services of another version are of another kind.

    Empty for a class that is sent by value: the digest covers the class itself.
    """
    name = identity.defined(service)
    return () if name == (service,) else name


def _digest(*parts: Any) -> bytes:
    # marshal writes the same bytes for equal values of tuples, lists, bytes, str and int. Version 2
    # writes no references, which depend on how many references to an object exist.
    return hashlib.blake2b(marshal.dumps(parts, 2), digest_size=32).digest()
