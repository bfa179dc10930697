"""A throw-away CA.

By `cryptography` rather than the openssl command: dates and names are arguments there, and the
command of OpenSSL 3.0 cannot make a certificate that has expired.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
HOST = "localhost"

_SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
"""What a CA's key is for."""


@dataclass(frozen=True)
class Signed:
    """The files of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """A CA whose certificate lies in `ca`, beside those that it signs."""

    def __init__(self, folder: Path, name: str = "forebay tests") -> None:
        self.folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = folder / "ca.pem"
        made = (
            self._builder(self._name, self._key, 0)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS, critical=True)
        )
        folder.mkdir(parents=True, exist_ok=True)
        self.ca.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))

    def sign(self, name: str, host: str = HOST, *, ended_days_ago: int = 0) -> Signed:
        """Sign a certificate for `host`, into `name`.pem and `name`.key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Forebay"),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        names: list[x509.GeneralName] = [x509.DNSName(host)]
        if host == HOST:
            names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        made = self._builder(subject, key, ended_days_ago).add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
        signed = Signed(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        signed.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        signed.cert.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        return signed

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, ended_days_ago: int
    ) -> x509.CertificateBuilder:
        end = datetime.datetime.now(datetime.UTC) + (
            -ended_days_ago * DAY if ended_days_ago else DAY
        )
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - 30 * DAY)
            .not_valid_after(end)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(  # Python 3.13 wants it (RFC 5280, 4.2.1.1)
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
