"""Whose file of settings is believed, and where the search for one ends."""

from __future__ import annotations

import grp
import logging
import os
import pwd
from pathlib import Path

import pytest

from forebay import _configuration_place
from forebay.configuration import Configuration, find_configuration
from tests.other_user import NOBODY, as_nobody, needs_root

SETTINGS = "[executor]\ndrain_grace = 7\n"


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process warns of a file once."""
    monkeypatch.setattr(_configuration_place, "_told", set())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory of this user's, below one that has a file of settings."""
    project = tmp_path / "shared" / "project"
    project.mkdir(parents=True)
    (project.parent / "forebay.toml").write_text(SETTINGS)
    return project


def found_from(start: Path, **environment: str) -> Configuration:
    return find_configuration(start=start, environment={"XDG_CONFIG_HOME": "/none", **environment})


def is_refused(project: Path, caplog: pytest.LogCaptureFixture, *complaints: str) -> bool:
    """Whether the file above is not used, and a warning says of which file and why."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "forebay"):
        found = found_from(project)
    told = " ".join(record.getMessage() for record in caplog.records)
    named = f"settings in {project.parent / 'forebay.toml'} are not used"
    assert not found.files or named not in told
    return not found.files and named in told and all(one in told for one in complaints)


@needs_root
def test_a_file_of_another_user_is_not_used(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It names code that runs: `/tmp/forebay.toml` of anybody would run as whoever works below."""
    os.chown(project.parent / "forebay.toml", NOBODY, NOBODY)
    assert is_refused(project, caplog, f"belongs to user {NOBODY}", "FOREBAY_CONFIG=")


@needs_root
def test_a_directory_of_another_user_is_not_looked_into(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its owner may replace the file at any time."""
    os.chown(project.parent, NOBODY, NOBODY)
    assert is_refused(project, caplog, "its directory belongs to user")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_a_directory_that_others_may_write_is_no_place_for_settings(
    project: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    """Whoever comes first makes the file there; a sticky directory such as /tmp does not help."""
    project.parent.chmod(mode)
    assert is_refused(project, caplog, "its directory may be written by every user")


def test_a_file_that_others_may_write_is_not_used(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is this user's by name alone."""
    (project.parent / "forebay.toml").chmod(0o666)
    assert is_refused(project, caplog, "it may be written by every user", "chmod go-w")


@needs_root
def test_a_group_counts_unless_it_is_the_users_own(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A umask of 002, with a group for each user, is the default of several distributions."""
    project.parent.chmod(0o775)
    own = grp.getgrnam(pwd.getpwuid(os.geteuid()).pw_name).gr_gid
    os.chown(project.parent, -1, own)
    assert found_from(project).executor.drain_grace == 7.0
    os.chown(project.parent, -1, NOBODY)
    assert is_refused(project, caplog, f"its directory may be written by group {NOBODY}")


def test_a_pyproject_is_held_to_the_same(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The table of a pyproject.toml names code as well."""
    (project.parent / "forebay.toml").unlink()
    (project.parent / "pyproject.toml").write_text("[tool.forebay.executor]\ndrain_grace = 7\n")
    assert found_from(project).executor.drain_grace == 7.0
    project.parent.chmod(0o1777)
    assert not found_from(project).files
    assert "pyproject.toml are not used" in caplog.text


def test_the_search_ends_at_a_refused_file(project: Path) -> None:
    """Limits of a file further up would be used without those of the one that was meant."""
    (project.parent.parent / "forebay.toml").write_text(SETTINGS)
    project.parent.chmod(0o1777)
    assert not found_from(project).files


def test_a_refused_file_is_told_once(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every client and server of a program looks for it."""
    project.parent.chmod(0o1777)
    for _ in range(3):
        found_from(project)
    assert len(caplog.records) == 1


def test_a_named_file_is_used_whoever_wrote_it(project: Path) -> None:
    """Naming it is the consent."""
    project.parent.chmod(0o1777)
    named = str(project.parent / "forebay.toml")
    assert found_from(project, FOREBAY_CONFIG=named).executor.drain_grace == 7.0


@needs_root
def test_a_folder_that_the_user_cannot_look_into_ends_the_search(tmp_path: Path) -> None:
    """A checkout below another user's home, as a service account sees it, has no settings."""
    closed = tmp_path / "closed"
    work = closed / "work"
    work.mkdir(parents=True)
    (closed / "forebay.toml").write_text(SETTINGS)
    work.chmod(0o755)
    closed.chmod(0o700)
    assert found_from(work).files == (closed / "forebay.toml",)
    assert as_nobody(lambda: found_from(work).files) == "()"


def test_a_removed_directory_has_no_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long-lived shell stands in directories that a later checkout removed."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_configuration(environment={"XDG_CONFIG_HOME": "/none"}).files == ()
