"""Certificates with the names of distributed's own.

Theirs are of X.509 version 1; rustls takes version 3.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

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
    authority = ec.generate_private_key(ec.SECP256R1())
    authority_cert = _certificate(AUTHORITY, authority, AUTHORITY, authority, ca=True)
    (folder / "tls-ca-cert.pem").write_bytes(authority_cert)
    key = ec.generate_private_key(ec.SECP256R1())
    cert = _certificate(SUBJECT, key, AUTHORITY, authority, ca=False)
    (folder / "tls-cert.pem").write_bytes(cert)
    (folder / "tls-key.pem").write_bytes(_pem(key))
    (folder / "tls-key-cert.pem").write_bytes(_pem(key) + cert)
    alone = ec.generate_private_key(ec.SECP256R1())
    unknown = _certificate(SUBJECT, alone, SUBJECT, alone, ca=False)
    (folder / "tls-self-signed-cert.pem").write_bytes(unknown)
    (folder / "tls-self-signed-key.pem").write_bytes(_pem(alone))


def _certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
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


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
