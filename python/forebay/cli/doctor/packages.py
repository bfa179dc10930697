"""Checks of Python and of the packages that Forebay uses."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from forebay.cli.doctor.finding import Finding, missing, note, ok

HTTP_SERVER = ("uvicorn", "httptools")
"""Beside uvloop, what the process that serves HTTP imports."""


def package_findings() -> Iterator[Finding]:
    """Check Python, the extension, and the packages that something needs."""
    yield ok("python", f"{platform.python_version()} ({platform.python_implementation()})")
    yield _extension()
    yield _needed("forebay")
    yield _needed("msgspec")
    yield _found("numpy", "arrays in arenas and as arguments need it", "pip install numpy")
    yield _found("rich", "progress bars need it", "pip install rich")
    serving = "pip install 'forebay[server]'"
    yield _found("uvloop", "serving HTTP needs it", serving)
    for name in HTTP_SERVER:
        yield _found(name, "serving HTTP needs it", serving)


def _extension() -> Finding:
    try:
        from forebay import _core
    except ImportError as error:
        again = "pip install --force-reinstall forebay"
        return missing("extension", str(error), "install it again", again)
    return ok("extension", _core.__file__ or "built in")


def _needed(package: str) -> Finding:
    try:
        return ok(package, version(package))
    except PackageNotFoundError:
        return missing(
            package, "not installed", "nothing works without it", f"pip install {package}"
        )


def _found(package: str, why: str, to_type: str) -> Finding:
    """Whether a package can be imported: one of another Python's may be installed, and fail."""
    try:
        import_module(package)
        return ok(package, version(package))
    except ImportError as error:  # also where it has no metadata
        if isinstance(error, PackageNotFoundError) or error.name == package:
            return note(package, "not installed", why, to_type)
        again = to_type.replace("install", "install --force-reinstall")
        return note(package, f"cannot be imported: {error}", f"{why}; install it again", again)
