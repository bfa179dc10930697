"""An application with a request that takes secrets."""

from __future__ import annotations

import hashlib

import forebay

app = forebay.App("secrets")


@app.request()
def login(user: str, password: forebay.Secret[str], pin: forebay.Secret[int] | None = None) -> str:
    """Show that the secrets have come, without showing them."""
    return hashlib.sha256(f"{user} {password} {pin}".encode()).hexdigest()
