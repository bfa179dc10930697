"""What continuous integration runs again, and what it does not."""

from __future__ import annotations

import pytest

from tools.run_again import MOST, Failed

RUST = """\
...test a_client_that_reads_nothing ... FAILED
test another ... ok
error: 1 target failed:
    `-p forebay-executor --test dispatcher_store`
make[1]: *** [Makefile:201: test-rust] Error 1
"""
PYTHON = """\
FAILED tests/cli/test_hooks.py::test_hooks[a b] - AssertionError: no - yes
ERROR tests/cli/test_ps.py::test_ps
make[1]: *** [Makefile:212: test-python] Error 1
"""
END = "make: *** [Makefile:86: test] Error 1\n"
VERBS = "make[1]: *** [Makefile:220: test-verbs-if-built] Error 1\n"


def test_the_tests_that_failed_are_found() -> None:
    """By their names, and where cargo has them."""
    failed = Failed.of(RUST + PYTHON + END)
    assert failed.python == [
        "tests/cli/test_hooks.py::test_hooks[a b]",
        "tests/cli/test_ps.py::test_ps",
    ]
    assert failed.rust == ["a_client_that_reads_nothing"]
    assert failed.targets == ["-p forebay-executor --test dispatcher_store"]
    assert failed.may_run_again


@pytest.mark.parametrize(
    "log",
    [
        END,
        RUST + VERBS + END,
        PYTHON.replace("ERROR tests/cli/test_ps.py::test_ps", "").replace("FAILED", "x") + END,
        PYTHON + "".join(f"FAILED tests/a.py::test_{n}\n" for n in range(MOST)) + END,
        RUST.replace("... FAILED", "... ok") + END,
    ],
    ids=["nothing known", "the guest too", "no test named", "too many", "a build"],
)
def test_what_is_no_failure_of_few_tests_is_not_run_again(log: str) -> None:
    """A crash of the runner, a build, or something that fails everywhere."""
    assert not Failed.of(log).may_run_again
