"""Names that the pool uses in a class: what they may be is checked when the class is defined."""

from __future__ import annotations

import re
from typing import Any

import pytest

import forebay
from tests.pool.services import Notes


def define(**body: Any) -> type[forebay.Service]:
    return type("Wrapped", (forebay.Service,), body)


def test_a_reset_with_arguments_is_refused_where_the_class_is_defined() -> None:
    """Whoever wraps an environment gets one clear error, not a service replaced each lease."""
    with pytest.raises(forebay.ConfigError) as caught:
        define(reset=lambda self, seed, *, options: None)
    assert re.search(r"Wrapped defines 'reset'.*runs when a lease ends", str(caught.value))
    assert "give seed, options a default" in str(caught.value)


@pytest.mark.parametrize("name", ["close", "reseed"])
def test_other_hooks_take_no_arguments_either(name: str) -> None:
    """A hook that fails each time it is called leaks what it was to give back."""
    with pytest.raises(forebay.ConfigError, match=f"{name!r}.*give what a default"):
        define(**{name: lambda self, what: None})


def test_a_hook_whose_arguments_have_defaults_is_taken() -> None:
    """An environment's own `reset(self, seed=None)` serves as it is."""
    define(reset=lambda self, seed=None, *, options=None: None, close=lambda self: None)


@pytest.mark.parametrize(
    "name", ["resets", "max_leases", "stateful", "canary_ignores", "limits", "chdir"]
)
def test_a_method_under_the_name_of_a_setting_is_refused(name: str) -> None:
    """It would end in an error about 'function' objects somewhere inside of the pool."""
    with pytest.raises(forebay.ConfigError, match=f"Wrapped defines {name!r}.*it is a setting"):
        define(**{name: lambda self: None})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("resets", "never"),
        ("max_leases", 0),
        ("stateful", "yes"),
        ("limits", 5),
        ("canary_ignores", "a"),
    ],
)
def test_a_setting_of_another_type_is_refused(name: str, value: Any) -> None:
    """`canary_ignores = "cache"` would name five attributes of one letter."""
    with pytest.raises(forebay.ConfigError, match=re.escape(repr(value))):
        define(**{name: value})


@pytest.mark.parametrize("name", ["lease", "spec"])
def test_names_that_no_service_can_use_are_refused(name: str) -> None:
    """Calling them would say "'Lease' object is not callable"."""
    with pytest.raises(forebay.ConfigError, match=f"defines {name!r}"):
        define(**{name: lambda self: None})


def test_settings_as_they_are_meant_are_taken() -> None:
    """The check refuses nothing that worked."""
    define(
        resets=forebay.Reset.NEVER,
        max_leases=3,
        stateful=True,
        canary_ignores={"cache"},
        limits=forebay.Limits(open_files=64),
        chdir=True,
    )


def test_calling_reset_on_a_lease_says_whose_it_is(pool: forebay.ServicePool) -> None:
    """A holder who wants a clean service in the middle of a lease learns what to do."""
    with (
        pool.acquire(Notes) as notes,
        pytest.raises(AttributeError, match="'reset' runs when the lease ends"),
    ):
        notes.reset()
