"""What `make coverage` reports: its arithmetic, its list, and lines of killed processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, complain
from tools.coverage import lines, report, setting

SOURCE = """\
pub fn used() {
    act();
}

pub fn unused() {}

#[cfg(test)]
mod tests {
    fn it_is_used() {
        super::used();
    }
}

pub fn last() {}
"""

EXPORTED = """\
SF:{root}/crates/pool/src/word.rs
DA:1,3
DA:2,0
DA:2,18446744073709551615
DA:3,3
DA:5,0
DA:9,1
DA:10,1
DA:14,0
end_of_record
SF:{root}/crates/pool/src/word_tests.rs
DA:1,1
end_of_record
SF:{root}/crates/pool/tests/machine.rs
DA:1,1
end_of_record
SF:/rust/library/core/src/cell.rs
DA:1,1
end_of_record
"""

DYING = """\
import os, signal, threading

def in_a_thread():
    return 1

def in_a_fork():
    os.kill(os.getpid(), signal.SIGKILL)
    return 2

def never():
    return 3

thread = threading.Thread(target=in_a_thread)
thread.start()
thread.join()
if os.fork() == 0:
    in_a_fork()
os.wait()
os._exit(0)
"""


def counts(**shares: int) -> report.Counts:
    """Files of a hundred lines, of which so many run."""
    return {
        f"python/forebay/pool/{name}.py": {line: line <= run for line in range(1, 101)}
        for name, run in shares.items()
    }


def test_rust_is_counted_without_its_tests(tmp_path):
    """Tests run all of themselves: counted, they would hide that half of a file is not tested."""
    source = tmp_path / "crates" / "pool" / "src" / "word.rs"
    source.parent.mkdir(parents=True)
    source.write_text(SOURCE)
    read = report.read_lcov(EXPORTED.format(root=tmp_path), tmp_path)
    run = {1: True, 2: True, 3: True, 5: False, 14: False}
    assert read == {"crates/pool/src/word.rs": run}


def test_both_languages_are_in_one_table_and_one_file(tmp_path):
    """One figure for the product, of lines and not of files."""
    both = {**counts(one=100), "crates/pool/src/word.rs": {1: True, 2: False}}
    table = report.table(report.groups(both))
    assert "| crates/pool | 1 | 2 | 1 | 50.0 % |" in table
    assert "| python/forebay/pool | 1 | 100 | 100 | 100.0 % |" in table
    assert "| all | 2 | 102 | 101 | 99.0 % |" in table
    written = report.write_lcov(both, tmp_path)
    assert f"SF:{tmp_path}/crates/pool/src/word.rs\nDA:1,1\nDA:2,0\nLF:2\nLH:1\n" in written


def test_a_file_below_the_limit_is_named():
    """What is not tested does not grow unseen."""
    (problem,) = report.problems(counts(met=80, missed=79), [])
    assert problem.startswith("python/forebay/pool/missed.py: the tests run 79.0 % of its 100")


def test_a_file_may_be_below_for_a_reason():
    """A line that only other hardware runs is said to be so; an empty reason says nothing."""
    file = "python/forebay/pool/missed.py"
    assert not list(report.problems(counts(missed=79), [report.Below(file, "needs a device")]))
    assert list(report.problems(counts(missed=79), [report.Below(file, " ")]))


def test_an_entry_that_is_out_of_date_is_told():
    """A reason that no longer holds would allow the tests to be lost again."""
    named = [
        report.Below("python/forebay/pool/met.py", "was hard"),
        report.Below("python/forebay/pool/gone.py", "was there"),
    ]
    assert list(report.problems(counts(met=80), named)) == [
        "python/forebay/pool/met.py: named there, and 80.0 % run; take the entry out",
        "python/forebay/pool/gone.py: named there, and no such file was measured; "
        "take the entry out",
    ]


def test_files_may_share_a_reason():
    """Thirty files that need one device have one reason, which is kept once."""
    text = '[[below]]\nfiles = ["a.rs", "b.rs"]\nreason = "needs a device"\n'
    assert report.allowed(text) == [
        report.Below("a.rs", "needs a device"),
        report.Below("b.rs", "needs a device"),
    ]
    assert report.allowed("# nothing yet\n") == []


def test_every_entry_of_the_list_names_a_file_and_a_reason():
    """A list with the names of files that have moved is noticed at once."""
    named = report.allowed((ROOT / "tests" / "coverage.toml").read_text())
    wrong = [one.file for one in named if not (ROOT / one.file).is_file() or not one.reason]
    complain(wrong, next_step="Name files that are there, each with a reason.")


@pytest.mark.needs("cc")
def test_lines_of_killed_processes_are_counted(tmp_path):
    """Services of a pool end by SIGKILL: without this, what only they run would look untested."""
    program = tmp_path / "dying.py"
    program.write_text(DYING)
    lines.install(tmp_path, [program], "")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, str(program)], env=environment, check=True, timeout=30)
    ran = lines.read(tmp_path, [program])[program]
    texts = [DYING.splitlines()[number - 1].strip() for number in ran]
    assert "return 1" in texts
    assert "os.kill(os.getpid(), signal.SIGKILL)" in texts
    assert "os._exit(0)" in texts
    assert not {"return 2", "return 3"} & set(texts)


def test_programs_are_read_from_what_cargo_says():
    """The report has the lines of each program that was built, and of no library."""
    said = '{"executable":"/built/pool-1"}\n{"executable":null}\nwarning: no JSON\n'
    assert setting.built(said) == [Path("/built/pool-1")]
