"""The image's own commands under a container's rules: process 1, not root, one volume to write to.

No daemon of containers is needed: namespaces, bind mounts and chroot make the same rules of this
machine's files.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.service.dockerfile import ROOT, stages
from tests.other_user import needs_root

pytestmark = [
    needs_root,
    pytest.mark.needs("unshare", "chroot", "nsenter", "ip"),
    pytest.mark.timeout(180),  # each makes a container, some two
]

USER: Final = 10001

CONTAIN: Final = """\
set -e
root=$1; state=$2; app=$3; shift 3
mount -t tmpfs -o mode=755 tmpfs "$root"
show() {
    if [ -e "$1" ]; then
        mkdir -p "$root$2"
        mount --bind "$1" "$root$2"
        [ "$3" = rw ] || mount -o remount,bind,ro "$root$2"
    fi
}
for each in /usr /lib /lib64 /bin /sbin /etc "$@"; do
    [ "$each" != -- ] || break
    show "$each" "$each" ro
done
while [ "$1" != -- ]; do shift; done
shift
show "$app" /app ro
show "$state" /state rw
mkdir "$root/proc" "$root/dev" "$root/sys" "$root/tmp"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -o remount,ro "$root"
ip link set lo up
exec chroot --userspec=10001:10001 --groups= "$root" "$@"
"""

APP: Final = """
import os
import subprocess

import forebay

app = forebay.App("contained")


@app.request(lane="short")
def written(path: str) -> str:
    try:
        with open(path, "w"):
            return "written"
    except OSError as error:
        return os.strerror(error.errno)


@app.request(lane="short")
def orphan() -> int:
    # Its parent ends at once: somebody else has to wait for it.
    subprocess.run(["sh", "-c", "sleep 0.2 &"], check=True)
    return os.getuid()
