"""Which files an application's code is in, and the hash that names their contents."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterable

from forebay._package import PACKAGE

HASH_BYTES = 8
_FOREIGN_PARTS = frozenset({"site-packages", "dist-packages", "__pycache__"})


def sources_of(main: str) -> list[str]:
    """The application's own files among what this process has imported, sorted; `main` is one.

    They are below the directory of `main`, or below that of the outermost package of `main`.
    Installed packages, the standard library and Forebay itself are not the application's.

    Args:
        main: the file with the `App`.
    """
    main = os.path.abspath(main)
    root = os.path.dirname(main)
    while os.path.isfile(os.path.join(root, "__init__.py")):
        root = os.path.dirname(root)
    found = {main}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py"):
            continue
        path = os.path.abspath(path)
        if is_own(path, root):
            found.add(path)
    return sorted(found)


def code_of(sources: Iterable[str]) -> str:
    """16 hexadecimal digits that change with the name or the content of any of the files."""
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    for path in sources:
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            content = b""  # it was removed, which is a change too
        digest.update(os.fsencode(path) + b"\0" + len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


@functools.cache
def _foreign_directories() -> tuple[str, ...]:
    """The directories of installed modules, each with a separator at its end."""
    paths = sysconfig.get_paths()
    named = {PACKAGE, *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))}
    return tuple(os.path.join(path, "") for path in named)


def is_own(path: str, root: str) -> bool:
    """Whether a file below `root` is the application's; both are absolute."""
    if not path.startswith(os.path.join(root, "")) or path.startswith(_foreign_directories()):
        return False
    return _FOREIGN_PARTS.isdisjoint(path[len(root) :].split(os.sep))
