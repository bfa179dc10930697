"""What `forebay doctor` says to type is typed here, on machines that lack something.

Each condition is a real one: another user, a limit, a mount, a filter of system calls, an
environment without a package.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import forebay
from forebay.cli.doctor.checks import findings
from forebay.cli.doctor.finding import Finding
from forebay.cli.doctor.remedies import CAP_SYS_RESOURCE, has_capability, in_container
from tests.blockio.alone import ROOT, alone
from tests.blockio.seccomp import IO_URING_SETUP, forbid, needs_filters
from tests.other_user import let_others_reach

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="to raise limits and to mount takes root")

PIDFD_OPEN, MEMFD_CREATE = 434, 319
PR_SET_THP_DISABLE = 41
DOCTOR = '"$PYTHON" -m forebay.cli doctor --json'
AS_NOBODY = f"setpriv --reuid=65534 --regid=65534 --clear-groups {DOCTOR}"

Row = dict[str, str | None]


def shell(line: str, python: Path | str = sys.executable, **environment: str) -> dict[str, Row]:
    """The rows that the last command of a line of the shell writes."""
    done = subprocess.run(
        ["bash", "-c", line],
        cwd="/",
        env=os.environ | {"PYTHON": str(python), "PYTHONPATH": str(ROOT / "python")} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr, done.stderr
    rows = [json.loads(row) for row in done.stdout.splitlines() if row.startswith("{")]
    assert rows, done.stderr
    return {row["name"]: row for row in rows}


def test_a_soft_limit_on_open_files_is_raised_by_what_is_told() -> None:
    """And the hard limit stays, which an ordinary user could not raise again."""
    row = shell(f"ulimit -S -n 512; {DOCTOR}")["open files"]
    assert (row["state"], row["to_type"]) == ("note", "ulimit -S -n 1024")
    assert str(row["value"]).startswith("512 ")
    again = shell(f"ulimit -S -n 512; {row['to_type']}; {DOCTOR}")["open files"]
    assert again["state"] == "ok"
    hard = str(row["value"]).partition(" ")[2]
    assert again["value"] == f"1024 {hard}"


def test_a_hard_limit_is_raised_where_it_was_set() -> None:
    """There `ulimit` refuses: the shell's parent, the unit or the container has to change."""
    limited = f"ulimit -n 512; {DOCTOR}"
    assert shell(limited, INVOCATION_ID="1")["open files"]["to_type"] == "LimitNOFILE=1024"
    row = shell(limited)["open files"]
    if in_container() and not has_capability(CAP_SYS_RESOURCE):
        assert row["to_type"] == "docker run --ulimit nofile=1024"
    else:
        assert str(row["to_type"]).removeprefix("sudo ") == "prlimit --pid $$ --nofile=1024"


@needs_root
@pytest.mark.needs("setpriv")
def test_a_user_who_may_pin_little_is_told_with_the_limit(tmp_path: Path) -> None:
    """The usual limit of a user is 8 MiB, and a chunk of an arena has 64."""
    limited = f"ulimit -l 8192; {AS_NOBODY}"
    row = shell(limited, INVOCATION_ID="1", PYTHONPATH=world_readable(tmp_path))[
        "registered memory"
    ]
    assert (row["state"], row["to_type"]) == ("note", "LimitMEMLOCK=infinity")


@needs_root
@pytest.mark.needs("setpriv")
def test_a_user_without_a_home_gets_a_state_directory(tmp_path: Path) -> None:
    """A service account is the usual one; what is told is where its requests survive a reboot."""
    packages = world_readable(tmp_path)
    row = shell(AS_NOBODY, HOME="/root", PYTHONPATH=packages)["state directory"]
    assert row["state"] == "missing"
    again = shell(f"{row['to_type']}; {AS_NOBODY}", HOME="/root", PYTHONPATH=packages)[
        "state directory"
    ]
    assert again["state"] == "ok"
    assert "/var/tmp/forebay-65534" in str(again["value"])


def world_readable(folder: Path) -> str:
    """The path of any user's Python, who may not read the folder of this clone."""
    plain = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", ""]
    if subprocess.run(plain, cwd="/", capture_output=True).returncode:
        pytest.skip(f"other users may not run {sys.executable}")
    let_others_reach(folder)
    return linked(folder / "packages", "msgspec", "numpy")


