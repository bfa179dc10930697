"""Compilers that misbehave on purpose, and a small program to compile."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.gcc_tuning.toolchain import Toolchain

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "gcc_tuning" / "programs"

SMALL_PROGRAM = """
#include <stdio.h>
#ifndef STEP
#define STEP 3
#endif
int main(void) {
    int sum = 0;
    for (int i = 0; i < 10; i += STEP) sum += i;
    printf("%d\\n", sum);
    return sum == 18 ? 0 : 1;
}
"""

MakeGcc = Callable[[str], str]


@pytest.fixture(autouse=True)
def _needs_gcc() -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc: apt-get install gcc")


@pytest.fixture
def source_dir(tmp_path: Path) -> Path:
    """A folder with the program "small"."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "small.c").write_text(SMALL_PROGRAM)
    return folder


@pytest.fixture
def make_gcc(tmp_path: Path) -> MakeGcc:
    """Make a compiler that runs a line of shell when -fgcse is asked for, and gcc otherwise."""

    def make(line: str) -> str:
        path = tmp_path / "gcc-wrapper"
        path.write_text(f'#!/bin/sh\ncase "$*" in *-fgcse*) {line} ;; esac\nexec gcc "$@"\n')
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def toolchain(source_dir: Path) -> Iterator[Toolchain]:
    """A toolchain on the machine's gcc."""
    toolchain = Toolchain(source_dir)
    yield toolchain
    toolchain.clean()
