"""Every check of `forebay doctor`, in the order in which it shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from forebay.cli.doctor.devices import block_findings, rdma_findings
from forebay.cli.doctor.finding import Finding, missing, note, ok
from forebay.cli.doctor.machine import (
    cgroup_findings,
    kernel_findings,
    limit_findings,
    place_findings,
    proc_findings,
)
from forebay.cli.doctor.packages import package_findings
from forebay.cli.doctor.pages import page_findings
from forebay.cli.doctor.server import server_findings

Check = Callable[[], Iterator[Finding]]

OF_MACHINE: dict[str, Check] = {
    "packages": package_findings,
    "kernel": kernel_findings,
    "/proc": proc_findings,
    "cgroup": cgroup_findings,
    "limits": limit_findings,
    "directories": place_findings,
}
BY_EXTENSION: dict[str, Check] = {
    "huge pages": page_findings,
    "block I/O": block_findings,
    "RDMA verbs": rdma_findings,
}
"""These try the extension; where it cannot be loaded, another finding reports it."""


def findings(path: str | None) -> list[Finding]:
    """Run every check; `path` is the socket of the shared pool, or None for the default one."""
    found = [each for name, check in OF_MACHINE.items() for each in _looked_at(name, check)]
    try:
        from forebay import _core  # noqa: F401
    except ImportError:
        return found
    found += [each for name, check in BY_EXTENSION.items() for each in _looked_at(name, check)]
    return [*found, _shared_pool(path), *server_findings()]


def _looked_at(name: str, check: Check) -> Iterator[Finding]:
    """The findings of a check; if a setting or the system prevents it, a finding that says so."""
    from forebay.errors import ConfigError, Error

    try:
        yield from check()
    except ConfigError as error:
        yield missing(name, str(error), "change the setting that it names", "forebay config")
    except (OSError, Error) as error:
        why = "the system refused what is looked at; to see what"
        yield missing(name, str(error), why, "strace forebay doctor")


def _shared_pool(path: str | None) -> Finding:
    from forebay.errors import ConfigError, Error
    from forebay.pool import SharedPool

    name = "shared pool"
    with SharedPool(path) as pool:
        try:
            stats = pool.stats()
        except ConfigError as error:
            to_type = 'forebay serve --path "$HOME/.forebay/pool.sock"'
            return note(name, f"none: {error}", "lend at a path of yours", to_type)
        except Error:
            why = "to lend services to several programs"
            return note(name, f"none at {pool.path}", why, "forebay serve")
        return ok(name, f"process {stats['pid']} at {pool.path}, {stats['live']} services")
