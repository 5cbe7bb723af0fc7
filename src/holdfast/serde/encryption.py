"""Encryption with AES-256-GCM, bound to where the bytes belong. The only file that imports cryptography."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import Damaged, Extra, NotFound, Refused, Unavailable
from holdfast.validation import checked_options

_NONCE = 12
_HINT = 'Write {"2026-01": "32 bytes in base64"}; the last one encrypts, all of them decrypt.'


class NoKey(Refused):
    """Encrypted bytes, and the key that decrypts them was not given."""


class NotEncrypted(Refused):
    """Bytes that are not encrypted, though a key was given: anybody may have put them there."""


@checked_options
class Keys:
    """Keys by their ids. New bytes are encrypted with the active one; the others only decrypt.

    To rotate: add a key, make it active, and drop the old one when nothing needs it (`copy_to` rewrites everything).
    """

    def __init__(self, keys: Mapping[str, bytes], *, active: str | None = None) -> None:
        """`keys`: 32 random bytes each. `active`: by default the last one."""
        if not isinstance(keys, Mapping):
            raise Refused(f"keys must be a dict, not {type(keys).__name__}", hint="Give a dict of ids and keys.")
        if not keys or any(not isinstance(key, bytes) or len(key) != 32 for key in keys.values()):
            raise Refused("a key is not 32 bytes", hint="Make one with os.urandom(32), and keep it safe.")
        if any(not isinstance(name, str) or not 1 <= _utf8_bytes(name) <= 100 for name in keys):
            raise Refused("the id of a key is not a text of up to 100 bytes", hint="Name keys '2026-01' or so.")
        self.active = list(keys)[-1] if active is None else active
        if self.active not in keys:
            raise Refused(
                f"the active key {self.active!r} is not among the keys", hint=f"The keys are {', '.join(keys)}."
            )
        self._ciphers = {name: _cipher(key) for name, key in keys.items()}
        self.naming = hashlib.sha256(b"holdfast names\0" + keys[self.active]).digest()
        """Mixed into the names of parts, so that names tell nothing about contents."""

    def encrypt(self, data: bytes, identity: bytes) -> bytes:
        """Encrypt bytes; `identity` names the only place where they can be decrypted."""
        nonce = os.urandom(_NONCE)
        name = self.active.encode()
        encrypted: bytes = self._ciphers[self.active].encrypt(nonce, data, name + b"\0" + identity)
        return bytes([len(name)]) + name + nonce + encrypted

    def decrypt(self, stored: memoryview, identity: bytes) -> bytes:
        """Decrypt; Damaged if the bytes were changed or belong elsewhere, Refused if the key is not here."""
        length = stored[0] if stored else 0
        name = bytes(stored[1 : 1 + length])
        if not name or len(name) != length:
            raise Damaged("encrypted data is truncated", hint="Use another copy.")
        key_id = name.decode("utf-8", "replace")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise NoKey(
                f"the data is encrypted with key {key_id!r}, which was not given",
                hint="Add that key; leave the other one active.",
            )
        nonce, body = stored[1 + length : 1 + length + _NONCE], stored[1 + length + _NONCE :]
        try:
            decrypted: bytes = cipher.decrypt(bytes(nonce), bytes(body), name + b"\0" + identity)
        except Exception:  # InvalidTag, or a nonce cut short
            raise Damaged("encrypted data was changed, or moved from another place", hint="Use another copy.") from None
        return decrypted


def _utf8_bytes(name: str) -> int:
    """The size of a text in UTF-8; 0 if it cannot be encoded."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        return 0


def _cipher(key: bytes) -> Any:
    with Extra("crypto"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    return AESGCM(key)


def read_keys(path: str | Path) -> Keys:
    """Read a JSON file of keys by their ids, each of 32 bytes in base64. No part of a key is ever in a message.

    A file, so that no key has to be in a program, on a command line or in an environment.
    """
    try:
        text = Path(path).expanduser().read_text("utf-8")
    except FileNotFoundError:
        raise NotFound(f"key file {path} does not exist", hint=_HINT) from None
    except OSError as error:
        raise Unavailable(
            f"the keys in {path} cannot be read: {error.strerror}", hint="Check its permissions."
        ) from None
    except ValueError:
        raise Refused(f"{path} is not a key file", hint=_HINT) from None
    try:
        given = json.loads(text)
        keys = {name: base64.b64decode(key, validate=True) for name, key in given.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise Refused(f"{path} is not a key file", hint=_HINT) from None
    return Keys(keys)
