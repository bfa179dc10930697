"""Scene C: a learner samples a replay file and pulls embeddings, into one arena."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import forebay
from tools.scenes.shell import Scene

APPLICATION = "examples/training/trainer.py"
EXAMPLES = ("training",)
PACKAGES = ("numpy", "rich")
STEPS = 20_000
RESTART_S = 5.0


def play(scene: Scene) -> None:
    """Look at the machine, serve, train; then kill a parameter server in mid-run."""
    scene.part("doctor")
    found = scene.shell("forebay doctor")
    lines = [line for line in found.splitlines() if line.startswith(("note", "missing"))]
    scene.expect(not any(line.startswith("missing") for line in lines), "nothing is missing")
    scene.part("train")
    with scene.served(APPLICATION):
        scene.shell(
            f"forebay run train --steps {STEPS} 2>&1 >trained.json",
            shown=f"forebay run train --steps {STEPS} >trained.json",
        )
        result = json.loads((scene.home / "trained.json").read_text())
        scene.say(f"# the loss fell from {result['loss_before']:.3f} to {result['loss']:.3f}")
        scene.expect(result["loss"] < result["loss_before"] / 2, "the loss fell")
        scene.part("kill")
        _kill_a_server(scene)


def _kill_a_server(scene: Scene) -> None:
    """Kill a parameter server under a run; the run fails, and names it."""
    with forebay.Client(app=str(scene.home / APPLICATION), start=False) as client:
        scene.shell(f"forebay submit train --steps {STEPS}")
        request = client.get("@last")
        killed = 0
        for step in request.progress():
            if step.done and not killed:
                killed = client.ask("services")["services"][0]["pid"]
                scene.say(f"$ kill -9 {killed}")
                os.kill(killed, signal.SIGKILL)
    why = scene.shell("forebay why @last")
    named = re.search(r"unix://\S+-[01]\.sock", why)
    scene.expect(named is not None, "the failure names the server")
    time.sleep(RESTART_S)
    kept = scene.shell("forebay pool ls")
    scene.expect(re.search(r"TensorServer +2 ", kept) is not None, "there are two servers again")
