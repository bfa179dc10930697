"""A throw-away certificate authority, and a certificate of its for this host."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files.

    Attributes:
        authority: what a client trusts.
        chain: the server's certificate.
        key: its key.
    """

    authority: str
    chain: str
    key: str

    @classmethod
    def make(cls) -> Certificates:
        """Make them in a folder that goes with this process.

        Raises:
            FileNotFoundError: there is no openssl on the PATH.
        """
        openssl = shutil.which("openssl")
        if openssl is None:
            raise FileNotFoundError("no openssl for the certificates: make bench-setup")
        folder = tempfile.mkdtemp(prefix="forebay-bench-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        paths = cls(*(str(Path(folder) / name) for name in ("authority", "chain", "key")))
        authority_key = str(Path(folder) / "authority-key")
        common = (openssl, "req", "-x509", "-days", "2", *KEY)
        _run(
            *(*common, "-subj", "/CN=throw-away", "-keyout", authority_key),
            *("-out", paths.authority),
        )
        _run(
            *(*common, "-subj", f"/CN={HOST}", "-keyout", paths.key, "-out", paths.chain),
            *("-CA", paths.authority, "-CAkey", authority_key),
            *("-addext", f"subjectAltName=IP:{HOST},DNS:localhost"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
        )
        return paths


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"openssl: {done.stderr.strip()}")
