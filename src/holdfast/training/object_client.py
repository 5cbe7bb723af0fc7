"""The few calls to an object store that checkpoints need, over `obstore`."""

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
"""Small enough for a slow line to transfer within the timeout of a request, 30 seconds (`AWS_TIMEOUT`)."""

_SMALL_MAX_BYTES = 1 << 30

_MISSING = (obstore.exceptions.NotFoundError, FileNotFoundError)

RETRY: dict[str, Any] = {"max_retries": 10, "retry_timeout": timedelta(minutes=3)}
"""How long `obstore` retries server errors, broken connections and timeouts."""


class ListedObject(NamedTuple):
    """An object in a listing."""

    key: str
    size: int
    tag: str
    modified: Any


class VersionedObject(NamedTuple):
    """A small object as it was read, and its version."""

    data: bytes
    version: dict[str, str]


class ObjectClient:
    """The objects below a URL. `obstore` itself retries what may be temporary."""

    def __init__(self, url: str) -> None:
        if url.startswith("memory:"):
            raise Refused(f"{url} exists only in this process", hint="Name a folder; one in /dev/shm is in memory too.")
        with _translated(url):
            self._store = from_url(url, retry_config=RETRY)
        self._url = url

    def put(self, key: str, data: bytes | Iterator[bytes], n_bytes: int = 0) -> str:
        """Write an object, in parts if it is large; it is there whole or not at all (P3). Return its tag."""
        part_bytes = max(_PART_BYTES, n_bytes // _PARTS_MAX)
        with _translated(f"{self._url}/{key}"):
            return str(obstore.put(self._store, key, data, chunk_size=part_bytes)["e_tag"])

    def create(self, key: str, data: bytes) -> str | None:
        """Write a small object if there is none; None if there is one."""
        return self._put_if(key, data, "create")

    def replace(self, key: str, data: bytes, seen: VersionedObject | None) -> str | None:
        """Replace the version that was seen (None: create it); None if another version is there now."""
        return self._put_if(key, data, "create" if seen is None else seen.version)

    def _put_if(self, key: str, data: bytes, mode: Any) -> str | None:
        try:
            with _translated(f"{self._url}/{key}"):
                return str(obstore.put(self._store, key, data, mode=mode, use_multipart=False)["e_tag"])
        except FileExistsError:
            return None

    def get(self, key: str) -> bytes | None:
        """Return a small object; None if it is not there."""
        seen = self.see(key)
        return None if seen is None else seen.data

    def see(self, key: str) -> VersionedObject | None:
        """Return a small object and its version; None if it is not there.

        The data of an object larger than any that Holdfast writes is not read, and is empty.
        """
        try:
            with _translated(f"{self._url}/{key}"):
                found = obstore.get(self._store, key)
                version = {name: str(found.meta[name]) for name in ("e_tag", "version") if found.meta.get(name)}
                is_small = found.meta["size"] <= _SMALL_MAX_BYTES
                return VersionedObject(bytes(found.bytes()) if is_small else b"", version)
        except FileNotFoundError:
            return None

    def range(self, key: str, start: int, length: int) -> memoryview | None:
        """Return a range of an object, by requests that are retried one by one; None if it is missing or too short."""
        buffer = bytearray(length)
        try:
            for at in range(0, length, _RANGE_BYTES):
                part = self._range_part(key, start + at, min(_RANGE_BYTES, length - at))
                if part is None:
                    return None
                buffer[at : at + len(part)] = part
        except FileNotFoundError:
            return None
        return memoryview(buffer)

    def _range_part(self, key: str, start: int, length: int) -> Any:
        try:
            with _translated(f"{self._url}/{key}"):
                part = obstore.get_range(self._store, key, start=start, length=length)
        except Unavailable:
            if self._size(key) < start + length:  # servers report a range beyond the end in different ways
                return None
            raise
        return part if len(part) == length else None

    def _size(self, key: str) -> int:
        with _translated(f"{self._url}/{key}"):
            return int(obstore.head(self._store, key)["size"])

    def list(self, prefix: str = "") -> list[ListedObject]:
        """List the objects below a prefix: one request for each page of a thousand."""
        with _translated(f"{self._url}/{prefix}"):
            return [
                ListedObject(found["path"], found["size"], str(found["e_tag"]), found["last_modified"])
                for page in obstore.list(self._store, prefix or None)
                for found in page
            ]

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store."""
        with _translated(f"{self._url}/{target}"):
            obstore.copy(self._store, source, target)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, up to a thousand in a request where the store can. A missing one is no error."""
        if not keys:
            return
        try:
            with _translated(f"{self._url}/{keys[0]}"):
                obstore.delete(self._store, list(keys))
        except FileNotFoundError:
            for key in keys:
                with contextlib.suppress(FileNotFoundError), _translated(f"{self._url}/{key}"):
                    obstore.delete(self._store, key)


@contextlib.contextmanager
def _translated(where: str) -> Iterator[None]:
    """Raise FileExistsError, FileNotFoundError or a HoldfastError in place of an error of `obstore`."""
    try:
        yield
    except HoldfastError:
        raise
    except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError) as error:
        raise FileExistsError(where) from error
    except (NotImplementedError, obstore.exceptions.NotSupportedError) as error:
        what = f"{where} is in a store without conditional writes, which checkpoints need"
        raise Refused(what, hint="Use s3://, gs:// or az://, or a folder.") from error
    except (obstore.exceptions.BaseError, OSError, ValueError) as error:
        raise _translate(where, str(error), isinstance(error, _MISSING)) from error


def _translate(where: str, text: str, is_missing: bool) -> Exception:
    first = text.partition("\n")[0]
    if "NoSuchBucket" in text or "NoSuchContainer" in text:
        return NotFound(f"{where}: the bucket does not exist", hint="Create it first, or correct the name.")
    if is_missing:
        return FileNotFoundError(where)
    if "/latest/api/token" in text or "/computeMetadata/" in text:  # nothing is set, so obstore asked the machine
        return Unavailable(f"{where}: no credentials found", hint=_credentials(where))
    if "Account must be specified" in text:
        return Unavailable(f"{where}: no account found", hint=_credentials(where))
    if any(f"code: {code}" in text for code in (401, 403)):
        return Unavailable(f"{where}: access denied", hint=f"{_credentials(where)} The store said: {first}")
    if "Unable to recognise URL" in text or "InvalidUrl" in text:
        return Refused(f"{where} is not a URL that obstore supports", hint="Use s3://BUCKET/PREFIX, gs:// or az://.")
    hint = "Fix that and save again; every earlier checkpoint is unchanged."
    return Unavailable(f"{where}: {first}", hint=hint)


def _credentials(where: str) -> str:
    scheme = where.partition(":")[0]
    names = {
        "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (profiles are not read)",
        "gs": "GOOGLE_APPLICATION_CREDENTIALS",
        "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    }  # fmt: skip
    return f"Set {names.get(scheme, 'the credentials of the store')} in the environment."
