"""Tests of CPython that are left out on our executor, and why; the docs show the same table."""

from __future__ import annotations

OTHER_START = "the same tests as those of Spawn, with a start method that we do not have"
OWN_PROGRAM = "starts a program with the standard library's executor; test_futures_exit.py has ours"
UNPICKLED = "hands over what multiprocessing's own children alone may have"

SKIPS = {
    "*Fork*": OTHER_START,
    "*ThreadPool*": "tests threads",
    "*Future*": "tests `Future`, which is the standard library's here too",
    "*.test_interpreter_shutdown": OWN_PROGRAM,
    "*.test_submit_after_interpreter_shutdown": OWN_PROGRAM,
    "*.test_hang_gh83386": OWN_PROGRAM,
    "*FailingInitializer*": UNPICKLED + ": a queue for the log; test_futures.py has ours",
    "*.test_ressources_gced_in_workers": UNPICKLED + ": a manager's proxy",
    "*.test_saturation": UNPICKLED + ": a semaphore; test_futures.py has ours",
    "*.test_processes_terminate": UNPICKLED + ": a semaphore; test_futures_exit.py has ours",
    "*.test_error_at_task_unpickle": "wants the pool to break; ours gives the call its error",
    "*.test_exit_at_task_unpickle": "wants the pool to break; ours gives the call its error",
    "*.test_cancel_futures": "wants calls to have begun by then; ours wait for the template",
    "*.test_killed_child": "wants all calls to fail with the one whose worker was killed",
    "*.test_max_tasks_per_child_defaults_to_spawn_context": "looks for a start method",
}
"""Patterns of names, and the reason; the first that fits counts."""
