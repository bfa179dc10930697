"""The mutants of Python modules: each is another program, and no text is changed."""

from __future__ import annotations

import ast
import sys

import pytest

from tests.tidy.tree import ROOT
from tools import mutants
from tools.mutate_python import mutants as mutants_of
from tools.mutate_python import run

SOURCE = '''\
"""About it."""
LIMIT: int = 3


class Counter:
    """It counts."""

    async def count(self, n: int = 0, *, once: bool = True) -> str:
        """Count."""
        if n < LIMIT and not once:
            raise ValueError(f"{n + 1} is too few" + "!")
        self.n = -n
        await self.tell(n % 2)
        return self.n
'''

WANTED = [
    "2:14: replace 3 with 4",
    "8:36: replace 0 with 1 in Counter.count",
    "8:55: replace True with False in Counter.count",
    "10:12: replace < with <= of n < LIMIT in Counter.count",
    "10:12: replace < with > of n < LIMIT in Counter.count",
    "10:12: replace and with or of n < LIMIT and (not once) in Counter.count",
    "10:26: delete not of not once in Counter.count",
    "11:13: delete raise ValueError(f'{n + 1} is too few' + '!') in Counter.count",
    "12:9: delete self.n = -n in Counter.count",
    "12:18: delete - of -n in Counter.count",
    "13:9: delete await of await self.tell(n % 2) in Counter.count",
    "13:9: delete await self.tell(n % 2) in Counter.count",
    "13:25: replace % with // of n % 2 in Counter.count",
    "13:29: replace 2 with 3 in Counter.count",
    "14:9: replace return self.n with None in Counter.count",
]


def test_each_mutant_is_named_by_its_place_and_its_change():
    """A survivor is listed by its name: one that names something else hides a hole of the model."""
    assert [one.name for one in mutants_of("it.py", SOURCE)] == [f"it.py:{one}" for one in WANTED]


def test_each_mutant_is_another_program_with_the_same_text():
    """One that does not compile would count as caught, and one that is the same as a survivor."""
    before = ast.dump(ast.parse(SOURCE))
    seen = set()
    for mutant in mutants_of("it.py", SOURCE):
        changed = mutant.applied(SOURCE.encode()).decode()
        seen.add(ast.dump(ast.parse(changed)))
        for text in ('"""About it."""', '"""It counts."""', '"""Count."""'):
            assert text in changed
    assert before not in seen
    assert len(seen) == len(WANTED)


@pytest.mark.parametrize(
    "path", [path for one in mutants.machines([]) if not one.package for path in one.files]
)
def test_the_mutants_of_our_own_modules_compile(path):
    """A mutator that breaks on a module's syntax would count all of its mutants as caught."""
    source = (ROOT / path).read_bytes()
    found = mutants_of(path, source.decode())
    assert len(found) > 20
    for mutant in found:
        ast.parse(mutant.applied(source))


def test_what_becomes_of_a_mutant_is_what_its_tests_say(tmp_path):
    """Tests that hang, and what they started, must not hold up the mutants behind."""
    for code, timeout_s, outcome in (
        ("", 60, "MissedMutant"),
        ("raise SystemExit(1)", 60, "CaughtMutant"),
        ("import threading; threading.Event().wait()", 1, "Timeout"),
    ):
        assert run([sys.executable, "-c", code], tmp_path, {}, timeout_s) == outcome
