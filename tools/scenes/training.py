"""Scene C: a learner samples a replay file and pulls embeddings, into one arena."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import forebay
from tools.scenes.shell import Scene

APPLICATION = "examples/training/trainer.py"
EXAMPLES = ("training",)
PACKAGES = ("numpy", "rich", "distributed")
STEPS = 20_000
RESTART_S = 5.0
END_S = 30.0
NODES_S = 60.0
LOOK_S = 0.1


def play(scene: Scene) -> None:
    """Look at the machine, serve, train; kill a parameter server in mid-run; then on a cluster."""
    scene.part("doctor")
    found = scene.shell("forebay doctor")
    lines = [line for line in found.splitlines() if line.startswith(("note", "missing"))]
    scene.expect(not any(line.startswith("missing") for line in lines), "nothing is missing")
    scene.part("train")
    with scene.served(APPLICATION):
        _train(scene)
        scene.part("kill")
        _kill_a_server(scene)
    scene.part("cluster")
    with _cluster(scene) as scheduler:
        on_cluster = ("--engine", "dask", "--scheduler", scheduler)
        with scene.served(APPLICATION, *on_cluster):
            _await_nodes(scene)
            _train(scene)
            shown = scene.shell("forebay status")
            scene.expect(f"on the Dask cluster at {scheduler}" in shown, "workers are there")


def _train(scene: Scene) -> None:
    """Run the request, and look at what came of it."""
    scene.shell(
        f"forebay run train --steps {STEPS} 2>&1 >trained.json",
        shown=f"forebay run train --steps {STEPS} >trained.json",
    )
    result = json.loads((scene.home / "trained.json").read_text())
    scene.say(f"# the loss fell from {result['loss_before']:.3f} to {result['loss']:.3f}")
    scene.expect(result["loss"] < result["loss_before"] / 2, "the loss fell")


@contextlib.contextmanager
def _cluster(scene: Scene) -> Iterator[str]:
    """A scheduler and two workers of Dask, in other shells; the scheduler's address."""
    scheduler = f"tcp://127.0.0.1:{_free_port()}"
    programs = [["scheduler", "--host", scheduler], *[["worker", scheduler, "--nthreads", "4"]] * 2]
    with contextlib.ExitStack() as running:
        for program in programs:
            scene.say(f"$ dask {' '.join(program)} &")
            process = subprocess.Popen(
                [scene.fresh.programs / "dask", *program],
                cwd=scene.home,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            running.callback(_end, process)
        yield scheduler


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program of Dask, which ends its own children where it can."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await_nodes(scene: Scene) -> None:
    """Wait until the server knows of both workers, which find the scheduler by themselves."""
    with forebay.Client(app=str(scene.home / APPLICATION), start=False) as client:
        until = time.monotonic() + NODES_S
        while "(2 nodes" not in client.info()["engine"]["cluster"]:
            scene.expect(time.monotonic() < until, "the server knows of both nodes")
            time.sleep(LOOK_S)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


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
