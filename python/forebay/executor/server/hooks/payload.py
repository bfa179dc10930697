"""What a hook is sent, and its signature (standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any, Final

from forebay._private_file import read_private
from forebay.errors import ConfigError
from forebay.executor.server.rows import rfc3339
from forebay.executor.wire.ids import text_of

SCHEMA: Final = 1
SECRET_BYTES_MAX: Final = 4096
SECRET_BYTES_MIN: Final = 16
"""A shorter one can be guessed."""
_ENCODED: Final = "whsec_"
"""What a secret in base64 begins with."""


def body(hook: str, row: dict[str, Any], server: dict[str, Any]) -> bytes:
    """The JSON of a row of the outbox; the same for each of its tries.

    Args:
        hook: its name.
        row: of the outbox.
        server: who sends it.
    """
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "event": row["event"],
        "hook": hook,
        "at": rfc3339(row["at"]),
        "text": "",
        "server": server,
    }
    detail = json.loads(row["detail"])
    if row["request"] is None:
        told["limit"] = detail
    else:
        told["request"] = {
            "id": text_of(row["request"]),
            "name": row["name"],
            "status": row["event"],
            "attempt": row["attempt"],
            "failure": detail,
        }
    told["text"] = _line(told)
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace")  # a path may have bytes that are no UTF-8


def _line(told: dict[str, Any]) -> str:
    """The event in a line, which chat services show."""
    host = told["server"]["host"]
    if request := told.get("request"):
        failure = request["failure"]
        why = ": ".join(it for it in (failure["cause"], failure["message"]) if it)
        return f"{host}: request {request['name']} {request['id']} is {told['event']}: {why}"
    if limit := told["limit"]:
        return f"{host}: {limit['kind']} is at {limit['value']}, its limit is {limit['limit']}"
    return f"{host}: a test of hook {told['hook']}"


def headers(token: str, at_s: int, sent: bytes, secret: bytes | None) -> dict[str, str]:
    """Headers of a webhook: its id, the time of this try, and the signature if there is a secret.

    Args:
        token: of the row.
        at_s: seconds since 1970.
        sent: the body.
        secret: None: it is not signed.
    """
    told = {"webhook-id": f"msg_{token}", "webhook-timestamp": str(at_s)}
    if secret is not None:
        signed = f"{told['webhook-id']}.{at_s}.".encode() + sent
        digest = hmac.new(secret, signed, hashlib.sha256).digest()
        told["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return told


def read_secret(path: str) -> bytes:
    """The secret of a webhook: text, or `whsec_` and base64, in a file that is this user's alone.

    Raises:
        ConfigError: there is none, others can read it, or it is too short.
    """
    try:
        text = read_private(Path(path), SECRET_BYTES_MAX).strip()
    except FileNotFoundError:
        raise ConfigError(
            f"secret_file {path} does not exist; make it with: "
            f"(umask 077; head -c 32 /dev/urandom | base64 > {path})"
        ) from None
    if text.startswith(_ENCODED.encode()):
        try:
            text = base64.b64decode(text[len(_ENCODED) :], validate=True)
        except binascii.Error:
            raise ConfigError(f"secret_file {path}: what follows whsec_ is no base64") from None
    if len(text) < SECRET_BYTES_MIN:
        raise ConfigError(
            f"secret_file {path} has {len(text)} bytes; a secret has {SECRET_BYTES_MIN} or more"
        )
    return text