def linked(folder: Path, *packages: str) -> str:
    """A folder with the package itself and links to some of those that are installed here."""
    folder.mkdir()
    shutil.copytree(
        Path(forebay.__file__).parent,
        folder / "forebay",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for package in packages:
            for found in Path(site).glob(f"{package}*"):
                (folder / found.name).symlink_to(found)
    return str(folder)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment in which nothing is installed."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


def test_an_environment_without_what_serves_http_is_told(bare: Path, tmp_path: Path) -> None:
    """`forebay serve --http` refuses there; numpy and rich are no failure either."""
    rows = shell(DOCTOR, bare, PYTHONPATH=linked(tmp_path / "packages", "msgspec"))
    for name in ("uvloop", "uvicorn", "httptools"):
        assert (rows[name]["state"], rows[name]["value"]) == ("note", "not installed")
        assert rows[name]["to_type"] == "pip install 'forebay[server]'"
    assert rows["numpy"]["to_type"] == "pip install numpy"
    assert rows["msgspec"]["state"] == "ok"
    serving = linked(tmp_path / "more", "msgspec", "uvloop")
    assert shell(DOCTOR, bare, PYTHONPATH=serving)["uvloop"]["state"] == "ok"


def test_a_package_of_another_python_is_told(bare: Path, tmp_path: Path) -> None:
    """It is installed, and its import fails: after a new minor version of Python, say."""
    packages = linked(tmp_path / "packages", "msgspec", "uvloop-")
    here = Path(sysconfig.get_path("platlib")) / "uvloop"
    shutil.copytree(here, Path(packages) / "uvloop", ignore=shutil.ignore_patterns("*.so"))
    row = shell(DOCTOR, bare, PYTHONPATH=packages)["uvloop"]
    assert row["state"] == "note"
    assert str(row["value"]).startswith("cannot be imported: ")
    assert row["to_type"] == "pip install --force-reinstall 'forebay[server]'"


def test_a_package_without_its_extension_is_told(bare: Path, tmp_path: Path) -> None:
    """The rest is still looked at, and nothing ends in a traceback."""
    packages = linked(tmp_path / "packages", "msgspec")
    (Path(packages) / "forebay" / "_core.abi3.so").unlink()
    rows = shell(DOCTOR, bare, PYTHONPATH=packages)
    assert rows["extension"]["state"] == "missing"
    assert rows["extension"]["to_type"] == "pip install --force-reinstall forebay"
    assert rows["kernel"]["state"] == "ok"


def found(name: str) -> Finding:
    """A finding in this process."""
    (each,) = (each for each in findings(os.devnull + "/none") if each.name == name)
    return each


def _refused(call: str, name: str) -> None:
    for variable in ("KUBERNETES_SERVICE_HOST", "INVOCATION_ID"):
        os.environ.pop(variable, None)
    forbid(int(call), errno.EPERM)
    state = "note" if name == "block I/O" else "missing"
    docker = "docker run --security-opt seccomp=unconfined"
    assert (found(name).state, found(name).to_type) == (state, docker)
    os.environ["INVOCATION_ID"] = "1"
    assert str(found(name).to_type).startswith("SystemCallFilter=")
    os.environ["KUBERNETES_SERVICE_HOST"] = "10.0.0.1"
    assert found(name).to_type == "seccompProfile: {type: Unconfined}"


@needs_filters
@pytest.mark.parametrize(
    ("call", "name"),
    [(PIDFD_OPEN, "pidfd"), (MEMFD_CREATE, "memfd"), (IO_URING_SETUP, "block I/O")],
)
def test_a_filter_of_system_calls_is_told_with_what_lifts_it(call: int, name: str) -> None:
    """Docker, systemd and Kubernetes each have another setting for it."""
    alone(_refused, call, name)


def test_threads_that_a_setting_asks_for_are_told_with_the_setting() -> None:
    """No filter is to blame there."""
    row = shell(DOCTOR, FOREBAY_BLOCKIO_ENGINE="threads")["block I/O"]
    assert (row["state"], row["to_type"]) == ("note", "export FOREBAY_BLOCKIO_ENGINE=auto")
    again = shell(f"{row['to_type']}; {DOCTOR}", FOREBAY_BLOCKIO_ENGINE="threads")
    assert again["block I/O"]["value"] != row["value"]


def test_verbs_that_a_setting_asks_for_are_told_where_there_is_no_device() -> None:
    """Else the first tensor server says it, in production."""
    rows = shell(DOCTOR)
    if not str(rows["RDMA verbs"]["value"]).startswith("none: "):
        pytest.skip("there is an RDMA device")
    row = shell(DOCTOR, FOREBAY_TENSOR_FABRIC="verbs")["RDMA verbs"]
    assert (row["state"], row["to_type"]) == ("missing", "export FOREBAY_TENSOR_FABRIC=auto")
    again = shell(f"{row['to_type']}; {DOCTOR}", FOREBAY_TENSOR_FABRIC="verbs")
    assert again["RDMA verbs"] == rows["RDMA verbs"]


def _without_joined_pages() -> None:
    before = found("huge pages of templates")
    assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
    after = found("huge pages of templates")
    assert after.state == "note"
    assert after.to_type
    assert before.state in ("ok", "note")  # an old kernel joins none


def test_a_process_that_gets_no_huge_pages_is_told() -> None:
    """Its forks are slower, by the number of pages."""
    alone(_without_joined_pages)


@needs_root
@pytest.mark.needs("unshare")
def test_shared_memory_that_is_small_grows_by_what_is_told() -> None:
    """Other libraries fail on the 64 MB of a container without a next step."""
    small = "mount -t tmpfs -o size=16m tmpfs /dev/shm"
    row = shell(f"exec unshare --mount bash -c '{small}; {DOCTOR}'")["/dev/shm"]
    assert row["state"] == "note"
    if in_container():
        assert row["to_type"] == "docker run --shm-size=1g"
        return
    larger = f"{small}; {row['to_type']}; {DOCTOR}"
    assert shell(f"exec unshare --mount bash -c '{larger}'")["/dev/shm"]["state"] == "ok"
