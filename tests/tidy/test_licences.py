"""What is compiled into the extension may be given away under Apache-2.0."""

from __future__ import annotations

import re

import pytest

from tests.tidy.tree import cargo_metadata, complain

ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "Unicode-3.0",
        "Unlicense",
        "Zlib",
    }
)


def acceptable(expression: str) -> bool:
    """Whether an SPDX expression can be satisfied with allowed licences alone."""
    expression = expression.replace("/", " OR ")
    while "(" in expression:
        expression = re.sub(
            r"\(([^()]*)\)",
            lambda group: "MIT" if acceptable(group.group(1)) else "refused",
            expression,
        )
    return any(
        all(part.strip() in ALLOWED for part in choice.split(" AND "))
        for choice in expression.split(" OR ")
    )


def test_every_dependency_has_an_acceptable_licence():
    """A user may ship what is built from this."""
    used = {node["id"] for node in cargo_metadata()["resolve"]["nodes"]}
    refused = [
        f"{package['name']} {package['version']}: {package['license']}"
        for package in cargo_metadata()["packages"]
        if package["id"] in used and not acceptable(package["license"] or "none")
    ]
    complain(refused, next_step="Use another crate, or argue for the licence in ALLOWED.")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT OR GPL-3.0", True),
        ("MIT/Apache-2.0", True),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", True),
        ("MIT AND GPL-3.0", False),
        ("(MIT AND GPL-3.0) OR AGPL-3.0", False),
    ],
)
def test_an_expression_is_read_as_spdx_means_it(expression: str, *, expected: bool):
    """One alternative that is allowed as a whole is enough."""
    assert acceptable(expression) is expected
