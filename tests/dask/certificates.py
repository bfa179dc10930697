"""Certificates with the names of distributed's own.

Theirs are of X.509 version 1; rustls takes version 3. The keys are RSA's as theirs are, since some
tests choose a cipher for those.
"""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

VALID = datetime.timedelta(days=1)
SUBJECT = x509.Name(
    [
        x509.NameAttribute(NameOID.COUNTRY_NAME, "XY"),
        x509.NameAttribute(NameOID.LOCALITY_NAME, "Dask-distributed"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Dask"),
        x509.NameAttribute(NameOID.COMMON_NAME, "localhost"),
    ]
)
AUTHORITY = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test's authority")])


def sign_like_theirs(folder: Path) -> None:
    """Write a CA, a certificate that it has signed, and one that it has not, with their keys."""
    authority = _rsa()
    authority_cert = _certificate(AUTHORITY, authority, AUTHORITY, authority, ca=True)
    (folder / "tls-ca-cert.pem").write_bytes(authority_cert)
    key = _rsa()
    cert = _certificate(SUBJECT, key, AUTHORITY, authority, ca=False)
    (folder / "tls-cert.pem").write_bytes(cert)
    (folder / "tls-key.pem").write_bytes(_pem(key))
    (folder / "tls-key-cert.pem").write_bytes(_pem(key) + cert)
    alone = _rsa()
    unknown = _certificate(SUBJECT, alone, SUBJECT, alone, ca=False)
    (folder / "tls-self-signed-cert.pem").write_bytes(unknown)
    (folder / "tls-self-signed-key.pem").write_bytes(_pem(alone))


def sign_for(folder: Path, *names: str) -> None:
    """Write a CA, and a certificate and key for each name, with that as its common name."""
    authority = ec.generate_private_key(ec.SECP256R1())
    (folder / "tls-ca-cert.pem").write_bytes(
        _certificate(AUTHORITY, authority, AUTHORITY, authority, ca=True)
    )
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        cert = _certificate(subject, key, AUTHORITY, authority, ca=False)
        (folder / f"{name}-cert.pem").write_bytes(cert)
        (folder / f"{name}-key.pem").write_bytes(_pem(key))


def sign_version_1(folder: Path) -> None:
    """Write what `sign_like_theirs` does, as far as `files` names it, of X.509 version 1."""
    for name, subject in (("tls-ca", "an authority"), ("tls", "localhost")):
        _openssl(
            folder,
            *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={subject}", "-keyout", f"{name}-key.pem", "-out", f"{name}.csr"),
        )
    sign = ("x509", "-req", "-days", "1", "-set_serial", "1")
    _openssl(
        folder,
        *(*sign, "-in", "tls-ca.csr", "-signkey", "tls-ca-key.pem", "-out", "tls-ca-cert.pem"),
    )
    _openssl(
        folder,
        *(*sign, "-in", "tls.csr", "-CA", "tls-ca-cert.pem", "-CAkey", "tls-ca-key.pem"),
        *("-out", "tls-cert.pem"),
    )


def _rsa() -> Key:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def files(folder: Path, name: str = "tls") -> dict[str, str]:
    """Arguments of a `Security`: one certificate for all roles."""
    roles = {
        f"tls_{role}_{kind}": str(folder / f"{name}-{kind}.pem")
        for role in ("client", "scheduler", "worker")
        for kind in ("cert", "key")
    }
    return {"tls_ca_file": str(folder / "tls-ca-cert.pem"), **roles}


def _certificate(
    subject: x509.Name,
    key: Key,
    issuer: x509.Name,
    issuer_key: Key,
    *,
    ca: bool,
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID)
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    signed = builder.sign(issuer_key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


def _pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
