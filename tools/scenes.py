"""Play the scenes of the guides in a shell, and record what it shows.

`python -m tools.scenes environments` and `python -m tools.scenes small_node` print a transcript.
Each command is run as it stands there; lines that begin with # tell what is done between them.
The second one needs the right to make control groups.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
from benchmarks import processes
from benchmarks.cgroup import Cgroup, cgroup

ROOT = Path(__file__).resolve().parents[1]
TUNING = "examples/gcc_tuning/app.py"
LAUNCH = "examples/small_node/launch.py"
RESETS = 10_000
NODE_BYTES, NODE_CORES = 750_000_000, 0.5
JOBS = 30
LISTINGS = 50
LISTING_S = 0.05
WAIT_S = 120.0


class Scene:
    """A shell in the checkout, with places of its own for servers.

    Args:
        home: a directory with a short path, for state and sockets.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
        os.environ.update(
            FOREBAY_STATE_DIR=str(home / "state"),
            XDG_RUNTIME_DIR=str(home),
            PATH=os.pathsep.join(paths),
            PYTHONPATH=os.pathsep.join([str(ROOT / "python"), str(ROOT)]),
            TMPDIR=str(home),
        )

    def shell(self, command: str, *, shown: str | None = None) -> str:
        """Run a line, and show it with what it wrote; returns its stdout."""
        self.say(f"$ {shown or command}")
        done = subprocess.run(
            ["bash", "-c", command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        text = done.stdout.decode().replace(str(self.home), "$HOME")
        self.say(text.rstrip())
        if done.returncode:
            self.say(f"[{done.returncode}]")
        return text

    def say(self, text: str) -> None:
        """Show a line."""
        if text:
            print(text.replace(str(ROOT) + "/", ""), flush=True)

    @contextlib.contextmanager
    def served(self, application: str, group: Cgroup | None = None) -> Iterator[int]:
        """Serve an application in the foreground of another shell; its process id."""
        self.say(f"$ forebay serve {application} &")
        server = subprocess.Popen(
            [sys.executable, "-m", "forebay.cli", "serve", application],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            preexec_fn=None if group is None else group.enter,
        )
        try:
            assert server.stdout is not None
            line = server.stdout.readline().decode().strip()
            self.say(line.replace(str(self.home), "$HOME"))
            yield server.pid
        finally:
            server.terminate()
            server.wait(WAIT_S)


def holdings(pid: int, home: Path) -> dict[str, int]:
    """Processes, descriptors and files of a server."""
    tree = processes.tree(pid)
    descriptors = 0
    for each in tree:
        with contextlib.suppress(OSError):
            descriptors += len(os.listdir(f"/proc/{each}/fd"))
    files = sum(path.is_file() for path in home.rglob("*"))
    return {"processes": len(tree), "descriptors": descriptors, "files": files}


def environments(scene: Scene) -> None:
    """An engineer tunes a compiler with warm backends."""
    with scene.served(TUNING) as pid:
        scene.shell(
            f"forebay run tune --program lz --budget 80 2>&1 >{scene.home}/lz.json",
            shown="forebay run tune --program lz --budget 80 >lz.json",
        )
        scene.shell("forebay pool ls")
        scene.say("# a compiler is killed while it works")
        _kill_in_mid_trial(scene)
        scene.shell("forebay logs @last")
        scene.shell("forebay ps")
        with forebay.Client(app=TUNING, start=False) as client:
            client.run("borrow", rounds=200)  # warm
            before = holdings(pid, scene.home)
            scene.shell(f"forebay run borrow --rounds {RESETS} | wc -c")
            scene.say(f"# before {RESETS:,} resets: {_told(before)}")
            scene.say(f"# after them:            {_told(holdings(pid, scene.home))}")


def _kill_in_mid_trial(scene: Scene) -> None:
    """Submit a run, and kill its compiler once a quarter of the trials is made."""
    with forebay.Client(app=TUNING, start=False) as client:
        scene.shell("forebay submit tune --program sorting --budget 40")
        request = client.get("@last")
        killed = 0
        for step in request.progress():
            if step.done >= 10 and not killed:
                services = client.ask("services")["services"]
                killed = next(one["pid"] for one in services if one["state"] == "leased")
                scene.say(f"$ kill -9 {killed}")
                os.kill(killed, signal.SIGKILL)
        request.result()


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def small_node(scene: Scene) -> None:
    """Thirty launches on half a core and 750 MB, through a SIGKILL of the server."""
    record = scene.home / "record"
    with cgroup(NODE_BYTES, NODE_CORES) as group:
        scene.say(f"# a control group of {NODE_CORES} CPU and {NODE_BYTES / 1e6:.0f} MB")
        with scene.served(LAUNCH, group) as pid:
            scene.shell(
                f"for i in $(seq {JOBS}); do forebay submit launch --name job-$i"
                f" --record {record}; done | tail -1",
                shown=f"for i in $(seq {JOBS}); do forebay submit launch --name job-$i; done",
            )
            scene.shell("forebay top | cut -c1-100", shown="forebay top")
            scene.shell("forebay why @last")
            scene.say(f"# the server is killed: kill -9 {pid}")
            os.kill(pid, signal.SIGKILL)
        with scene.served(LAUNCH, group), forebay.Client(app=LAUNCH, start=False) as client:
            _until_runs(client)
            times = _listings(client)
            scene.shell("forebay wait @last --progress none")
            _wait_for_all(client)
            scene.shell("forebay ps --failed --json")
            rows = client.list(limit=100)
        _conclude(scene, rows, times, record, group)


def _until_runs(client: forebay.Client) -> None:
    """Wait until the application is imported, for which the group gives up its whole quota."""
    deadline = time.monotonic() + WAIT_S
    while not client.list(status="running") and time.monotonic() < deadline:
        time.sleep(0.05)


def _listings(client: forebay.Client) -> list[float]:
    """Seconds that the server takes for a listing while it is busy."""
    times = []
    for _ in range(LISTINGS):
        start = time.perf_counter()
        client.list(limit=100)
        times.append(time.perf_counter() - start)
        time.sleep(0.1)
    return times


def _wait_for_all(client: forebay.Client) -> None:
    rows = client.list(limit=100)
    _, others = client.wait([client.get(row["id"]) for row in rows], timeout=WAIT_S)
    if others:
        raise TimeoutError(f"{len(others)} requests have not ended")


def _conclude(
    scene: Scene, rows: list[dict[str, Any]], times: list[float], record: Path, group: Cgroup
) -> None:
    names = Counter(record.read_text().split())
    statuses = Counter(row["status"] for row in rows)
    again = sum(row["attempts"] > 1 for row in rows)
    scene.say(f"# {dict(statuses)} of {len(rows)}; {again} were at work when the server was killed")
    scene.say(f"# {len(names)} names were written down, {max(names.values())} time each at most")
    scene.say(f"# killed by the kernel: {group.kills()}")
    quick = sum(seconds <= LISTING_S for seconds in times)
    scene.say(
        f"# listings while they ran: {statistics.median(times) * 1e3:.1f} ms (median), "
        f"{quick} of {len(times)} within {LISTING_S * 1e3:.0f} ms, "
        f"{max(times) * 1e3:.0f} ms at most"
    )
    scene.say(f"# the group's quota was used up in {group.stalled():.0%} of all tenths of a second")


SCENES = {"environments": environments, "small_node": small_node}


def main(arguments: list[str]) -> int:
    """Play the scene that is named."""
    if len(arguments) != 1 or arguments[0] not in SCENES:
        print(f"usage: python -m tools.scenes {{{','.join(SCENES)}}}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as home:
        SCENES[arguments[0]](Scene(Path(home)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
