"""An object store: the few calls that checkpoints need, on whatever `obstore` speaks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import obstore
from obstore.store import from_url

from holdfast.errors import NotFound, Unavailable

_PART_BYTES = 8 << 20


class Entry(NamedTuple):
    """An object, as a listing tells it."""

    key: str
    size: int
    tag: str
    modified: Any


class Objects:
    """The objects below a URL. Failures that may pass are tried again by `obstore` itself."""

    def __init__(self, url: str) -> None:
        with _told(url):
            self._store = from_url(url)
        self._url = url

    def put(self, key: str, data: bytes | Iterator[bytes]) -> str:
        """Write an object, in parts if it is large; it is there whole or not at all. Returns its tag."""
        with _told(f"{self._url}/{key}"):
            try:
                return str(obstore.put(self._store, key, data, chunk_size=_PART_BYTES)["e_tag"])
            except FileNotFoundError as error:  # the bucket
                raise NotFound(f"there is no {self._url}", hint="Make the bucket first.") from error

    def create(self, key: str, data: bytes) -> str | None:
        """Write a small object where none is; None if one is there already."""
        try:
            with _told(f"{self._url}/{key}"):
                return str(obstore.put(self._store, key, data, mode="create", use_multipart=False)["e_tag"])
        except FileExistsError:
            return None

    def get(self, key: str) -> bytes | None:
        """All of an object; None if it is not there."""
        try:
            with _told(f"{self._url}/{key}"):
                return bytes(obstore.get(self._store, key).bytes())
        except FileNotFoundError:
            return None

    def range(self, key: str, start: int, length: int) -> memoryview | None:
        """A stretch of an object; None if it is not there."""
        if not length:
            return memoryview(b"")
        try:
            with _told(f"{self._url}/{key}"):
                return memoryview(bytearray(obstore.get_range(self._store, key, start=start, length=length)))
        except FileNotFoundError:
            return None

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
        """Remove objects; one that is gone already is no error."""
        for key in keys:
            with contextlib.suppress(FileNotFoundError), _told(f"{self._url}/{key}"):
                obstore.delete(self._store, key)


@contextlib.contextmanager
def _told(where: str) -> Iterator[None]:
    try:
        yield
    except obstore.exceptions.AlreadyExistsError as error:
        raise FileExistsError(where) from error
    except (obstore.exceptions.NotFoundError, FileNotFoundError):
        raise FileNotFoundError(where) from None
    except (obstore.exceptions.BaseError, OSError, ValueError) as error:
        first = str(error).partition("\n")[0]
        hint = "Mend that and save again; every earlier checkpoint is as it was."
        raise Unavailable(f"{where}: {first}", hint=hint) from error
