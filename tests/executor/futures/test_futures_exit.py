"""How executors end: with their program, killed, held by nobody, after a fork."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

import forebay
from tests.executor.futures import functions

ROOT = Path(__file__).parents[3]
WAIT_S = 20.0


def program(tmp_path: Path, text: str, **environment: str) -> subprocess.Popen[str]:
    """Start a program of its own."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(text))
    paths = os.pathsep.join((str(ROOT), *sys.path))
    return subprocess.Popen(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(tmp_path: Path, text: str) -> tuple[str, str]:
    """What a program writes to stdout and stderr; it must end well."""
    process = program(tmp_path, text)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    return out, err


def test_a_program_ends_after_its_last_call_and_prints_what_calls_print(tmp_path: Path):
    """As with the standard library's pool: no call is lost at the end, and no output."""
    out, err = output(
        tmp_path,
        """
        import sys, time
        import forebay

        def say(word):
            time.sleep(0.3)
            print(word)
            print(word.upper(), file=sys.stderr)

        if __name__ == "__main__":
            forebay.Executor(2).submit(say, "apple")
        """,
    )
    assert (out, err) == ("apple\n", "APPLE\n")


def test_a_program_that_does_not_wait_for_its_shutdown_ends_all_the_same(tmp_path: Path):
    """The standard library's pool hangs there (gh-83386)."""
    out, err = output(
        tmp_path,
        """
        import time
        import forebay

        def say(word):
            time.sleep(0.3)
            print(word)

        if __name__ == "__main__":
            executor = forebay.Executor(3)
            executor.submit(say, "apple")
            executor.shutdown(wait=False)
        """,
    )
    assert (out, err) == ("apple\n", "")


def test_no_call_is_taken_once_the_interpreter_ends(tmp_path: Path):
    """A late submit is refused with a reason, not forgotten."""
    out, err = output(
        tmp_path,
        """
        import atexit
        import forebay

        @atexit.register
        def run_last():
            try:
                executor.submit(id, None)
            except RuntimeError as error:
                print(error)

        if __name__ == "__main__":
            executor = forebay.Executor(1)
            executor.submit(id, 42).result()
        """,
    )
    assert (out, err) == ("cannot schedule new futures after interpreter shutdown\n", "")


def test_a_main_module_without_a_guard_is_told_what_it_lacks(tmp_path: Path):
    """Not a bomb of processes, and not a hang."""
    process = program(
        tmp_path,
        """
        import forebay

        def one():
            return 1

        print(forebay.Executor(1).submit(one).result())
        """,
    )
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "if __name__ == '__main__':" in err


def test_a_function_that_no_worker_can_find_is_refused(tmp_path: Path):
    """Typed into a session it has no module; the message says what to do."""
    text = "import forebay\ndef one(): return 1\nforebay.Executor(1).submit(one)"
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "function one is defined in an interactive session" in done.stderr
    assert "put it into a module" in done.stderr


@pytest.fixture
def temporary() -> Iterator[str]:
    """A directory for temporary files of a program that cannot remove them; sockets fit in it."""
    with tempfile.TemporaryDirectory(prefix="fb-", dir="/tmp") as directory:
        yield directory


def test_a_killed_program_takes_its_workers_with_it(tmp_path: Path, temporary: str):
    """Nothing is left running, whatever happens to the program."""
    process = program(
        tmp_path,
        """
        import os, time
        import forebay

        def live():
            print(os.getpid(), flush=True)
            time.sleep(1000)

        if __name__ == "__main__":
            forebay.Executor(1).submit(live).result()
        """,
        TMPDIR=temporary,
    )
    assert process.stdout is not None
    worker = os.pidfd_open(int(process.stdout.readline()))
    try:
        process.send_signal(signal.SIGKILL)
        assert select.select([worker], [], [], WAIT_S)[0]
        process.communicate(timeout=WAIT_S)
    finally:
        os.close(worker)


def test_an_executor_that_nobody_holds_ends_its_workers():
    """A forgotten shutdown costs nothing for long; what was submitted still ends."""
    executor = forebay.Executor(1)
    worker = os.pidfd_open(executor.submit(functions.pid).result(WAIT_S))
    collector = executor._calls._collector
    late = executor.submit(functions.double, 4)
    del executor
    gc.collect()
    collector.join(WAIT_S)
    assert not collector.is_alive()
    assert late.result(WAIT_S) == 8
    assert select.select([worker], [], [], WAIT_S)[0]
    os.close(worker)


def test_a_forked_childs_copy_is_unusable_and_the_parents_is_not_disturbed():
    """A child that submits is told, rather than waiting for ever."""
    with forebay.Executor(1) as executor:
        assert executor.submit(functions.double, 1).result(WAIT_S) == 2
        child = os.fork()
        if child == 0:
            try:
                executor.submit(functions.double, 1)
            except forebay.ConfigError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert executor.submit(functions.double, 2).result(WAIT_S) == 4


def test_shutdown_takes_back_what_has_not_begun(tmp_path: Path):
    """`cancel_futures` ends a long queue at once; what runs ends by itself."""
    executor = forebay.Executor(1)
    gate = tmp_path / "gate"
    running = executor.submit(functions.wait_for, str(gate))
    functions.reach(tmp_path / "gate.begun")
    queued = [executor.submit(functions.double, number) for number in range(10)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in queued)
    gate.touch()
    assert running.result(WAIT_S) == str(gate)
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(functions.double, 1)


def interrupted(gate: Path) -> tuple[Future[str], Future[int]]:
    """Press Ctrl-C while one call runs and another one waits."""
    calls = []
    try:
        with forebay.Executor(1) as executor:
            calls.append(executor.submit(functions.wait_for, str(gate)))
            calls.append(executor.submit(functions.double, 1))
            functions.reach(gate.with_name("gate.begun"))
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return calls[0], calls[1]


def test_ctrl_c_ends_what_runs(tmp_path: Path):
    """It does not reach workers, which have sessions of their own; nobody waits for them then."""
    running, queued = interrupted(tmp_path / "gate")
    assert isinstance(running.exception(0), BrokenProcessPool)
    assert isinstance(queued.exception(0), BrokenProcessPool)


def test_killed_workers_are_gone(tmp_path: Path):
    """What cannot be waited for can be ended."""
    executor = forebay.Executor(1)
    worker = os.pidfd_open(executor.submit(functions.pid).result(WAIT_S))
    waiting = executor.submit(functions.wait_for, str(tmp_path / "gate"))
    functions.reach(tmp_path / "gate.begun")
    executor.kill_workers()
    assert isinstance(waiting.exception(0), BrokenProcessPool)
    assert select.select([worker], [], [], WAIT_S)[0]
    os.close(worker)
    with pytest.raises(RuntimeError, match="killed"):
        executor.submit(functions.pid)
