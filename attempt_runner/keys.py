"""Keys that sign and verify: the only file that touches the libraries of the extra [sign].

Two kinds: ECDSA over P-256 with SHA-256, and Ed25519. Bytes in, keys out; nothing here opens a
file. Importing this module without the libraries raises ConfigurationError, so a command
imports it when it is run, not before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from bootstrap.errors import ConfigurationError

try:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_private_key,
        load_pem_public_key,
        load_ssh_private_key,
        load_ssh_public_key,
    )
    from securesystemslib.exceptions import UnverifiedSignatureError
    from securesystemslib.signer import CryptoSigner, Signature, SSlibKey
except ImportError as error:
    raise ConfigurationError(
        "signing",
        expected="the libraries of the extra [sign]",
        found=f"no module {error.name}",
        remedy="pip install 'attempt-runner[sign]'",
    ) from error

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

Kind = Literal["ecdsa-p256", "ed25519"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_SCHEMES: Final[dict[str, Kind]] = {"ecdsa-sha2-nistp256": "ecdsa-p256", "ed25519": "ed25519"}
_SSH_PRIVATE: Final = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_PEM: Final = b"-----BEGIN "
_UNREADABLE: Final = (ValueError, TypeError, UnsupportedAlgorithm)  # TypeError: it is encrypted


class BadSignatureError(Exception):
    """The key did not make this signature of these bytes."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key to verify with: as the signing library holds it, and as the one beneath it does."""

    key: SSlibKey
    material: PublicKeyTypes

    @property
    def keyid(self) -> str:
        """The hint by which others may look the key up. It proves nothing."""
        return self.key.keyid

    @property
    def kind(self) -> Kind:
        """The signature scheme, which the key fixes: no signature chooses one."""
        return _SCHEMES[self.key.scheme]

    @property
    def pem(self) -> bytes:
        """The key as PEM of SubjectPublicKeyInfo, as cosign and openssl read it."""
        return self.material.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    @property
    def spki(self) -> bytes:
        """The key as DER of SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7)."""
        return self.material.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    @property
    def raw(self) -> bytes:
        """The 32 bytes of an Ed25519 key (RFC 8032); for no other kind."""
        return self.material.public_bytes(Encoding.Raw, PublicFormat.Raw)

    def verify(self, signature: bytes, data: bytes) -> None:
        """Return if this key signed the data. Raises BadSignatureError.

        The library compares key ids first: it is given its own, since an id is only a hint.
        """
        try:
            self.key.verify_signature(Signature(self.keyid, signature.hex()), data)
        except UnverifiedSignatureError as error:
            raise BadSignatureError from error


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key. Whoever loads one has made the process undumpable before."""

    signer: CryptoSigner
    public: PublicKey

    @property
    def pem(self) -> bytes:
        """The private key itself, as PEM of PKCS#8, unencrypted."""
        return self.signer.private_bytes

    def sign(self, data: bytes) -> bytes:
        """Return the signature: 64 bytes for Ed25519, DER of ECDSA-Sig-Value (RFC 3279) else."""
        return bytes.fromhex(self.signer.sign(data).signature)


def generate_key(kind: Kind) -> SigningKey:
    """Make a new key from the system's randomness."""
    make = {"ecdsa-p256": CryptoSigner.generate_ecdsa, "ed25519": CryptoSigner.generate_ed25519}
    return parse_private_key(make[kind]().private_bytes, "just made")


def parse_private_key(data: bytes, name: str) -> SigningKey:
    """Read an unencrypted private key in PEM of PKCS#8, or as OpenSSH writes it.

    Raises ConfigurationError for anything else, and for a key of another kind; the message
    tells nothing of the content.
    """
    load = load_ssh_private_key if data.startswith(_SSH_PRIVATE) else load_pem_private_key
    expected = "an unencrypted ECDSA P-256 or Ed25519 private key in PEM"
    try:
        key = load(data, None)
        public = _known(key.public_key())
        return SigningKey(CryptoSigner(key, public.key), public)
    except _UNREADABLE as error:
        raise _refused(name, expected) from error


def parse_public_key(data: bytes, name: str) -> PublicKey:
    """Read a public key in PEM of SubjectPublicKeyInfo, or a line as OpenSSH writes it.

    Raises ConfigurationError for anything else, and for a key of another kind.
    """
    load = load_pem_public_key if data.startswith(_PEM) else load_ssh_public_key
    try:
        return _known(load(data))
    except _UNREADABLE as error:
        raise _refused(name, "an ECDSA P-256 or Ed25519 public key in PEM") from error


def _known(material: PublicKeyTypes) -> PublicKey:
    key = SSlibKey.from_crypto(material)
    if key.scheme not in _SCHEMES:
        raise ValueError("a key of another kind")
    return PublicKey(key, material)


def _refused(name: str, expected: str) -> ConfigurationError:
    return ConfigurationError(
        f"key {name}",
        expected=expected,
        found="another file",  # what a parser says of a private key could quote it
        remedy="make a pair with `attempt-runner keygen`",
    )
