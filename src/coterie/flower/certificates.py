"""TLS certificates of SuperLinks and keys of SuperNodes, for a deployment beyond one machine."""

import datetime
import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coterie.core.files import write_atomically

DAYS = 365


def write_certificates(folder: Path, hosts: Mapping[str, str]) -> None:
    """Write for every place a certificate of its host and the key, and the authority (ca.crt) last.

    The authority's own key is thrown away: nobody can sign another certificate with it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ca_key = ec.generate_private_key(ec.SECP384R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coterie deployment")])
    ca = _builder(ca_name, ca_name, ca_key.public_key())
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    (folder / "ca.crt").unlink(missing_ok=True)
    for place, host in hosts.items():
        key = ec.generate_private_key(ec.SECP384R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, place[:64])])
        sans = x509.SubjectAlternativeName([_san(h) for h in dict.fromkeys([host, "127.0.0.1"])])
        made = _builder(name, ca_name, key.public_key()).add_extension(sans, critical=False)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        (folder / f"{place}.pem").write_bytes(_pem(made.sign(ca_key, hashes.SHA384())))
        _write_secret(folder / f"{place}.key", key, serialization.PrivateFormat.PKCS8)
    write_atomically(folder / "ca.crt", _pem(ca.sign(ca_key, hashes.SHA384())))


def write_node_keys(folder: Path, names: Sequence[str]) -> None:
    """Write for every SuperNode a private key, as OpenSSH has it, and then its public one.

    A node whose public key is there keeps its keys.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (folder / f"{name}.pub").exists():
            continue
        key = ec.generate_private_key(ec.SECP384R1())
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        _write_secret(folder / name, key, serialization.PrivateFormat.OpenSSH)
        write_atomically(folder / f"{name}.pub", public + b"\n")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )


def _san(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    written: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return written


def _write_secret(
    path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat
) -> None:
    """Write a key to a file that only its owner can read, from its first byte on."""
    content = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    write_atomically(path, content, mode=0o600)
