"""The crates' dependencies point down, as ARCHITECTURE.md draws them, and only one knows Python."""

from __future__ import annotations

import tomllib
from typing import Any

from tests.tidy.tree import ROOT, cargo_metadata, complain

# Who may use whom; what is below an allowed crate is allowed too.
ARROWS: dict[str, set[str]] = {
    "base": set(),
    "memory": {"base"},
    "transport": {"memory", "base"},
    "blockio": {"memory", "base"},
    "tensor": {"transport", "blockio"},
    "verbs": {"tensor"},
    "pool": {"base"},
    "executor": {"transport", "pool"},
}
PREFIX = "forebay-"


def below(crate: str) -> set[str]:
    """Every crate that `crate` may use, directly or through another."""
    direct = ARROWS[crate]
    return direct.union(*(below(lower) for lower in direct))


def own_crates() -> dict[str, dict[str, Any]]:
    """The workspace's packages by their word."""
    members = set(cargo_metadata()["workspace_members"])
    packages = [package for package in cargo_metadata()["packages"] if package["id"] in members]
    return {package["name"].removeprefix(PREFIX): package for package in packages}


def test_dependencies_between_crates_point_down():
    """A system can be used, tested and read without what lies above it."""
    upward = []
    for crate, package in own_crates().items():
        if crate == "python":
            continue  # on top of all
        used = {
            dependency["name"].removeprefix(PREFIX)
            for dependency in package["dependencies"]
            if dependency["name"].startswith(PREFIX)
        }
        upward += [f"crates/{crate} uses {other}" for other in used - below(crate)]
    complain(upward, next_step="Move the noun that both need into the lower crate.")


def test_only_the_binding_knows_python():
    """The core is usable and tested from Rust alone, without libpython."""
    resolve = {node["id"]: node["dependencies"] for node in cargo_metadata()["resolve"]["nodes"]}
    names = {package["id"]: package["name"] for package in cargo_metadata()["packages"]}
    knowing = []
    for crate, package in own_crates().items():
        reached: set[str] = set()
        waiting = [package["id"]]
        while waiting:
            identity = waiting.pop()
            if identity not in reached:
                reached.add(identity)
                waiting += resolve[identity]
        if crate != "python" and any(names[identity].startswith("pyo3") for identity in reached):
            knowing.append(f"crates/{crate} has pyo3 in its tree")
    complain(knowing, next_step="Leave Python to crates/python.")


def test_every_crate_inherits_the_workspace_lints():
    """No crate is held to less than the others."""
    manifests = sorted((ROOT / "crates").glob("*/Cargo.toml"))
    without = [
        str(path.relative_to(ROOT))
        for path in manifests
        if tomllib.loads(path.read_text()).get("lints", {}).get("workspace") is not True
    ]
    complain(without, next_step="Add [lints] workspace = true.")


def test_no_dependency_comes_from_git():
    """A release can be built again from the registry."""
    sources = {package["name"]: package["source"] for package in cargo_metadata()["packages"]}
    from_git = [
        f"{crate}: {source}"
        for crate, source in sources.items()
        if (source or "").startswith("git")
    ]
    complain(from_git, next_step="Depend on a released version.")
