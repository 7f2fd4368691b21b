"""Certificates for tests of TLS on loopback."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One for 127.0.0.1, and its key, as files."""

    pem: Path
    key: Path
    subject: x509.Name
    private_key: ec.EllipticCurvePrivateKey


def make_certificate(folder: Path, name: str, issuer: Certificate | None = None) -> Certificate:
    """NAME.pem and NAME.key: signed by the issuer; without one an authority of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(issuer.private_key if issuer else key, hashes.SHA256())
    )
    made = Certificate(pem=folder / f"{name}.pem", key=folder / f"{name}.key", subject=subject, private_key=key)
    made.pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made


def make_certificates(folder: Path) -> Path:
    """ca.pem, server.pem/.key, client.pem/.key, all of a new CA."""
    authority = make_certificate(folder, "ca")
    make_certificate(folder, "server", authority)
    make_certificate(folder, "client", authority)
    return folder
