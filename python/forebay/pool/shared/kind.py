"""What makes services of a shared pool interchangeable, and how the lender starts one.

The key is a digest of content, because programs that know nothing of each other compute it.
The digest covers the arguments of a service. They do not go to the lender, which must never
unpickle anything: the program that starts a service sends them over the service's own socket.
If a class is forked for each lease (`Reset.FORK`), the lender gets them as bytes and passes them to
the template, which makes the service.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from collections.abc import Mapping
from typing import Any

from forebay._working_directory import path_to_tell_apart, working_directory
from forebay.pool.lend.kind import CommandKind, PythonKind
from forebay.pool.programs.command import Command
from forebay.pool.service import identity, template
from forebay.pool.service.application import Application, application_of, reference_of
from forebay.pool.service.by_value import made_by_value, value_of
from forebay.pool.service.limits import Terms
from forebay.pool.service.reset import Reset
from forebay.pool.service.spec import Spec
from forebay.pool.service.threads import template_variables
from forebay.pool.shared.acquire import SharedAcquire, SharedProgramAcquire

NO_NUMBER = 0
"""In place of the numbers that a pool of one's own gives to kinds and templates."""

SEPARATOR = "\0"
"""Between the names of methods."""

Pairs = list[tuple[bytes, bytes]]

Told = tuple[bytes, bytes, bytes, list[bytes], Pairs, bytes, bytes, bool, int, Terms | None]


class SharedKind(PythonKind):
    """One kind of service of a shared pool.

    Attributes beyond those of a kind of a pool of one's own:
        digest: of everything that makes two services interchangeable.
        told: what the lender is told: digest, name, digest of the template (empty for a program),
            command line, environment and directory of the template, what it is to import, whether
            this program alone can use its services, leases that one of them may have, limits.
        is_private: whether this program alone can use its services.
    """

    acquires = SharedAcquire
    is_private = False

    def __init__(self, spec: Spec[Any], *, by_value: bool) -> None:
        service = spec.service
        application = application_of(service, by_value=by_value)
        made: tuple[Any, bytes] = (reference_of(service), spec.arguments)
        if by_value:
            made = made_by_value(value_of(service), spec.args, spec.kwargs)
        super().__init__(NO_NUMBER, spec, made, NO_NUMBER)
        in_template = made if spec.resets is Reset.FORK else None
        launch = (template.command_line(), _environment(template_variables(os.environ)), _here())
        path, argv = _import_path(), _arguments(application)
        # Of the values: the bytes that a template is told depend on who else holds an object.
        imported = (launch, tuple(application), path, argv, _source(service), in_template)
        of_template = _digest(*imported)
        setup = template.setup_of(application, in_template, path=path, argv=argv)
        self.digest = _digest(of_template, made, self.max_leases, self.limits)
        names = (self.digest, os.fsencode(self.name), of_template)
        self.told: Told = (*names, *launch, setup, False, self.max_leases, self.limits)

    def made(self, *, canary: bool) -> tuple[Any, ...]:
        """The arguments of the call that makes a service; `canary`: it notes how it is when new."""
        reference, arguments, _, told_at_start = self._make
        return reference, arguments, canary, told_at_start

    def report(self) -> bytes:
        """What the next program must know of a service: the methods of what a factory made."""
        return SEPARATOR.join(sorted(self.methods)).encode() if self.told_at_start else b""

    def learn_report(self, report: bytes) -> None:
        """Note what the program that started a service has reported."""
        if report:
            self.learn(report.decode().split(SEPARATOR))


class SharedCommandKind(CommandKind):
    """One kind of programs of a shared pool.

    A program whose client speaks on the inherited socket is kept for this program alone, since the
    client may hold what comes next, and has begun a session that another one would begin again.

    Attributes beyond those of a kind of a pool of one's own: as of `SharedKind`.
    """

    acquires = SharedProgramAcquire

    def __init__(self, command: Command) -> None:
        super().__init__(NO_NUMBER, command)
        self.is_private = command.keeps_session
        program = command.program()
        variables = {os.fsencode(name): os.fsencode(it) for name, it in command.env.items()}
        identity_of = (
            list(command.arguments),
            self.environment(variables),
            os.fsencode(command.cwd or self.directory()),
            repr(command.ready),
            command.stdio,
            command.reuse,
            identity.executable(program),
            _session(command) if command.keeps_session else None,
        )
        self.digest = _digest(b"", identity_of, self.limits)
        self.told: Told = (
            *(self.digest, os.fsencode(self.name), b"", [], [], b"", b""),
            command.keeps_session,
            self.max_leases,
            self.limits,
        )

    def environment(self, filled: Mapping[bytes, bytes]) -> Pairs:
        """Without what distinguishes terminals, since programs share it."""
        return _environment({os.fsdecode(name): value for name, value in filled.items()})

    def directory(self) -> str:
        """The same for programs of one directory."""
        return working_directory()


def _session(command: Command) -> tuple[int, bytes, int]:
    """Stands in a digest for this program, and for what connects to a program in it."""
    return *_this_program(), _connected.setdefault(command.key, len(_connected))


def _this_program() -> tuple[int, bytes]:
    """Stands for this program in a digest."""
    global _program
    if _program[0] != os.getpid():
        _program = (os.getpid(), os.urandom(16))
    return _program


_program = (0, b"")
_connected: dict[Any, int] = {}
"""Numbers of the commands whose programs are kept, by what makes two interchangeable here."""


def shared_kind(spec: Spec[Any] | Command, *, by_value: bool) -> SharedKind | SharedCommandKind:
    """The kind of a spec or of a command.

    Raises:
        ConfigError: another process could not import the class, or the program does not exist.
    """
    if isinstance(spec, Command):
        return SharedCommandKind(spec)
    return SharedKind(spec, by_value=by_value)


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
