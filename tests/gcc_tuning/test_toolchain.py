"""Whatever a set of flags does to gcc or the program is a result, never an exception."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from examples.gcc_tuning.results import Result, ResultCache
from examples.gcc_tuning.toolchain import Toolchain, program_names

from .conftest import PROGRAMS, MakeGcc


def compile_with(gcc: str, source_dir: Path, timeout: float = 30.0) -> Result:
    toolchain = Toolchain(source_dir, gcc=gcc, compile_timeout=timeout)
    try:
        return toolchain.compile("small", ["-Os", "-fgcse"])
    finally:
        toolchain.clean()


def test_a_good_program_is_measured(toolchain: Toolchain) -> None:
    """Size, sections and instructions are there."""
    result = toolchain.compile("small", ["-Os"], opcodes=True)
    assert (result["outcome"], result["message"], result["cached"]) == ("good", "", False)
    assert result["bytes"] >= result["sections"][".text.startup"] > 0
    assert sum(result["opcodes"].values()) > 5
    assert result["opcodes"]["ret"] >= 1


def test_a_flag_that_gcc_does_not_know_is_refused(toolchain: Toolchain) -> None:
    """A search may try anything."""
    result = toolchain.compile("small", ["-Os", "-fno-such-option"])
    assert result["outcome"] == "refused"
    assert "-fno-such-option" in result["message"]
    assert result["bytes"] == 0


@pytest.mark.parametrize("flag", ["/etc/passwd", "-o/tmp/x", "-fplugin=x.so", "-flto", "@file"])
def test_what_is_no_option_to_tune_never_reaches_gcc(toolchain: Toolchain, flag: str) -> None:
    """Flags set what gcc does to the program, not which files it touches."""
    result = toolchain.compile("small", ["-Os", flag])
    assert (result["outcome"], result["message"]) == ("refused", f"{flag}: not an option to tune")


def test_a_compiler_that_crashes_is_a_result(make_gcc: MakeGcc, source_dir: Path) -> None:
    """Unusual flags do crash compilers."""
    result = compile_with(make_gcc("echo working; kill -SEGV $$"), source_dir)
    assert result["outcome"] == "crashed"
    assert "signal 11" in result["message"]


def test_an_internal_compiler_error_is_a_crash(make_gcc: MakeGcc, source_dir: Path) -> None:
    """Gcc's driver reports a crashed cc1 by exit code 4 and these words."""
    line = "echo 'x.c:1: internal compiler error: Segmentation fault'; exit 4"
    result = compile_with(make_gcc(line), source_dir)
    assert result["outcome"] == "crashed"
    assert "internal compiler error" in result["message"]


def test_a_compiler_that_never_ends_meets_its_deadline(make_gcc: MakeGcc, source_dir: Path) -> None:
    """One bad set of flags must not stop a search."""
    result = compile_with(make_gcc("sleep 60"), source_dir, timeout=2.0)
    assert (result["outcome"], result["message"]) == ("endless", "gcc did not end within 2 s")


def test_a_miscompiled_program_is_caught_by_its_self_check(
    make_gcc: MakeGcc, source_dir: Path
) -> None:
    """A small program that is wrong must not be rewarded."""
    result = compile_with(make_gcc('exec gcc -DSTEP=4 "$@"'), source_dir)
    assert result["outcome"] == "miscompiled"
    assert "exit code 1" in result["message"]


def test_a_wrong_output_is_caught_although_the_exit_code_is_0(
    make_gcc: MakeGcc, source_dir: Path
) -> None:
    """The -O0 build decides what is right, not the program alone."""
    (source_dir / "small.c").write_text(
        '#include <stdio.h>\n#ifndef X\n#define X 1\n#endif\nint main(void) { printf("%d\\n", X); }'
    )
    result = compile_with(make_gcc('exec gcc -DX=2 "$@"'), source_dir)
    assert (result["outcome"], result["message"]) == ("miscompiled", "self-check: prints '2'")


def test_an_object_file_that_is_none_is_a_crash(make_gcc: MakeGcc, source_dir: Path) -> None:
    """A compiler may end well and leave rubbish."""
    line = 'for last; do :; done; echo rubbish > "$last"; exit 0'
    result = compile_with(make_gcc(line), source_dir)
    assert result["outcome"] == "crashed"
    assert "no ELF file" in result["message"]


