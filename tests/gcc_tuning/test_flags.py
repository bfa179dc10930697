"""The options are those that gcc states, whatever else it prints."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from examples.gcc_tuning.flags import Option, options_of, parse_options, tunable

CAPTURED = Path(__file__).parent / "captured"


def captured(topic: str) -> str:
    return (CAPTURED / f"gcc-12.2-{topic}.txt").read_text()


def by_name(text: str) -> dict[str, Option]:
    return {option.name: option for option in parse_options(text).options}


def test_every_line_of_gcc_12_is_an_option_or_skipped_with_a_reason() -> None:
    """No line is dropped in silence, so that a new format is noticed by its count."""
    for topic, options, skipped in (("optimizers", 245, 19), ("params", 273, 6)):
        space = parse_options(captured(topic))
        assert (len(space.options), len(space.skipped)) == (options, skipped)
        assert all(reason for _, reason in space.skipped)


def test_a_switch_is_set_to_what_it_is_not_by_default() -> None:
    """A flag that repeats the default would waste a trial."""
    options = by_name("  -fgcse  \t[disabled]\n  -fdce \t[enabled]\n  -ffast-math \t\t\n")
    assert options["-fgcse"].flags() == ("-fgcse",)
    assert options["-fdce"].flags() == ("-fno-dce",)
    assert options["-ffast-math"].flags() == ("-ffast-math", "-fno-fast-math")


def test_a_choice_offers_the_words_that_gcc_lists() -> None:
    """An argument that gcc does not know would be refused."""
    option = by_name(captured("optimizers"))["-fvect-cost-model="]
    assert option.words == ("unlimited", "dynamic", "cheap", "very-cheap")
    assert set(option.flags()) == {f"-fvect-cost-model={word}" for word in option.words}


def test_a_narrow_range_is_listed_in_full() -> None:
    """Each of few values is worth a try."""
    option = by_name("  -flifetime-dse=<0,2>        \t\t2\n")["-flifetime-dse="]
    assert (option.kind, option.low, option.high) == ("number", 0, 2)
    assert option.flags() == ("-flifetime-dse=0", "-flifetime-dse=1")


def test_a_wide_range_is_represented_within_its_bounds() -> None:
    """Numbers outside the stated range would be refused."""
    for option in parse_options(captured("params")).options:
        for flag in option.flags() if option.kind == "number" else ():
            number = int(flag.rpartition("=")[2])
            assert number >= option.low
            assert option.high is None or number <= option.high
            assert flag != option.name + option.default


def test_lines_of_other_forms_are_skipped() -> None:
    """A compiler of another release must not stop the program."""
    text = "\n".join(
        [
            "The following options control optimizations:",
            "  -O<number>                  \t\t",
            "  -frtti                      \t\t[available in C++]",
            "  -fhandle-exceptions         \t\t-fexceptions",
            "  --param=evrp-mode=          \t\tranger",
            "  -fno-threadsafe-statics     \t\t[enabled]",
            "  -fweird                     \t\tsomething new",
            "  -",
            "  -fgcse                      \t\t[enabled]",
        ]
    )
    space = parse_options(text)
    assert [option.name for option in space.options] == ["-fgcse"]
    assert len(space.skipped) == 7


@pytest.mark.parametrize("text", ["", "\n\n", "  \t", "--help", "\x00\xff", "  -f=[|]\t"])
def test_nonsense_is_no_error(text: str) -> None:
    """Whatever a broken compiler prints, nothing raises."""
    parse_options(text)


def test_what_changes_the_meaning_is_not_tuned() -> None:
    """A flag that breaks the C library's structures saves nothing honestly."""
    names = {option.name for option in tunable([parse_options(captured("optimizers"))])}
    assert "-fgcse" in names
    assert not names & {
        "-fpack-struct",
        "-fpack-struct=",
        "-fstack-protector-all",
        "-flive-patching=",
    }


def test_the_machines_gcc_accepts_every_flag_that_is_offered() -> None:
    """An action space of refused flags would teach nothing."""
    options = options_of("gcc")
    assert len(options) > 200
    flags = [option.flags()[-1] for option in options if option.kind != "number"]
    command = ["gcc", "-Os", *flags, "-x", "c", "-", "-c", "-o", "/dev/null"]
    done = subprocess.run(command, input="int x;", capture_output=True, text=True, check=False)
    assert "unrecognized" not in done.stderr
    for option in options:
        if option.kind == "number":
            _accepts(option)
            break


def _accepts(option: Option) -> None:
    for flag in option.flags():
        command = ["gcc", "-Os", flag, "-x", "c", "-", "-c", "-o", "/dev/null"]
        subprocess.run(command, input="int x;", capture_output=True, text=True, check=True)
