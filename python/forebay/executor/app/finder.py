"""Imports of the application's own modules, compiled from their source each time.

The byte code that Python keeps on disk is told by the second of the source's last change and by its
size: after an edit within a second, or by something that keeps both, it is that of the old code. A
template that was made because a source changed must not run it. A script never comes from byte
code; modules do, unless this finds them.

Source: importlib, `SourceLoader.get_code`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

from forebay.executor.app.sources import is_own


class _SourceLoader(SourceFileLoader):
    def path_stats(self, path: str) -> dict[str, float]:
        """Say that nobody knows, so that byte code is neither read nor written."""
        raise OSError(f"the byte code of {path} is not used")


class OwnFinder:
    """Python's finder of modules in files, but those below a directory come from their sources.

    Cost: an application of 100,000 lines compiles in about a second, in each template.
    """

    def __init__(self, root: str):
        self._root = root

    @classmethod
    def install(cls, root: str) -> None:
        """Let the modules below `root` come from their sources from now on, for good."""
        # In front of Python's, and behind those of modules that no file can take the place of.
        sys.meta_path.insert(sys.meta_path.index(PathFinder), cls(os.path.abspath(root)))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find what Python would, and have it loaded from its source if it is the application's."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return spec
        if is_own(os.path.abspath(spec.loader.path), self._root):
            spec.loader = _SourceLoader(name, spec.loader.path)
            spec.cached = None
        return spec