def test_a_missing_compiler_is_a_result(source_dir: Path) -> None:
    """The message names the program that is not there."""
    result = compile_with("/nowhere/gcc", source_dir)
    assert result["outcome"] == "refused"
    assert "/nowhere/gcc" in result["message"]


def test_the_same_question_is_answered_from_the_cache(
    make_gcc: MakeGcc, source_dir: Path, tmp_path: Path
) -> None:
    """Searches ask again what they asked before; that costs no run of gcc."""
    log = tmp_path / "runs"
    toolchain = Toolchain(source_dir, gcc=make_gcc(f"echo run >> {log}"))
    first = toolchain.compile("small", ["-Os", "-fgcse"])
    toolchain.clean()
    second = toolchain.compile("small", ["-Os", "-fgcse"])
    assert second == {**first, "cached": True}
    assert log.read_text() == "run\n"


def test_a_changed_source_is_compiled_again(toolchain: Toolchain, source_dir: Path) -> None:
    """The cache goes by the source's content, not by its name."""
    before = toolchain.compile("small", ["-Os"])
    source = source_dir / "small.c"
    source.write_text(source.read_text() + "int more[3] = {1, 2, 3};\n")
    after = toolchain.compile("small", ["-Os"])
    assert not after["cached"]
    assert after["bytes"] >= before["bytes"] + 12


def test_crashes_and_missed_deadlines_are_tried_again(
    make_gcc: MakeGcc, source_dir: Path, tmp_path: Path
) -> None:
    """They may be the machine's doing, not that of the flags."""
    mark = tmp_path / "crashed-once"
    line = f"if [ ! -e {mark} ]; then touch {mark}; kill -KILL $$; fi"
    toolchain = Toolchain(source_dir, gcc=make_gcc(line))
    outcomes = [toolchain.compile("small", ["-fgcse"])["outcome"] for _ in range(2)]
    toolchain.clean()
    assert outcomes == ["crashed", "good"]


def test_the_cache_is_bounded() -> None:
    """A search of days must not eat the memory."""
    cache = ResultCache(size_max=2)
    result: Result = {
        "outcome": "good", "message": "", "bytes": 1, "sections": {}, "opcodes": {},
        "cached": False,
    }  # fmt: skip
    for name in ("a", "b"):
        cache.put((name, (), False), result)
    assert cache.get(("a", (), False)) is not None
    cache.put(("c", (), False), result)
    assert len(cache) == 2
    assert cache.get(("b", (), False)) is None
    assert cache.get(("a", (), False)) is not None


@pytest.mark.parametrize("name", ["nowhere", "../small", "small.c", "", "/etc/passwd"])
def test_an_unknown_program_is_the_callers_mistake(toolchain: Toolchain, name: str) -> None:
    """It names what there is, and cannot leave the folder."""
    with pytest.raises(ValueError, match="there are: small"):
        toolchain.compile(name, ["-Os"])


def test_cleaning_leaves_no_file_and_no_harm(toolchain: Toolchain) -> None:
    """A service is cleaned after each lease and used again."""
    toolchain.compile("small", ["-Os"])
    directory = toolchain.directory
    assert os.listdir(directory)
    toolchain.clean()
    assert not directory.exists()
    assert toolchain.compile("small", ["-O1"])["outcome"] == "good"


@pytest.mark.parametrize("program", program_names(PROGRAMS))
@pytest.mark.parametrize(
    "level", ["-Os", *(pytest.param(level, marks=pytest.mark.slow) for level in ("-O1", "-O3"))]
)
def test_our_programs_are_right_at_every_level(program: str, level: str) -> None:
    """A program that is wrong at some level would blame the flags."""
    toolchain = Toolchain(PROGRAMS)
    result = toolchain.compile(program, [level])
    toolchain.clean()
    assert (result["outcome"], result["message"]) == ("good", "")


def test_there_are_eight_programs_of_substance() -> None:
    """Tuning toys proves nothing."""
    names = program_names(PROGRAMS)
    assert len(names) == 8
    for name in names:
        assert len((PROGRAMS / f"{name}.c").read_text().splitlines()) >= 100
