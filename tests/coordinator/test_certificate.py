"""The coordinator's TLS."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moregpu.coordinator.certificate import brought_certificate, own_certificate, server_context
from moregpu.errors import InvalidRequest, StateRefused

PASSWORD = b"0123456789abcdef"


def test_it_names_what_is_advertised_and_loopback_and_never_ends(tmp_path: Path) -> None:
    made = own_certificate(tmp_path / "s", PASSWORD, ["pool.example", "192.0.2.7", "127.0.0.1"])
    leaf = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"pool.example", "localhost"}
    assert set(names.get_values_for_type(x509.IPAddress)) == {
        ipaddress.ip_address(address) for address in ("192.0.2.7", "127.0.0.1", "::1")
    }
    assert leaf.not_valid_after_utc.year == 9999
    assert leaf.not_valid_before_utc < datetime.datetime.now(datetime.UTC)
    key = leaf.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    assert made.pin == hashlib.sha256(leaf.public_bytes(serialization.Encoding.DER)).digest()


def test_it_is_made_once_whatever_is_advertised_later_so_that_pins_hold(tmp_path: Path) -> None:
    first = own_certificate(tmp_path / "s", PASSWORD, ["a.example"])
    assert own_certificate(tmp_path / "s", PASSWORD, ["b.example"]).pin == first.pin


def test_its_key_lies_encrypted_and_opens_with_nothing_else(tmp_path: Path) -> None:
    made = own_certificate(tmp_path / "s", PASSWORD, [])
    assert b"ENCRYPTED" in made.key.read_bytes()
    with pytest.raises(StateRefused):
        own_certificate(tmp_path / "s", b"another password", [])


def test_nothing_older_than_tls_1_3(tmp_path: Path) -> None:
    context = server_context(own_certificate(tmp_path / "s", PASSWORD, []))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_loosened_key_is_refused(tmp_path: Path) -> None:
    made = own_certificate(tmp_path / "s", PASSWORD, [])
    made.key.chmod(0o644)
    with pytest.raises(StateRefused, match="chmod 600"):
        own_certificate(tmp_path / "s", PASSWORD, [])


def test_a_brought_certificate_has_no_pin_since_the_system_store_verifies(tmp_path: Path) -> None:
    own = own_certificate(tmp_path / "s", PASSWORD, ["pool.example"])
    key = serialization.load_pem_private_key(own.key.read_bytes(), PASSWORD)
    plain = tmp_path / "plain.pem"
    plain.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    brought = brought_certificate(own.certificate, plain)
    assert (brought.pin, brought.leaf_sha256) == (b"", own.leaf_sha256)


def test_an_unusable_certificate_is_said_before_a_port_opens(tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    with pytest.raises(InvalidRequest, match="PEM"):
        brought_certificate(nonsense, nonsense)
    with pytest.raises(InvalidRequest, match="not a file"):
        brought_certificate(tmp_path / "none.pem", nonsense)
    one = own_certificate(tmp_path / "1", PASSWORD, [])
    other = own_certificate(tmp_path / "2", PASSWORD, [])
    with pytest.raises(InvalidRequest):
        brought_certificate(one.certificate, other.key)
