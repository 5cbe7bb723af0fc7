"""An object store: the few calls that checkpoints need, on whatever `obstore` speaks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from holdfast.errors import Extra, HoldfastError, NotFound, Refused, Unavailable

with Extra("s3"):
    import obstore
    from obstore.store import from_url

_PART_BYTES = 8 << 20
_PARTS_MAX = 9_000
_RANGE_BYTES = 16 << 20
"""So little that a slow line brings it within the time that a request has, which is 30 seconds (`AWS_TIMEOUT`)."""

_SMALL_MAX_BYTES = 1 << 30

_MISSING = (obstore.exceptions.NotFoundError, FileNotFoundError)

RETRY: dict[str, Any] = {"max_retries": 10, "retry_timeout": timedelta(minutes=3)}
"""How long a failure that may pass is tried again: a refusal by the server, a connection that breaks, a time-out."""


class Entry(NamedTuple):
    """An object, as a listing tells it."""

    key: str
    size: int
    tag: str
    modified: Any


class Seen(NamedTuple):
    """A small object as it was read, and the version that it was."""

    data: bytes
    version: dict[str, str]


class Objects:
    """The objects below a URL. Failures that may pass are tried again by `obstore` itself."""

    def __init__(self, url: str) -> None:
        if url.startswith("memory:"):
            raise Refused(f"{url} would be forgotten at once", hint="Name a folder; one in /dev/shm is in memory too.")
        with _told(url):
            self._store = from_url(url, retry_config=RETRY)
        self._url = url

    def put(self, key: str, data: bytes | Iterator[bytes], n_bytes: int = 0) -> str:
        """Write an object, in parts if it is large; it is there whole or not at all. Returns its tag."""
        part_bytes = max(_PART_BYTES, n_bytes // _PARTS_MAX)
        with _told(f"{self._url}/{key}"):
            return str(obstore.put(self._store, key, data, chunk_size=part_bytes)["e_tag"])

    def create(self, key: str, data: bytes) -> str | None:
        """Write a small object where none is; None if one is there already."""
        return self._put_if(key, data, "create")

    def replace(self, key: str, data: bytes, seen: Seen | None) -> str | None:
        """Write a small object in place of what was seen; None if that is no longer what is there."""
        return self._put_if(key, data, "create" if seen is None else seen.version)

    def _put_if(self, key: str, data: bytes, mode: Any) -> str | None:
        try:
            with _told(f"{self._url}/{key}"):
                return str(obstore.put(self._store, key, data, mode=mode, use_multipart=False)["e_tag"])
        except FileExistsError:
            return None

    def get(self, key: str) -> bytes | None:
        """All of a small object; None if it is not there."""
        seen = self.see(key)
        return None if seen is None else seen.data

    def see(self, key: str) -> Seen | None:
        """All of a small object, and which version of it that is; None if it is not there.

        Of one that is larger than any that we write, nothing is read.
        """
        try:
            with _told(f"{self._url}/{key}"):
                found = obstore.get(self._store, key)
                version = {name: str(found.meta[name]) for name in ("e_tag", "version") if found.meta.get(name)}
                return Seen(b"" if found.meta["size"] > _SMALL_MAX_BYTES else bytes(found.bytes()), version)
        except FileNotFoundError:
            return None

    def range(self, key: str, start: int, length: int) -> memoryview | None:
        """A stretch of an object, by requests that each can be tried again; None if it is not there or too short."""
        room = bytearray(length)
        try:
            for at in range(0, length, _RANGE_BYTES):
                piece = self._piece(key, start + at, min(_RANGE_BYTES, length - at))
                if piece is None:
                    return None
                room[at : at + len(piece)] = piece
        except FileNotFoundError:
            return None
        return memoryview(room)

    def _piece(self, key: str, start: int, length: int) -> Any:
        try:
            with _told(f"{self._url}/{key}"):
                piece = obstore.get_range(self._store, key, start=start, length=length)
        except Unavailable:
            if self._size(key) < start + length:  # servers refuse a range beyond the end in their own ways
                return None
            raise
        return piece if len(piece) == length else None

    def _size(self, key: str) -> int:
        with _told(f"{self._url}/{key}"):
            return int(obstore.head(self._store, key)["size"])

    def list(self, prefix: str = "") -> list[Entry]:
        """What there is below a prefix: one request for each page of a thousand."""
        with _told(f"{self._url}/{prefix}"):
            return [
                Entry(found["path"], found["size"], str(found["e_tag"]), found["last_modified"])
                for page in obstore.list(self._store, prefix or None)
                for found in page
            ]

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store; its bytes do not come here."""
        with _told(f"{self._url}/{target}"):
            obstore.copy(self._store, source, target)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, a thousand with a request where the store can; one that is gone already is no error."""
        if not keys:
            return
        try:
            with _told(f"{self._url}/{keys[0]}"):
                obstore.delete(self._store, list(keys))
        except FileNotFoundError:
            for key in keys:
                with contextlib.suppress(FileNotFoundError), _told(f"{self._url}/{key}"):
                    obstore.delete(self._store, key)


@contextlib.contextmanager
def _told(where: str) -> Iterator[None]:
    try:
        yield
    except HoldfastError:
        raise
    except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError) as error:
        raise FileExistsError(where) from error
    except (NotImplementedError, obstore.exceptions.NotSupportedError) as error:
        what = f"{where} is in a store that cannot do what checkpoints need"
        raise Refused(what, hint="Use s3://, gs:// or az://, or a folder.") from error
    except (obstore.exceptions.BaseError, OSError, ValueError) as error:
        raise _understood(where, str(error), isinstance(error, _MISSING)) from error


def _understood(where: str, text: str, is_missing: bool) -> Exception:
    """What an error of the store means to people."""
    first = text.partition("\n")[0]
    if "NoSuchBucket" in text or "NoSuchContainer" in text:
        return NotFound(f"{where}: there is no such bucket", hint="Make it first, or correct the name.")
    if is_missing:
        return FileNotFoundError(where)
    if "/latest/api/token" in text or "/computeMetadata/" in text:  # nothing is set, so the machine was asked
        return Unavailable(f"{where}: there are no credentials", hint=_credentials(where))
    if "Account must be specified" in text:
        return Unavailable(f"{where}: there is no account", hint=_credentials(where))
    if any(f"code: {code}" in text for code in (401, 403)):
        return Unavailable(f"{where}: the store denies access", hint=f"{_credentials(where)} It said: {first}")
    if "Unable to recognise URL" in text or "InvalidUrl" in text:
        return Refused(f"{where} is not a place that obstore knows", hint="Use s3://BUCKET/PREFIX, gs:// or az://.")
    hint = "Fix that and save again; every earlier checkpoint is as it was."
    return Unavailable(f"{where}: {first}", hint=hint)


def _credentials(where: str) -> str:
    scheme = where.partition(":")[0]
    names = {
        "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (profiles are not read)",
        "gs": "GOOGLE_APPLICATION_CREDENTIALS",
        "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    }  # fmt: skip
    return f"Set {names.get(scheme, 'those of the store')} in the environment."
