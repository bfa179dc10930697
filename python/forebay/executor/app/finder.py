"""Imports of the application's own modules, compiled from their source each time.

Python uses byte code from the disk if the source has the same size and the same second of its last
change. After an edit within that second, or by a tool that keeps both, this is the byte code of the
old source. A template that was made because a source changed must not run it. Python loads scripts
from their source in any case; this finder has modules of the application loaded from theirs.

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
        """Raise OSError, so that the loader neither reads nor writes byte code."""
        raise OSError(f"the byte code of {path} is not used")


class OwnFinder:
    """Python's finder of modules in files, which loads those below a directory from their sources.

    Cost: an application of 100,000 lines compiles in about a second, in each template.
    """

    def __init__(self, root: str):
        self._root = root

    @classmethod
    def install(cls, root: str) -> None:
        """Load modules below `root` from their sources from now on."""
        # Before Python's finder of files, and after those of built-in and frozen modules.
        sys.meta_path.insert(sys.meta_path.index(PathFinder), cls(os.path.abspath(root)))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find what Python would find; modules of the application are loaded from their source."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return spec
        if is_own(os.path.abspath(spec.loader.path), self._root):
            spec.loader = _SourceLoader(name, spec.loader.path)
            spec.cached = None
        return spec
