"""Compile one program with one set of flags, check it, measure it.

A trial has three runs: gcc to an object file, which is measured; gcc as linker; the program
itself, which checks its own work and whose output must equal that of the -O0 build.
Whatever gcc or the program does in there - refuse, crash, loop, flood - ends as a `Result`.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from .bounded import Finished, run_bounded
from .elf import ElfError, code_bytes, read_sections
from .results import Result, ResultCache

__all__ = ["Toolchain", "program_names"]

_NAME = re.compile(r"[A-Za-z0-9_]+")
_PASSED_ON = ("-f", "-O", "-m", "--param=")
_KEPT_BACK = ("-fplugin", "-fdump", "-fsyntax-only", "-flto", "-save-temps")
_INSTRUCTION = re.compile(rb"^ +[0-9a-f]+:\t([a-z][a-z0-9.]*)", re.MULTILINE)
_LISTING_LIMIT_BYTES = 4 * 1024 * 1024  # a listing of 100,000 instructions
_INTERNAL_ERROR = 4  # gcc's exit code after an internal compiler error; see FATAL_EXIT_CODE there


def program_names(source_dir: str | Path) -> tuple[str, ...]:
    """List the programs in `source_dir`, sorted."""
    return tuple(sorted(path.stem for path in Path(source_dir).glob("*.c")))


class Toolchain:
    """The machine's gcc and a private directory to work in.

    Args:
        source_dir: folder of the programs, one C file each.
        gcc: the compiler's name or path.
        compile_timeout: seconds for each run of gcc.
        check_timeout: seconds for each run of the program.
        cache: results to share with other toolchains of the same compiler.

    Affinity: one thread at a time; the cache may be shared between threads.
    """

    def __init__(
        self,
        source_dir: str | Path,
        *,
        gcc: str = "gcc",
        compile_timeout: float = 10.0,
        check_timeout: float = 5.0,
        cache: ResultCache | None = None,
    ):
        self._source_dir = Path(source_dir).resolve()
        self._gcc = gcc
        self._compile_timeout = compile_timeout
        self._check_timeout = check_timeout
        self._cache = ResultCache() if cache is None else cache
        self._references: dict[str, Finished] = {}
        self._directory: Path | None = None
        self._remove: weakref.finalize[[str, bool], Toolchain] | None = None

    def compile(self, program: str, flags: Iterable[str], *, opcodes: bool = False) -> Result:
        """Compile `program` with `flags`, run its self-check and measure it.

        Args:
            program: name of a C file of the source folder, without ".c".
            flags: gcc's options, in order; nothing is added to them but "-std=c11".
            opcodes: count the instructions too (one run of objdump more).

        Raises:
            ValueError: there is no such program.

        Cost: two runs of gcc and one of the program (about 80 ms), or nothing when cached.
        """
        source = self._source(program)
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        key = (digest, tuple(flags), opcodes)
        cached = self._cache.get(key)
        if cached is not None:
            return cached
        result = self._trial(source, digest, key[1], opcodes)
        # A crash or a missed deadline may be the machine's doing; the rest would come out again.
        if result["outcome"] not in ("crashed", "endless"):
            self._cache.put(key, result)
        return result

    def clean(self) -> None:
        """Remove the private directory; the next compilation makes a new one."""
        if self._remove is not None:
            self._remove()
        self._directory = self._remove = None

    @property
    def directory(self) -> Path:
        """The private directory, made on first use and removed with this object.

        In a service it lies in the service's own TMPDIR, which goes with it however it ends.
        """
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="gcc-tuning-"))
            self._remove = weakref.finalize(self, shutil.rmtree, str(self._directory), True)
        return self._directory

    def _source(self, program: str) -> Path:
        path = self._source_dir / f"{program}.c"
        if not _NAME.fullmatch(program) or not path.is_file():
            known = ", ".join(program_names(self._source_dir)) or "none"
            raise ValueError(f"no program {program!r} in {self._source_dir}; there are: {known}")
        return path

    def _trial(self, source: Path, digest: str, flags: Sequence[str], opcodes: bool) -> Result:
        for flag in flags:
            if not flag.startswith(_PASSED_ON) or flag.startswith(_KEPT_BACK):
                return _failed("refused", f"{flag}: not an option to tune")
        object_file = self.directory / f"{source.stem}.o"
        object_file.unlink(missing_ok=True)
        failed = self._gcc_run([*flags, "-c", source, "-o", object_file])
        if failed is not None:
            return failed
        try:
            sections = {s.name: s.size for s in read_sections(object_file.read_bytes()) if s.name}
        except (OSError, ElfError) as error:
            return _failed("crashed", f"gcc left no object file that can be read: {error}")
        failed = self._check(source, digest, object_file)
        if failed is not None:
            return failed
        counts = self._opcodes(object_file) if opcodes else {}
        return _result("good", "", code_bytes(sections), sections, counts)

    def _gcc_run(self, arguments: Sequence[str | Path]) -> Result | None:
        command = [self._gcc, "-std=c11", *arguments]
        finished = self._run(command, self._compile_timeout)
        if finished.good:
            return None
        if finished.exceeded == "time":
            return _failed("endless", f"gcc did not end within {self._compile_timeout:g} s")
        text = finished.text()
        if finished.signal is not None:
            return _failed("crashed", f"gcc was ended by signal {finished.signal}: {text}")
        if finished.exit_code == _INTERNAL_ERROR or "internal compiler error" in text:
            return _failed("crashed", text)
        return _failed("refused", text or f"gcc ended with exit code {finished.exit_code}")

    def _check(self, source: Path, digest: str, object_file: Path) -> Result | None:
        """Link and run the program; return what is wrong with it, if anything."""
        program = object_file.with_suffix("")
        failed = self._gcc_run([object_file, "-o", program])
        if failed is not None:
            return failed
        reference = self._reference(source, digest)
        if isinstance(reference, dict):
            return reference
        finished = self._run([program], self._check_timeout)
        if finished == reference:
            return None
        return _failed("miscompiled", f"self-check: {_describe(finished)}")

    def _reference(self, source: Path, digest: str) -> Finished | Result:
        """Run the -O0 build once per source; what it prints is what every build must print."""
        if digest not in self._references:
            program = self.directory / f"{source.stem}-reference"
            failed = self._gcc_run(["-O0", source, "-o", program])
            if failed is not None:
                return failed
            finished = self._run([program], self._check_timeout)
            if not finished.good:
                return _failed("refused", f"the -O0 build fails too: {_describe(finished)}")
            self._references[digest] = finished
        return self._references[digest]

    def _opcodes(self, object_file: Path) -> dict[str, int]:
        """Count the instructions by mnemonic; prefixes such as rep count as one of their own."""
        command = ["objdump", "-d", "--no-show-raw-insn"]
        finished = self._run(
            [*command, object_file], self._check_timeout, output_limit=_LISTING_LIMIT_BYTES
        )
        if not finished.good:
            return {}
        names = Counter(_INSTRUCTION.findall(finished.output))
        return {name.decode(): count for name, count in sorted(names.items())}

    def _run(self, command: Sequence[str | Path], timeout: float, **bounds: int) -> Finished:
        try:
            return run_bounded(command, directory=self.directory, timeout=timeout, **bounds)
        except OSError as error:
            return Finished(127, None, "", str(error).encode())


def _describe(finished: Finished) -> str:
    if finished.exceeded:
        return f"exceeds its bound of {finished.exceeded}"
    if finished.signal is not None:
        return f"ended by signal {finished.signal}"
    if finished.exit_code:
        return f"exit code {finished.exit_code}: {finished.text()}"
    return f"prints {finished.text(80)!r}"


def _failed(outcome: str, message: str) -> Result:
    return _result(outcome, message, 0, {}, {})


def _result(
    outcome: str, message: str, size: int, sections: dict[str, int], opcodes: dict[str, int]
) -> Result:
    return {
        "outcome": outcome,
        "message": message,
        "bytes": size,
        "sections": sections,
        "opcodes": opcodes,
        "cached": False,
    }
