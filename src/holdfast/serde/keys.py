"""Encryption: AES-256-GCM, bound to where the bytes belong. The only file that imports cryptography."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from holdfast.errors import Damaged, Extra, Refused

_NONCE = 12


class NoKey(Refused):
    """Sealed bytes, and the key that opens them is not given."""


class NotSealed(Refused):
    """Bytes that anybody may have put there, though a key was given."""


class Keys:
    """Keys by their ids. New bytes are sealed with the active one; the others still open what they sealed.

    To rotate: add a key, make it active, and drop the old one when nothing needs it (`copy_to` writes everything anew).
    """

    def __init__(self, keys: Mapping[str, bytes], *, active: str | None = None) -> None:
        """`keys`: 32 random bytes each. `active`: the last one where it is not said."""
        if not isinstance(keys, Mapping):
            raise Refused(f"keys are a {type(keys).__name__}", hint="Give a dict of ids and keys.")
        if not keys or any(not isinstance(key, bytes) or len(key) != 32 for key in keys.values()):
            raise Refused("a key is not 32 bytes", hint="Make one with os.urandom(32), and keep it safe.")
        if any(not isinstance(name, str) or not 1 <= _utf8_bytes(name) <= 100 for name in keys):
            raise Refused("the id of a key is not a text of up to 100 bytes", hint="Name keys '2026-01' or so.")
        self.active = list(keys)[-1] if active is None else active
        if self.active not in keys:
            raise Refused(f"there is no key {self.active!r} to be active", hint=f"There are {', '.join(keys)}.")
        self._ciphers = {name: _cipher(key) for name, key in keys.items()}
        self.naming = hashlib.sha256(b"holdfast names\0" + keys[self.active]).digest()
        """Mixed into the names of parts, so that names tell nothing about contents."""

    def seal(self, data: bytes, identity: bytes) -> bytes:
        """Encrypt bytes that belong to one place only."""
        nonce = os.urandom(_NONCE)
        name = self.active.encode()
        sealed: bytes = self._ciphers[self.active].encrypt(nonce, data, name + b"\0" + identity)
        return bytes([len(name)]) + name + nonce + sealed

    def open(self, sealed: memoryview, identity: bytes) -> bytes:
        """Decrypt; Damaged if the bytes were changed or belong elsewhere, Refused if the key is not here."""
        length = sealed[0] if sealed else 0
        name = bytes(sealed[1 : 1 + length])
        if not name or len(name) != length:
            raise Damaged("sealed bytes were cut short", hint="Use another copy.")
        said = name.decode("utf-8", "replace")
        cipher = self._ciphers.get(said)
        if cipher is None:
            raise NoKey(f"this is sealed with key {said!r}, which is not given", hint="Add that key; leave it active.")
        nonce, body = sealed[1 + length : 1 + length + _NONCE], sealed[1 + length + _NONCE :]
        try:
            opened: bytes = cipher.decrypt(bytes(nonce), bytes(body), name + b"\0" + identity)
        except Exception:  # InvalidTag, or a nonce cut short
            raise Damaged("sealed bytes were changed, or moved from another place", hint="Use another copy.") from None
        return opened


def _utf8_bytes(name: str) -> int:
    """How long a text is in UTF-8; none, if UTF-8 cannot say it."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        return 0


def _cipher(key: bytes) -> Any:
    with Extra("crypto"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    return AESGCM(key)
