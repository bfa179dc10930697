"""The warm compiler: a toolchain in a service of its own."""

from __future__ import annotations

from collections.abc import Sequence

import forebay

from .results import Result
from .toolchain import Toolchain

__all__ = ["Compiler"]


class Compiler(forebay.Service):
    """Compile, check and measure programs in a process of its own.

    The cache of results survives `reset`: a result depends on the source and the flags alone,
    so that it leaks nothing from one lease to the next.

    Args:
        source_dir: folder of the programs, one C file each.
        gcc: the compiler's name or path.
        compile_timeout: seconds for each run of gcc.
    """

    def __init__(self, source_dir: str, gcc: str = "gcc", compile_timeout: float = 10.0):
        self._toolchain = Toolchain(source_dir, gcc=gcc, compile_timeout=compile_timeout)

    def compile(self, program: str, flags: Sequence[str], opcodes: bool = False) -> Result:
        """Compile, check and measure one program.

        A step that gcc refuses, crashes on or never ends is a result with its message.

        Raises:
            ValueError: there is no such program.
        """
        return self._toolchain.compile(program, flags, opcodes=opcodes)

    def reset(self) -> None:
        """Remove every file of the lease that ends."""
        self._toolchain.clean()
