"""Scene A: an engineer tunes a compiler with warm backends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from pathlib import Path

import forebay
from benchmarks import processes
from tools.scenes.shell import Scene

APPLICATION = "examples/gcc_tuning/app.py"
EXAMPLES = ("gcc_tuning",)
PACKAGES = ("rich",)
BUDGET, SHORT_BUDGET = 80, 40
KILLED_AFTER = 10
RESETS = 10_000
BARS_S = 1.0
WARM_ROUNDS = 200


def holdings(pid: int, *folders: Path) -> dict[str, int]:
    """Processes and descriptors of a server, and files of its folders."""
    tree = processes.tree(pid)
    descriptors = 0
    for each in tree:
        with contextlib.suppress(OSError):
            descriptors += len(os.listdir(f"/proc/{each}/fd"))
    files = sum(path.is_file() for folder in folders for path in folder.rglob("*"))
    return {"processes": len(tree), "descriptors": descriptors, "files": files}


def play(scene: Scene) -> None:
    """Serve, run, kill a compiler, and count what ten thousand resets leave."""
    scene.part("serve")
    with scene.served(APPLICATION) as pid:
        _run(scene)
        scene.part("pool")
        listed = scene.shell("forebay pool ls")
        scene.expect("Compiler" in listed, "the pool lists the compiler")
        scene.part("kill")
        _kill_in_mid_trial(scene)
        scene.part("ps")
        rows = scene.shell("forebay ps").splitlines()[1:]
        scene.expect(
            len(rows) == 2 and all("succeeded" in row for row in rows), "both runs succeeded"
        )
        scene.part("resets")
        _reset_often(scene, pid)
        _look_at_terminal(scene)


def _run(scene: Scene) -> None:
    """The first run of a newcomer."""
    shown = scene.shell(
        f"forebay run tune --program lz --budget {BUDGET} 2>&1 >lz.json",
        shown=f"forebay run tune --program lz --budget {BUDGET} >lz.json",
    )
    for name in ("program", "-Os", "best", "flags"):
        found = re.search(rf"^{name}\s", shown, re.MULTILINE)
        scene.expect(found is not None, f"the table has a line {name}")
    scene.expect(f"{BUDGET} good" in shown, f"all {BUDGET} trials were good")
    result = json.loads((scene.home / "lz.json").read_text())
    scene.expect(result["best_bytes"] < result["base_bytes"], "the best is smaller than -Os")


def _kill_in_mid_trial(scene: Scene) -> None:
    """Submit a run, and kill its compiler once a quarter of the trials is made."""
    with forebay.Client(app=str(scene.home / APPLICATION), start=False) as client:
        scene.shell(f"forebay submit tune --program sorting --budget {SHORT_BUDGET}")
        request = client.get("@last")
        killed = 0
        for step in request.progress():
            if step.done >= KILLED_AFTER and not killed:
                services = client.ask("services")["services"]
                killed = next(one["pid"] for one in services if one["state"] == "leased")
                scene.say(f"$ kill -9 {killed}")
                os.kill(killed, signal.SIGKILL)
        request.result()
    logs = scene.shell("forebay logs @last")
    scene.expect(
        f"(process {killed}) was killed by signal 9 (SIGKILL)" in logs, "the log names the signal"
    )
    lost = f"{SHORT_BUDGET - 1} good, 1 lost"
    scene.expect(lost in logs, f"the kill cost one trial: {lost}")


def _reset_often(scene: Scene, pid: int) -> None:
    with forebay.Client(app=str(scene.home / APPLICATION), start=False) as client:
        client.run("borrow", rounds=WARM_ROUNDS)
    before = holdings(pid, *scene.folders)
    scene.shell(f"forebay run borrow --rounds {RESETS} | wc -c")
    after = holdings(pid, *scene.folders)
    scene.say(f"# before {RESETS:,} resets: {_told(before)}")
    scene.say(f"# after them:            {_told(after)}")
    for what, count in before.items():
        scene.expect(after[what] <= count, f"as few {what} as before: {after[what]}, {count}")


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def _look_at_terminal(scene: Scene) -> None:
    """A bar is there within a second, on a terminal."""
    command = ("forebay", "run", "tune", "--program", "lz", "--budget", str(SHORT_BUDGET))
    took = scene.until_shown(command, b"tune ")
    scene.say(f"# on a terminal, the bar of a run was there after {took:.1f} s")
    scene.expect(took <= BARS_S, f"the bar is there within {BARS_S:.0f} s: {took:.2f}")
