"""The base class of Python services."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar, Self

from forebay.pool.service.names import check_names
from forebay.pool.service.reset import Reset
from forebay.pool.service.spec import Spec

if TYPE_CHECKING:
    from forebay.pool.lend.lease import Lease
    from forebay.pool.service.limits import Limits


class Service:
    """A class whose instances live in processes of their own, lent by a pool.

    A subclass defines `__init__`, which runs once per process, public methods, which a lease calls,
    and, where calls leave something behind, `reset`, which runs when a lease ends.
    A method `close` runs before its process ends in order, for a second at most.
    The methods run one after another in the process's only thread.
    The subclass must be at the top level of a module that can be imported. Only the template
    imports that module; the processes are forked from it.

    Example:
        >>> import forebay
        >>> class Adder(forebay.Service):
        ...     def __init__(self, base: int = 0) -> None:
        ...         self.base = base
        ...     def add(self, value: int) -> int:
        ...         return self.base + value
        >>> Adder.spec(base=40)
        Adder.spec(base=40)
    """

    resets: ClassVar[Reset | None] = None
    """How a service is made clean; None: by its method `reset` if it has one."""

    max_leases: ClassVar[int] = 1
    """Leases that one service may have at once, for services that keep their callers apart.

    It answers their calls one after another; it is reset, or ended, with the last of them.
    All are of one program, and there of its threads or of one event loop.
    """

    stateful: ClassVar[bool] = False
    """Whether later leases need the state that earlier ones left, as in a `TensorServer`.

    Then no `idle_timeout`, `max_lifetime`, `max_uses` or `max_memory` of its pool ends it, nor does
    a full pool to make room for others; `pool.close`, its own end and a failed call still do.
    """

    canary_ignores: ClassVar[Collection[str]] = ()
    """Attributes, and variables of its module, that a lease may leave changed, such as caches."""

    limits: ClassVar[Limits | None] = None
    """What each process of the service may use; None: nothing is limited."""

    chdir: ClassVar[bool] = False
    """Whether the directory of the lease, which is `TMPDIR`, is also the current directory.

    Not of the constructor, which runs in the current directory of the pool's program.
    """

    lease: Lease
    """On a proxy: the lease.

    The one public name that a service cannot use itself.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a class that uses a name of the pool for something else."""
        super().__init_subclass__(**kwargs)
        check_names(cls, Service)

    @classmethod
    def spec(cls, *args: Any, **kwargs: Any) -> Spec[Self]:
        """Describe a service of this class made with these arguments.

        Two specs with equal arguments name interchangeable services.
        The arguments are pickled for a process of the same user.
        """
        return Spec(cls, args, kwargs)
