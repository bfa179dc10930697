"""The event loop among signals, forks and threads that compute: programs of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PRELUDE = """
import asyncio, os, signal, socket, sys, threading, time
from forebay.transport import new_event_loop
loop = new_event_loop()
near, far = socket.socketpair()
near.setblocking(False)
"""


def run(program: str, *, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    """Run a program after the prelude, and wait for its end."""
    source = PRELUDE + textwrap.dedent(program)
    return subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=timeout, check=False
    )


def test_a_signal_handler_runs_while_the_loop_sleeps():
    """`add_signal_handler` answers at once, though the wait is in Rust and without the GIL."""
    done = run("""
        def on_signal():
            print("handled", loop.forebay_selector.metrics()["sleeps"] > 0)
            loop.stop()
        loop.add_signal_handler(signal.SIGUSR1, on_signal)
        def send():
            while not loop.forebay_selector.metrics()["sleeps"]:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGUSR1)
        threading.Thread(target=send).start()
        loop.run_forever()
        loop.close()
    """)
    assert (done.stdout, done.stderr) == ("handled True\n", "")


def test_ctrl_c_ends_a_sleeping_loop():
    """A program that waits for ever is ended as any Python program, its tasks cancelled."""
    done = run("""
        async def main():
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                print("cleaned up")
        def send():
            while not loop.forebay_selector.metrics()["sleeps"]:
                time.sleep(0.001)
            time.sleep(0.2)  # one that comes between the count and the sleep waits, in any Python
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=send).start()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(main())
    """)
    assert done.stdout == "cleaned up\n"
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")


def test_a_plain_handler_that_raises_interrupts_the_wait():
    """A handler of `signal.signal` runs in the wait; a handler that returns does not end it."""
    done = run("""
        selector = loop.forebay_selector
        calls = []
        def on_alarm(number, frame):
            calls.append(number)
            if len(calls) == 2:
                raise TimeoutError("enough")
        signal.signal(signal.SIGALRM, on_alarm)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            selector.select(20)
        except TimeoutError as error:
            print(error, len(calls))
        loop.close()
    """)
    assert (done.stdout, done.stderr) == ("enough 2\n", "")


def test_a_forked_child_does_not_disturb_the_loop_of_its_parent():
    """What the child removes, closes and adds is its own: the set of the parent stays as it is."""
    done = run("""
        other, _ = socket.socketpair()
        selector = loop.forebay_selector
        called = []
        def on_ready(events):
            called.append(near.recv(10))
            loop.stop()
        selector.attach(near.fileno(), 1, on_ready)
        loop.add_reader(other, print)
        child = os.fork()
        if child == 0:
            loop.remove_reader(other)
            selector.detach(near.fileno())
            selector.register(other, 1)
            far.send(b"x")
            assert selector.select(0) == [] and not called
            loop.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        loop.call_later(10, loop.stop)
        loop.run_forever()
        print(called, selector.metrics()["heals"])
        loop.close()
    """)
    assert (done.stdout, done.stderr) == ("[b'x'] 0\n", "")


def test_a_forked_child_may_go_on_with_the_loop_and_is_not_told_of_attached_sockets():
    """A server that forks after it made its loop works; the parent's connections stay its own."""
    done = run("""
        def on_ready(events):
            print("the child was called for a connection of its parent")
        loop.forebay_selector.attach(near.fileno(), 1, on_ready)
        far.send(b"x")
        child = os.fork()
        if child == 0:
            mine, yours = socket.socketpair()
            loop.add_reader(mine, loop.stop)
            loop.call_soon(yours.send, b"x")
            loop.run_forever()
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        loop.forebay_selector.detach(near.fileno())
        loop.close()
    """)
    assert (done.stdout, done.stderr) == ("7\n", "")
