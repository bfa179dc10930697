"""What makes services of a shared pool interchangeable, and how the lender starts one.

The key is a digest of content, because programs that know nothing of each other compute it.
What a service is made with is covered by it but does not go to the lender, which must never
unpickle anything: whoever starts a service sends that over the service's own socket.
Of a class that is forked for each lease (`Reset.FORK`) it does go there, for the template, which
makes the service; to the lender it is bytes.
"""

from __future__ import annotations

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
        name: stands in messages.
        resets: how a service is made clean.
        proxy: what holders of a lease see.
        call_timeout: seconds that a call may take unless its caller says otherwise; None: for ever.
        make: arguments of the call that makes a Python service; None for a program.
        told: what the lender is told: digest, name, digest of the template (empty for a program),
            command line, environment, directory, what a template is to import, limits.
    """

    speaks_on_link = True
    """All that a program is given is its socket."""

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


def shared_kind(spec: Spec[Any] | Command, *, by_value: bool) -> SharedKind:
    """The kind of a spec or of a command.

    Raises:
        ConfigError: another process could not import the class, there is no such program, or it
            needs what only a pool of its own offers.
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
    """What a pool of one's own has, and the shared pool has not."""
    return ConfigError(f"{what} is not offered by the shared pool; use a ServicePool")


def _environment(extra: Mapping[str, str | bytes]) -> Pairs:
    """What of this process's environment matters, with `extra` on top, in one order."""
    merged: dict[str, str | bytes] = {**dict(identity.environment_that_matters()), **extra}
    return sorted((os.fsencode(name), os.fsencode(value)) for name, value in merged.items())


def _here() -> bytes:
    return os.fsencode(working_directory())


def _import_path() -> list[str]:
    """`sys.path` in absolute terms, each once, so that programs of one directory agree on it."""
    here = path_to_tell_apart()
    return list(dict.fromkeys(os.path.normpath(os.path.join(here, entry)) for entry in sys.path))


def _arguments(application: Application) -> list[str]:
    """Command lines differ between programs; a module that they share is not to depend on one."""
    return sys.argv if application.kind in ("path", "main") else [""]


def _source(service: type) -> tuple[Any, ...]:
    """The version of a class's source: services of another are another kind.

    Nothing for one that goes by value, which is part of the key itself.
    """
    name = identity.defined(service)
    return () if name == (service,) else name


def _digest(*parts: Any) -> bytes:
    # marshal writes equal values alike where they are made of tuples, lists, bytes, str and int;
    # version 2 has no references, which depend on who else holds an object.
    return hashlib.blake2b(marshal.dumps(parts, 2), digest_size=32).digest()
