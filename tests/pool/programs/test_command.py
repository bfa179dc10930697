from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.processes import alive, children, eventually, parent
from tests.pool.scripts import DELAYED, ECHO, PYTHON, python, write

ECHO_IN_C = """
    #include <stdlib.h>
    #include <unistd.h>

    int main(int count, char **arguments) {
        char bytes[4096];
        int fd = atoi(arguments[count - 1]);
        if (write(fd, "!", 1) != 1) return 1;
        for (;;) {
            ssize_t got = read(fd, bytes, sizeof bytes);
            if (got <= 0) return 0;
            if (write(fd, bytes, got) != got) return 1;
        }
    }
"""

LAST_WORDS = """
    import sys
    print("cannot open the data base", file=sys.stderr)
    sys.exit(4)
"""


@pytest.fixture
def echo(tmp_path: Path) -> forebay.Command:
    """A program that echoes."""
    return python(tmp_path, ECHO)


def ask(connection: socket.socket, text: bytes) -> bytes:
    """Send and take as many bytes back."""
    connection.sendall(text)
    got = b""
    while len(got) < len(text):
        more = connection.recv(len(text) - len(got))
        assert more, "the program closed its socket"
        got += more
    return got


def test_a_program_serves_on_its_socket(pool: forebay.ServicePool, echo: forebay.Command) -> None:
    """Any program can be kept warm; what it says first is only that it is ready."""
    with pool.acquire(echo) as backend:
        pid = backend.lease.pid
        assert ask(backend.socket, b"hello") == b"hello"
        assert backend.socket is backend.lease.socket
    with pool.acquire(echo) as backend:
        assert backend.lease.pid == pid
        assert ask(backend.socket, b"again") == b"again"
    assert pool.stats()["starts"] == 1


@pytest.mark.needs("gcc")
def test_a_compiled_program_serves_too(pool: forebay.ServicePool, tmp_path: Path) -> None:
    """Nothing of Python is needed in the program."""
    source, program = write(tmp_path / "backend.c", ECHO_IN_C), tmp_path / "backend"
    subprocess.run(["gcc", "-O1", "-o", program, source], check=True)
    with pool.acquire(forebay.Command([str(program), "--fd", "{fd}"])) as backend:
        assert ask(backend.socket, b"x" * 1000) == b"x" * 1000


def test_a_program_serves_an_event_loop(pool: forebay.ServicePool, echo: forebay.Command) -> None:
    """The same program, waited for on a loop."""

    async def main() -> None:
        async with pool.acquire(echo) as backend:
            reader, writer = await asyncio.open_unix_connection(
                sock=socket.socket(fileno=os.dup(backend.socket.fileno()))
            )
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            writer.close()
            await writer.wait_closed()

    asyncio.run(main())


def test_a_missing_program_is_refused_before_anything_starts(pool: forebay.ServicePool) -> None:
    """A typo is told at once, with the name."""
    with pytest.raises(forebay.ConfigError, match="no-such-program"):
        pool.acquire(forebay.Command(["no-such-program", "{fd}"]))
    assert pool.stats()["starts"] == 0


