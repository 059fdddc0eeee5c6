"""Signatures of executables: Ed25519 (RFC 8032), by the package `cryptography`, which is imported when something is
signed or checked.

A ``.lnx`` file is code. Who loads files that others could have written accepts only those that a key of theirs has
signed: ``lightnet compile --sign KEY.pem``, ``lightnet run --trust KEY.pub``, `load_executable(path, trust=...)`. Keys
are PEM files, as ``openssl genpkey -algorithm ed25519`` and ``openssl pkey -pubout`` write them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime.files import reason_of
from lightnet.runtime.lnx import SIGNATURE_MAGIC, SIGNED_PREFIX, Head

#: Who is trusted: a file with public keys, a folder of such files (``*.pem``, ``*.pub``), or several of both.
Trust = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
#: No file with keys is larger.
_MAX_KEYS = 1 << 20
_END = b"-----END PUBLIC KEY-----"


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise LightNetError(
            "signing executables, and checking who signed them, needs the Python package cryptography"
        ) from None
    return serialization, ed25519


class Signer:
    """A private key of a PEM file. Raises LightNetError where the file holds none, or one of another kind, or is
    encrypted."""

    def __init__(self, path: str | os.PathLike[str]):
        serialization, ed25519 = _cryptography()
        where = SourceLoc(os.fsdecode(path))
        try:
            key = serialization.load_pem_private_key(_read(path), None)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise LightNetError(f"this is no private key in PEM: {error!s:.200}", where) from None
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise LightNetError("the key is of another kind: executables are signed with Ed25519 keys "
                                "(openssl genpkey -algorithm ed25519)", where)  # fmt: skip
        self._key = key
        self._public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)

    def trailer(self, head: bytes) -> bytes:
        """The bytes behind the sections of a file whose header, magic and checksum included, is `head`."""
        return SIGNATURE_MAGIC + self._public + self._key.sign(SIGNED_PREFIX + head)


def check_signature(head: Head, trust: Trust, where: SourceLoc) -> None:
    """Raise LightNetError unless the header is signed by one of the trusted keys."""
    keys = trusted_keys(trust)
    if head.signature is None:
        raise LightNetError("the executable is not signed, and only signed ones are accepted here", where, "lnx.trust")
    public, signature = head.signature
    if public not in keys:
        raise LightNetError(
            f"the executable is signed by a key that is not trusted ({public.hex()[:16]}...)", where, "lnx.trust"
        )
    from cryptography.exceptions import InvalidSignature

    try:
        keys[public].verify(signature, SIGNED_PREFIX + head.raw)
    except InvalidSignature:
        raise LightNetError("the executable was changed after it was signed", where, "lnx.trust") from None


def trusted_keys(trust: Trust) -> dict[bytes, Any]:
    """The keys that are trusted, by their 32 bytes. Raises LightNetError where there are none."""
    serialization, ed25519 = _cryptography()
    found: dict[bytes, Any] = {}
    paths = [trust] if isinstance(trust, str | bytes | os.PathLike) else list(trust)
    for path in (file for given in paths for file in _files(Path(os.fsdecode(given)))):
        for text in _read(path).split(_END)[:-1]:
            try:
                key = serialization.load_pem_public_key(text[max(text.find(b"-----BEGIN"), 0) :] + _END + b"\n")
            except (ValueError, TypeError, ArithmeticError) as error:
                raise LightNetError(f"this is no public key in PEM: {error!s:.200}", SourceLoc(str(path))) from None
            if isinstance(key, ed25519.Ed25519PublicKey):
                found[key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)] = key
    if not found:
        shown = ", ".join(os.fsdecode(p) for p in paths) or "nothing"
        raise LightNetError(
            f"there is no public Ed25519 key to trust in {shown:.400} (openssl pkey -in KEY.pem -pubout)"
        )
    return found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(p for p in path.iterdir() if p.suffix in (".pem", ".pub") and p.is_file())


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_KEYS + 1)
    except (OSError, ValueError) as error:
        raise LightNetError(f"cannot open: {reason_of(error)}", SourceLoc(os.fsdecode(path))) from None
    if len(data) > _MAX_KEYS:
        raise LightNetError(f"a file of keys has at most {_MAX_KEYS} bytes", SourceLoc(os.fsdecode(path)))
    return data
