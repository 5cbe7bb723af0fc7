"""The locations that the page shows: every workspace of this computer, and what was named when it was started."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import HoldfastError, NotFound
from holdfast.escaping import without_password
from holdfast.location import FOLDER, LocationKind, kind_of
from holdfast.workspace import Workspace
from holdfast.workspace.stores import StoreInfo, list_stores

if TYPE_CHECKING:
    from holdfast.location import Location

_NOT_IN_KEYS = re.compile(r"[^a-z0-9]+")


class Place(NamedTuple):
    """A location, and its name in addresses of pages."""

    key: str
    kind: LocationKind
    address: str
    title: str
    """The last part of the address."""

    @property
    def shown(self) -> str:
        """The address without its password."""
        return without_password(self.address)


class Places:
    """Finds locations by key, and opens each workspace once."""

    def __init__(self, named: Sequence[str | Workspace], environ: Mapping[str, str], home: Path) -> None:
        self._environ = environ
        self._home = home
        self._lock = threading.Lock()
        self._open: dict[str, Workspace] = {}
        self._named: dict[str, Place] = {}
        self._known: dict[str, Place] = {}
        for each in named:
            address = os.fspath(each.path) if isinstance(each, Workspace) else each
            place = _place(address, FOLDER if isinstance(each, Workspace) else kind_of(address))
            self._named[place.key] = self._known[place.key] = place
            if isinstance(each, Workspace):
                self._open[place.key] = each

    @property
    def named(self) -> list[Place]:
        """What was named when the server was started."""
        return list(self._named.values())

    def stores(self) -> list[tuple[Place, StoreInfo]]:
        """Every workspace that has a store in the usual place, last used first."""
        return [(_place(each.folder, FOLDER), each) for each in list_stores(self._environ) if each.folder]

    def find(self, key: str) -> Place:
        """The location of a key. NotFound if there is none."""
        if key not in self._known:
            self._known |= {place.key: place for place, _ in self.stores()}
        if key not in self._known:
            raise NotFound("there is no such location here", hint="Choose one from the first page.")
        return self._known[key]

    def workspace(self, key: str) -> tuple[Place, Workspace]:
        """The workspace of a key, opened with its configuration. NotFound if there is none."""
        place = self.find(key)
        if place.kind != FOLDER:
            raise NotFound(f"{place.shown} is {place.kind.title}, not a folder", hint="Choose another location.")
        with self._lock:
            if (opened := self._open.get(key)) is None:
                opened = self._open[key] = _open(place.address, self._environ, self._home)
        return place, opened

    def location(self, key: str, options: Mapping[str, Any] | None = None) -> tuple[Place, Location]:
        """The location of a key, opened for one request; the caller closes it."""
        place = self.find(key)
        loaded = place.kind.load()
        given = {each.name: self._environ.get(each.environ) for each in loaded.options if each.environ}
        given = {name: value for name, value in given.items() if value} | dict(options or {})
        return place, loaded(place.address, given)

    def close(self) -> None:
        for each in self._open.values():
            each.close()


def _place(address: str, kind: LocationKind) -> Place:
    title = os.path.basename(without_password(address).rstrip("/")) or address
    digest = sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    slug = _NOT_IN_KEYS.sub("-", title.lower()).strip("-")[:40]
    return Place(f"{slug}-{digest}" if slug else digest, kind, address, title)


def _open(folder: str, environ: Mapping[str, str], home: Path) -> Workspace:
    from holdfast.workspace.config import Settings, read_settings

    try:
        settings = read_settings(Path(folder))
    except HoldfastError:  # an invalid configuration must not keep anybody from going back
        settings = Settings()
    options = settings.options() | {"on_unknown": "tagged", "create": False, "missing_ok": True}
    return Workspace(folder, environ=environ, home=home, **options)
