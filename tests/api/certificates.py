"""An authority of the test's own, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Signed:
    """A certificate with its key, each in a PEM file."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates, all for 127.0.0.1."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self._write("ca.pem", self._certificate(self._name, self._key, authority=True))
        self.cert = directory / "ca.pem"

    def sign(self, name: str) -> Signed:
        """Sign a certificate of a name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._write(f"{name}.pem", self._certificate(subject, key, authority=False))
        text = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self._write(f"{name}.key", text)
        return Signed(self._directory / f"{name}.pem", self._directory / f"{name}.key")

    def client(self, signed: Signed | None = None) -> ssl.SSLContext:
        """Return the TLS of a client that trusts this authority, perhaps with a certificate of its own."""
        context = ssl.create_default_context(cafile=str(self.cert))
        if signed is not None:
            context.load_cert_chain(signed.cert, signed.key)
        return context

    def _certificate(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(address, critical=False)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM)

    def _write(self, name: str, content: bytes) -> None:
        (self._directory / name).write_bytes(content)
