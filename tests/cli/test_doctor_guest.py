"""What `forebay doctor` says of an RDMA device, and of limits that root raises.

In the guest of `make test-verbs`, where there is one, and root may do everything.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from forebay import _core
from forebay.cli.doctor.devices import rdma_findings
from forebay.cli.doctor.finding import Finding
from tests.blockio.alone import ROOT, alone

DEVICES = _core.rdma_devices()

pytestmark = pytest.mark.skipif(
    isinstance(DEVICES, str), reason=f"{DEVICES}; make test-verbs has one"
)

NOBODY = 65534


def found() -> Finding:
    """The line of the one device."""
    (finding,) = rdma_findings()
    return finding


def test_a_device_is_shown_and_whether_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wonders which way tensors go sees the device, its port and its address."""
    assert found().state == "ok"
    assert found().value.startswith(f"device {DEVICES[0][0]}, port 1, address ")
    monkeypatch.setenv("FOREBAY_TENSOR_FABRIC", "stream")
    assert found().value.endswith("not used, since tensor.fabric is stream")


def _as_nobody() -> None:
    found()  # imports what that user may not read
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))
    os.setgroups([])
    os.setresuid(NOBODY, NOBODY, NOBODY)
    assert found().state == "note"
    assert "1.0 MB may be pinned" in found().value
    os.environ["INVOCATION_ID"] = "1"
    assert found().to_type == "LimitMEMLOCK=infinity"


def test_a_user_learns_what_may_not_be_pinned() -> None:
    """An arena that is not registered goes over TCP, which is noticed by its speed alone."""
    alone(_as_nobody)


LIMITED = """
ulimit -n 512
TYPED
exec "$0" -c 'from forebay.cli.doctor import machine
(found,) = (each for each in machine.limit_findings() if each.name == "open files")
print(found.state, found.to_type, sep=";")'
"""


def limited(typed: str) -> list[str]:
    """State and next step of the limit on open files, in a shell that was given few."""
    command = ["bash", "-c", LIMITED.replace("TYPED", typed), sys.executable]
    done = subprocess.run(command, cwd=ROOT / "python", capture_output=True, text=True, check=True)
    return done.stdout.strip().split(";")


def test_a_hard_limit_is_raised_by_what_is_told() -> None:
    """`ulimit` refuses there, and root may raise it."""
    state, to_type = limited("")
    assert (state, to_type) == ("note", "prlimit --pid $$ --nofile=1024")
    assert limited(to_type) == ["ok", "None"]


def test_an_interface_that_is_down_is_brought_up_by_what_is_told() -> None:
    """A device without an active port is not usable, and its interface has another name."""
    interface = Path(f"/sys/class/infiniband/{DEVICES[0][0]}/parent").read_text().strip()
    subprocess.run(["ip", "link", "set", "dev", interface, "down"], check=True)
    try:
        assert found().state == "note"
        assert "none: " in found().value
        assert found().to_type == f"ip link set dev {interface} up"
        subprocess.run(["sh", "-c", str(found().to_type)], check=True)
        assert found().state == "ok"
    finally:
        subprocess.run(["ip", "link", "set", "dev", interface, "up"], check=True)