def test_a_program_that_cannot_be_executed_is_told(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """A script without its interpreter is a death with the reason, not a hang."""
    program = write(tmp_path / "noise", "#!/no/such/interpreter\n")
    program.chmod(0o755)
    raising = pytest.raises(forebay.DiedError, match="could not be started")
    with raising as caught, pool.acquire(forebay.Command([str(program), "{fd}"]), timeout=5):
        pass
    assert caught.value.cause == "not_started"
    assert caught.value.delivered == "no"
    assert pool.stats()["live"] == 0


def test_a_program_that_ends_at_once_is_told_with_its_words(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """What it wrote before it was ready is the reason that the caller sees."""
    raising = pytest.raises(forebay.DiedError, match="cannot open the data base")
    with raising as caught, pool.acquire(python(tmp_path, LAST_WORDS)):
        pass
    assert (caught.value.cause, caught.value.exit_code) == ("exit", 4)
    assert pool.stats()["live"] == 0


def test_a_program_that_is_not_ready_in_time_is_told(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """The caller's timeout counts from asking, and raises the pool's error."""
    began = time.monotonic()
    raising = pytest.raises(forebay.DeadlineError, match=r"0\.3 s")
    with raising as caught, pool.acquire(python(tmp_path, DELAYED, "3600"), timeout=0.3):
        pass
    assert 0.3 <= time.monotonic() - began < 10
    assert caught.value.timeout == pytest.approx(0.3)


def test_a_program_that_nobody_waited_for_is_lent_when_it_is_ready(
    pool_of: PoolOf, tmp_path: Path
) -> None:
    """Its start goes on without the caller who gave up."""
    command = python(tmp_path, DELAYED, "0.5")
    with pool_of(max_size=2) as pool:
        with pytest.raises(forebay.DeadlineError), pool.acquire(command, timeout=0.1):
            pass
        with pool.acquire(command, timeout=5) as backend:
            assert alive(backend.lease.pid)
        assert pool.stats()["starts"] == 1


def test_a_program_that_is_never_ready_is_ended(pool_of: PoolOf, tmp_path: Path) -> None:
    """`start_timeout` ends it, whoever waits, and the caller is told."""
    with pool_of(max_size=1, start_timeout=0.3) as pool:
        raising = pytest.raises(forebay.DiedError, match="not ready in time")
        with raising as caught, pool.acquire(python(tmp_path, DELAYED, "3600"), timeout=10):
            pass
        assert caught.value.cause == "start_deadline"
        assert pool.stats()["live"] == 0
        assert pool.stats()["deaths"] == {"start_deadline": 1}


def test_a_program_killed_while_idle_is_replaced(
    pool: forebay.ServicePool, echo: forebay.Command
) -> None:
    """A caller never gets a dead program."""
    with pool.acquire(echo) as backend:
        victim = backend.lease.pid
    os.kill(victim, signal.SIGKILL)
    assert eventually(lambda: not alive(victim))
    with pool.acquire(echo) as backend:
        assert backend.lease.pid != victim
        assert ask(backend.socket, b"hello") == b"hello"


def test_a_program_that_left_something_unread_is_replaced(
    pool: forebay.ServicePool, echo: forebay.Command
) -> None:
    """An answer to one holder never reaches the next."""
    with pool.acquire(echo) as backend:
        victim = backend.lease.pid
        backend.socket.sendall(b"an answer that nobody takes")
        assert backend.socket.recv(1, socket.MSG_PEEK)
    with pool.acquire(echo) as backend:
        assert backend.lease.pid != victim
        assert ask(backend.socket, b"hello") == b"hello"


def test_a_socket_setting_of_one_holder_does_not_reach_the_next(
    pool: forebay.ServicePool, echo: forebay.Command
) -> None:
    """Every holder finds a blocking socket."""
    with pool.acquire(echo) as backend:
        backend.socket.setblocking(False)
    with pool.acquire(echo) as backend:
        assert backend.socket.gettimeout() is None
        assert ask(backend.socket, b"hello") == b"hello"


def test_a_socket_that_its_holder_closed_ends_the_program(
    pool: forebay.ServicePool, echo: forebay.Command
) -> None:
    """A holder that hangs up ends its own program and disturbs nobody else."""
    with pool.acquire(echo) as backend:
        victim = backend.lease.pid
        backend.socket.close()
    with pool.acquire(echo) as backend:
        assert backend.lease.pid != victim
        assert ask(backend.socket, b"hello") == b"hello"
    assert eventually(lambda: not alive(victim))


def test_a_program_that_must_not_be_reused_is_new_each_time(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """`reuse=False`: every lease gets a new process, and the old one is ended."""
    command = python(tmp_path, ECHO, reuse=False)
    pids = set()
    for _ in range(3):
        with pool.acquire(command) as backend:
            pids.add(backend.lease.pid)
    assert len(pids) == 3
    assert eventually(lambda: not any(map(alive, pids)))


def test_reuse_is_part_of_what_is_asked_for(pool: forebay.ServicePool, tmp_path: Path) -> None:
    """Who asks for a fresh program does not get one that somebody else may use again."""
    with pool.acquire(python(tmp_path, ECHO)) as backend:
        warm = backend.lease.pid
    with pool.acquire(python(tmp_path, ECHO, reuse=False)) as backend:
        assert backend.lease.pid != warm


def test_a_program_gets_its_environment_and_directory(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """What the command says, on top of what this process has."""
    program = write(
        tmp_path / "tell.py",
        """
        import os, socket, sys
        connection = socket.socket(fileno=int(sys.argv[1]))
        connection.send(b"!")
        connection.recv(1)
        connection.sendall(f"{os.getcwd()} {os.environ['COLOUR']} {os.environ['PATH']}".encode())
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
        """,
    )
    command = forebay.Command(
        [*PYTHON, str(program), "{fd}"], env={"COLOUR": "green"}, cwd=str(tmp_path)
    )
    with pool.acquire(command) as backend:
        backend.socket.sendall(b"?")
        with backend.socket.makefile("rb") as answers:
            told = answers.read().decode()
    assert told == f"{tmp_path} green {os.environ['PATH']}"


def test_what_a_program_writes_can_be_read(pool: forebay.ServicePool, tmp_path: Path) -> None:
    """Its stdout does not fill the client's terminal, and is not lost."""
    command = python(tmp_path, "\n    print('hello from afar', flush=True)" + ECHO)
    with pool.acquire(command) as backend:
        assert "hello from afar" in backend.lease.stderr


def test_a_program_inherits_no_descriptor_but_its_own(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """A program holds nothing of the client or of the keeper open."""
    program = write(
        tmp_path / "list.py",
        """
        import os, socket, sys
        found = sorted(map(int, os.listdir("/proc/self/fd")))
        connection = socket.socket(fileno=int(sys.argv[1]))
        connection.send(b"!" + bytes(found))
        connection.recv(1)
        """,
    )
    with (
        open("/dev/null") as file,
        pool.acquire(forebay.Command([*PYTHON, str(program), "{fd}"])) as it,
    ):
        assert file.fileno() > 2
        # stdin, stdout, stderr, its socket, and the directory that is being listed
        assert list(it.socket.recv(100)) == [0, 1, 2, 3, 4]
        keeper, program_pid = parent(it.lease.pid), it.lease.pid
        assert children(keeper) == [program_pid]


@pytest.fixture(params=["no fd", "text", "empty", "ready"])
def wrong(request: pytest.FixtureRequest) -> dict[str, object]:
    """Arguments that make no command."""
    arguments: dict[str, dict[str, object]] = {
        "no fd": {"arguments": ["cat"]},
        "text": {"arguments": "cat {fd}"},
        "empty": {"arguments": []},
        "ready": {"arguments": ["cat", "{fd}"], "ready": "port"},
    }
    return arguments[request.param]


def test_a_command_that_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    """A mistake is told where it is made."""
    with pytest.raises(forebay.ConfigError):
        forebay.Command(**wrong)  # type: ignore[arg-type]
