"""What deploy/ holds fits the server: units, image and manifest."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from forebay.cli.command_line import parser
from forebay.cli.exit_codes import USAGE, code_of_signal
from forebay.cli.service.systemd import END_S, HTTP
from forebay.config import ExecutorConfig, parse_seconds
from forebay.gateway.routes.every import ROUTES
from tests.cli.service.dockerfile import ROOT, stages

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "forebay.service"
SOCKET = DEPLOY / "forebay.socket"
MANIFEST = DEPLOY / "kubernetes.yaml"
SCHEMA = Path(__file__).with_name("kubernetes.schema.json")
SMALL_NODE = ROOT / "docs" / "guides" / "small_node.md"

DRAIN_S = ExecutorConfig().drain_grace


def settings(unit: Path) -> dict[str, str]:
    """The settings of a unit; each of ours is there once."""
    pairs = re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE)
    assert len({name for name, _ in pairs}) == len(pairs)
    return dict(pairs)


@pytest.mark.needs("systemd-analyze")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    """A typo in a setting is ignored with a warning that nobody reads."""
    program = tmp_path / "forebay"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in (UNIT, SOCKET):
        text = unit.read_text().replace("/opt/forebay/bin/forebay", str(program))
        (tmp_path / unit.name).write_text(text)
    units = [str(tmp_path / unit.name) for unit in (UNIT, SOCKET)]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "forebay" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_the_unit_fits_the_server() -> None:
    """Its times are above the server's own, and its codes are the server's."""
    unit = settings(UNIT)
    assert parse_seconds(float(unit["TimeoutStopSec"])) >= DRAIN_S + END_S
    codes = {int(code) for code in unit["SuccessExitStatus"].split()}
    assert codes == {code_of_signal(signal.SIGTERM), code_of_signal(signal.SIGINT)}
    assert int(unit["RestartPreventExitStatus"]) == USAGE
    program, *arguments = unit["ExecStart"].split()
    assert Path(program).name == "forebay"
    assert parser("serve").parse_args(arguments).http == f"fd://{HTTP}"
    assert settings(SOCKET)["FileDescriptorName"] == HTTP


def test_the_main_process_alone_speaks_for_the_unit() -> None:
    """A worker runs foreign code as the same user, and finds the socket of systemd by its path."""
    assert settings(UNIT)["NotifyAccess"] == "main"


def test_the_image_is_made_of_what_is_there() -> None:
    """Every path that it copies exists, and every crate of the workspace is copied."""
    build, final = stages()
    copied = [word for one in build.all("COPY") for word in one.text.split()[:-1]]
    assert all((ROOT / word).exists() for word in copied)
    sent = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in sent if line.startswith("!")} == set(copied)
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    assert all(member.split("/")[0] in copied for member in workspace["members"])
    rust = re.search(r"rust:([\d.]+)-", build.base)
    assert rust is not None
    assert rust[1] == workspace["package"]["rust-version"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = re.search(r"python:([\d.]+)-slim", final.base)
    assert python is not None
    assert project["requires-python"] == f">={python[1]}"
    extras = re.findall(r"\[(\w+)\]\"", " ".join(one.text for one in final.all("RUN")))
    assert extras
    assert set(extras) <= set(project["optional-dependencies"])


def test_the_image_runs_without_root_or_a_shell() -> None:
    """Its commands are ours, in the form that is process 1 itself."""
    _, final = stages()
    user = final.one("USER").text
    assert all(number.isdigit() and number != "0" for number in user.split(":"))
    state = final.one("VOLUME").text
    assert final.environment["FOREBAY_STATE_DIR"] == state
    assert {final.environment[name].split("/")[1] for name in ("XDG_RUNTIME_DIR", "TMPDIR")} == {
        state.strip("/")
    }
    health = final.one("HEALTHCHECK").exec_form
    start = [*final.one("ENTRYPOINT").exec_form, *final.one("CMD").exec_form]
    for program, command, *rest in (health, start):
        assert program == "forebay"
        parser(command).parse_args([command, *rest])


def manifests() -> Iterator[Any]:
    """The objects of the manifest."""
    return yaml.safe_load_all(MANIFEST.read_text())


def stateful_set() -> Any:
    (found,) = (one for one in manifests() if one["kind"] == "StatefulSet")
    return found["spec"]


def test_the_manifest_is_valid() -> None:
    """Of the fields that it uses; each object of the schema is closed, so a typo is found."""
    schema = json.loads(SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    kinds = []
    for one in manifests():
        errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(one)]
        assert not errors
        kinds.append(one["kind"])
    assert kinds == ["Service", "StatefulSet"]


def test_a_typo_in_a_manifest_is_found() -> None:
    """The schema is not one that accepts everything."""
    validator = Draft202012Validator(json.loads(SCHEMA.read_text()))
    for at, wrong in (
        (("spec", "replicas"), "1"),
        (("spec", "template", "spec", "containers", 0, "readynessProbe"), {}),
        (("spec", "template", "spec", "securityContext", "runAsNonRoot"), "yes"),
        (("spec", "template", "spec", "containers", 0, "resources", "requests", "memory"), "205MB"),
    ):
        (_, broken) = manifests()
        target: Any = broken
        for step in at[:-1]:
            target = target[step]
        target[at[-1]] = wrong
        assert not validator.is_valid(broken), at


def test_the_manifest_fits_the_server_and_the_image() -> None:
    """Probes that exist, times above the drain, and memory as it was measured."""
    _, image = stages()
    pod = stateful_set()["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] > DRAIN_S
    open_paths = {route.path for route in ROUTES if route.role is None}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in open_paths
    (mount,) = container["volumeMounts"]
    assert mount["mountPath"] == image.one("VOLUME").text
    assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == (
        image.one("USER").text
    )
    _, command, *_ = image.one("ENTRYPOINT").exec_form
    parser(command).parse_args([command, *container["args"]])
    assert stateful_set()["replicas"] == 1
    measured = re.search(r"^\| with it \|.*\| ([\d.]+) \|$", SMALL_NODE.read_text(), re.MULTILINE)
    assert measured is not None
    asked = float(container["resources"]["requests"]["memory"].removesuffix("M"))
    assert float(measured[1]) <= asked <= float(measured[1]) + 10


def test_the_files_name_no_python_of_this_machine() -> None:
    """They are for others."""
    for path in DEPLOY.iterdir():
        if path.is_file():
            assert sys.prefix not in path.read_text()