"""


class Container:
    """The image, made of this machine's files; its state is kept from one start to the next."""

    def __init__(self, directory: Path) -> None:
        _, self.image = stages()
        self.root, self.state, self.app = (directory / name for name in ("root", "state", "app"))
        for one in (self.root, self.state, self.app):
            one.mkdir()
        os.chown(self.state, USER, USER)
        (self.app / "app.py").write_text(APP)
        forebay = self.app / "forebay"
        forebay.write_text(f'#!/bin/sh\nexec {sys.executable} -m forebay.cli "$@"\n')
        forebay.chmod(0o755)
        for one in (self.app, *self.app.parents[:2]):
            one.chmod(one.stat().st_mode | 0o011)
        self.process: subprocess.Popen[str] | None = None

    @property
    def _environment(self) -> list[str]:
        variables = {
            **self.image.environment,
            "PATH": "/app:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": f"{ROOT / 'python'}",
        }
        return ["env", "-i", "-C", "/app", *(f"{name}={it}" for name, it in variables.items())]

    def start(self, *command: str) -> None:
        """Start it; its process 1 is the command, by default the image's."""
        image = [*self.image.one("ENTRYPOINT").exec_form, *self.image.one("CMD").exec_form]
        shown = dict.fromkeys([sys.base_prefix, sys.prefix, str(ROOT)])
        unshare = ["unshare", "--mount", "--pid", "--net", "--fork"]
        self.process = subprocess.Popen(
            [
                *(*unshare, "sh", "-c", CONTAIN, "sh"),
                *(str(self.root), str(self.state), str(self.app), *shown, "--"),
                *self._environment,
                *(command or image),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def pid(self) -> int:
        """Process 1 of it, by its number outside."""
        assert self.process is not None
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(path.read_text().split()[0])

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A further command in it, as of `docker exec`."""
        enter = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--net", "--root"]
        user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        return subprocess.run(
            [*enter, "--wd=/", *user, *self._environment, *command],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    def wait_healthy(self) -> None:
        """Until its health check says so."""
        check = self.image.one("HEALTHCHECK").exec_form
        deadline = time.monotonic() + 50
        while True:
            assert self.process is not None
            assert self.process.poll() is None, self.process.communicate()
            try:
                done = self.run(*check)
            except IndexError:  # it is being made
                done = None
            if done is not None and done.returncode == 0:
                assert done.stdout == ""
                return
            assert time.monotonic() < deadline, done
            time.sleep(0.1)

    def kill(self) -> None:
        """End it as `docker kill` does: with process 1, all that it contains."""
        assert self.process is not None
        if self.process.poll() is None:
            # Not what made the namespace: a process that changes its user outlives its parent.
            os.kill(self.pid, signal.SIGKILL)
            self.ended()

    def ended(self) -> tuple[int, str]:
        """Wait for its end: the code, and what it printed."""
        assert self.process is not None
        out, _ = self.process.communicate(timeout=50)
        return self.process.returncode, out


@contextmanager
def running(directory: Path) -> Iterator[Container]:
    container = Container(directory)
    try:
        container.start()
        container.wait_healthy()
        yield container
    finally:
        container.kill()


def asked(container: Container, path: str) -> dict[str, Any]:
    """The answer of its gateway, asked from inside."""
    program = (
        "import urllib.request, urllib.error\n"
        f"url = 'http://127.0.0.1:8000{path}'\n"
        "print(urllib.request.urlopen(url, timeout=30).read().decode())"
    )
    done = container.run(sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_the_image_serves_and_ends(tmp_path: Path) -> None:
    """`docker run --read-only`, a request, a health check, `docker stop`."""
    with running(tmp_path) as container:
        status = json.loads(container.run("forebay", "status", "--json").stdout)
        assert status["pid"] == 1
        assert asked(container, "/readyz") == {"ready": True}
        for path, said in (("/tmp/x", "Read-only file system"), ("/app/x", "Read-only"), ("x", "")):
            done = container.run("forebay", "run", "app.py:written", "--path", path)
            assert done.returncode == 0, done.stderr
            assert said in done.stdout
        os.kill(container.pid, signal.SIGTERM)
        code, out = container.ended()
        assert code == 128 + signal.SIGTERM, out
    written = {one.name for one in container.state.iterdir()}
    assert "run" in written
    assert {one.stat().st_uid for one in container.state.rglob("*")} == {USER}


def test_orphans_of_a_worker_leave_no_zombie(tmp_path: Path) -> None:
    """Process 1 of a container must not collect them: the keeper waits for what workers leave."""
    with running(tmp_path) as container:
        for _ in range(3):
            done = container.run("forebay", "run", "app.py:orphan")
            assert done.stdout.strip() == str(USER), done.stderr
        deadline = time.monotonic() + 10
        while zombies := [one for one in states(container) if one == "Z"]:
            assert time.monotonic() < deadline, zombies
            time.sleep(0.1)


def states(container: Container) -> list[str]:
    """The states of all its processes."""
    program = (
        "import pathlib\n"
        "for path in pathlib.Path('/proc').glob('[0-9]*/stat'):\n"
        "    try:\n"
        "        print(path.read_text().rpartition(')')[2].split()[0])\n"
        "    except OSError:\n"
        "        pass"
    )
    return container.run(sys.executable, "-c", program).stdout.split()


def test_what_was_accepted_outlives_the_container(tmp_path: Path) -> None:
    """The volume is all that a new container needs, though its process has the same number."""
    with running(tmp_path) as container:
        done = container.run("forebay", "submit", "app.py:written", "--path", "/state/x")
        id_ = done.stdout.strip()
        container.kill()
        container.start()
        container.wait_healthy()
        assert container.run("forebay", "wait", id_).returncode == 0


OVERLAY: Final = """\
set -e
mount -t overlay overlay -o lowerdir=/,upperdir=$1/upper,workdir=$1/work "$1/merged"
exec chroot "$1/merged" sh -e -c "$2"
"""


@pytest.mark.needs("useradd")
def test_the_steps_of_the_image_make_its_user_and_directories(tmp_path: Path) -> None:
    """What RUN does beside pip, in a root of its own; tests/wheel installs the wheel."""
    _, image = stages()
    (step,) = (one.text for one in image.all("RUN") if "useradd" in one.text)
    for name in ("upper", "work", "merged"):
        (tmp_path / name).mkdir()
    command = ["unshare", "--mount", "sh", "-c", OVERLAY, "sh", str(tmp_path), step]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "upper" / image.one("VOLUME").text.lstrip("/")).stat()
    assert f"{made.st_uid}:{made.st_gid}" == image.one("USER").text
    assert made.st_mode & 0o777 == 0o700
    assert (tmp_path / "upper" / image.one("WORKDIR").text.lstrip("/")).is_dir()
