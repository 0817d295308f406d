"""Certificates of a test's own, which nobody else knows."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Signer = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def certificate(
    folder: Path, name: str = "localhost", days: int = 3650, signer: Signer | None = None
) -> tuple[Path, Path, bytes]:
    """A leaf for `name`, signed by itself or a `signer`: its file, its key's, and its DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    leaf = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer[0].subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=20))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(signer[1] if signer else key, hashes.SHA256())
    )
    public_path, private_path = folder / f"{name}.pem", folder / f"{name}.key"
    public_path.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    private_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return public_path, private_path, leaf.public_bytes(serialization.Encoding.DER)
