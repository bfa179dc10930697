"""What to lend: a description of a service, and the key that makes two of them interchangeable."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.pool._service import Service

S = TypeVar("S", bound="Service")


class Spec(Generic[S]):
    """A service class and the arguments that its services are made with. Immutable."""

    __slots__ = ("args", "arguments", "key", "kwargs", "service")

    def __init__(self, service: type[S], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.service = service
        self.args = args
        self.kwargs = kwargs
        self.arguments = pickled((args, sorted(kwargs.items())), what=f"the arguments of {service.__name__}.spec()")
        self.key: tuple[Any, ...] = (service, self.arguments)

    def __repr__(self) -> str:
        shown = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.service.__name__}.spec({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, slots=True)
class Command:
    """Any executable as a service: started with a connected socket, lent when it has said that it is ready.

    Each `{fd}` in an argument is replaced by the number of the inherited descriptor, a connected stream socket whose
    other end the lease holds as `socket`.
    With `ready="fd"` the program writes one byte to it when it can serve; until then nobody gets it.
    Its stdout and stderr are kept, the newest 16 KiB, for `lease.stderr` and for its death.
    A lease that ends gives the program to the next one as it is: it must be stateless, or `reuse=False`.

    Args:
        arguments: the program and its arguments; found on `PATH`.
        ready: how it says that it can serve; so far only "fd".
        env: variables that are set besides those of this process.
        cwd: working directory; default: that of this process.
        reuse: whether one process may serve several leases, one after another.

    Raises:
        ConfigError: there is no such program, or no argument takes the descriptor.
    """

    arguments: Sequence[str]
    ready: Literal["fd"] = "fd"
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    reuse: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.arguments, str) or not self.arguments:
            raise ConfigError("Command needs a list: the program and its arguments")
        if self.ready != "fd":
            raise ConfigError(f"Command ready={self.ready!r} is not known; it can be 'fd'")
        if not any("{fd}" in argument for argument in self.arguments):
            raise ConfigError(f"no argument of {list(self.arguments)} holds '{{fd}}', the descriptor to serve on")

    def program(self) -> str:
        """The path of the executable.

        Raises:
            ConfigError: it cannot be found or executed.
        """
        name = self.arguments[0]
        path = shutil.which(name)
        if path is None:
            raise ConfigError(f"there is no executable {name!r} on PATH; give its full path")
        return os.path.abspath(path)

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two programs interchangeable: the file itself, arguments in order, environment, directory."""
        path = self.program()
        file = os.stat(path)
        identity = (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns)
        return (path, identity, tuple(self.arguments), tuple(sorted(self.env.items())), self.cwd or os.getcwd())


def pickled(value: Any, *, what: str) -> bytes:
    """Pickle `value`, or say what cannot travel to another process."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception as error:
        raise ConfigError(f"{what} cannot be pickled, so they cannot travel to another process: {error}") from error
