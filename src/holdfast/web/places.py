"""The locations that the page shows: every workspace of this computer, what was named when the page was started, and
what the configuration of a workspace names."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.configuration import find_configuration
from holdfast.errors import HoldfastError, NotFound, Refused
from holdfast.escaping import without_password
from holdfast.location import FOLDER, LocationKind, is_url, kind_of
from holdfast.web import location_process
from holdfast.workspace import Workspace
from holdfast.workspace.config import Settings, read_settings
from holdfast.workspace.stores import StoreInfo, list_stores

if TYPE_CHECKING:
    from holdfast.location import Location

_NOT_IN_KEYS = re.compile(r"[^a-z0-9]+")


class NamedLocation(NamedTuple):
    """A location, and its name in addresses of pages."""

    key: str
    kind: LocationKind
    address: str
    title: str
    """The last part of the address."""
    project: str = ""
    """The folder whose configuration names it."""

    @property
    def shown(self) -> str:
        """The address without its password."""
        return without_password(self.address)


class NamedLocations:
    """Finds locations by key, and opens each workspace once."""

    def __init__(self, named: Sequence[str | Workspace], environ: Mapping[str, str], home: Path) -> None:
        self._environ = environ
        self._home = home
        self._lock = threading.Lock()
        self._open: dict[str, Workspace] = {}
        self._named: dict[str, NamedLocation] = {}
        self._known: dict[str, NamedLocation] = {}
        for each in named:
            address = os.fspath(each.path) if isinstance(each, Workspace) else each
            place = _place(address, FOLDER if isinstance(each, Workspace) else kind_of(address))
            self._named[place.key] = self._known[place.key] = place
            if isinstance(each, Workspace):
                self._open[place.key] = each

    @property
    def named(self) -> list[NamedLocation]:
        """What was named when the server was started."""
        return list(self._named.values())

    def stores(self) -> list[tuple[NamedLocation, StoreInfo]]:
        """Every workspace that has a store in the usual place, last used first."""
        return [(_place(each.folder, FOLDER), each) for each in list_stores(self._environ) if each.folder]

    def configured(self) -> list[NamedLocation]:
        """What the configurations of workspaces name: `locations`, and their indexes. Nothing of it is opened."""
        folders = [each.address for each in self.named if each.kind == FOLDER]
        folders += [place.address for place, info in self.stores() if not info.is_gone]
        return [place for folder in dict.fromkeys(folders) for place in _configured_in(folder)]

    def is_trusted(self, place: NamedLocation) -> bool:
        """Whether the user named it when the page was started, or the workspace whose configuration names it."""
        return place.key in self._named or any(each.address == place.project for each in self.named)

    def check_trusted(self, place: NamedLocation) -> None:
        """Refused if code of its project would run that the user did not name: the model of an index (P7)."""
        if not self.is_trusted(place):
            hint = "Start `holdfast ui` in the folder of its project, or with the location."
            raise Refused("this would import code of a project that was not named", hint=hint)

    def index(self, key: str) -> NamedLocation:
        """The index of a key, whose models may be asked. NotFound if there is none, or Refused."""
        place = self.find(key)
        if place.kind.name != "index":
            raise NotFound(f"{place.shown} is {place.kind.title}, not an index", hint="Choose another location.")
        self.check_trusted(place)
        return place

    def ask(self, what: str, place: NamedLocation, tell: location_process.Tell | None = None, **more: Any) -> Any:
        """Ask a location what must not happen in this process."""
        question = {"what": what, "address": place.address, "project": place.project, **more}
        return location_process.ask(question, self._environ, tell)

    def stream(self, what: str, place: NamedLocation, **more: Any) -> Iterator[bytes]:
        """The same for a JSON document, in pieces."""
        question = {"what": what, "address": place.address, "project": place.project, "as_json": True, **more}
        return location_process.stream(question, self._environ)

    def ask_folder(self, what: str, key: str, tell: location_process.Tell | None = None, **more: Any) -> Any:
        """Ask a workspace what would leave this process large."""
        place, opened = self.workspace(key)
        return self.ask(what, place, tell, home=str(self._home), store=str(opened.store), **more)

    def find(self, key: str) -> NamedLocation:
        """The location of a key. NotFound if there is none."""
        if key not in self._known:
            self._known |= {place.key: place for place in self.configured()} | {
                place.key: place for place, _ in self.stores()
            }
        if key not in self._known:
            raise NotFound("there is no such location here", hint="Choose one from the first page.")
        return self._known[key]

    def workspace(self, key: str) -> tuple[NamedLocation, Workspace]:
        """The workspace of a key, opened with its configuration. NotFound if there is none."""
        place = self.find(key)
        if place.kind != FOLDER:
            raise NotFound(f"{place.shown} is {place.kind.title}, not a folder", hint="Choose another location.")
        with self._lock:
            if (opened := self._open.get(key)) is None:
                opened = self._open[key] = open_workspace(place.address, self._environ, self._home)
        return place, opened

    def location(self, key: str, options: Mapping[str, Any] | None = None) -> tuple[NamedLocation, Location]:
        """The location of a key, opened for one request; the caller closes it."""
        place = self.find(key)
        return place, place.kind.load()(place.address, self.options(place, options))

    def options(self, place: NamedLocation, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The options of a location, with those that the environment names."""
        known = place.kind.load().options
        given = {each.name: self._environ.get(each.environ) for each in known if each.environ}
        return {name: value for name, value in given.items() if value} | dict(options or {})

    def close(self) -> None:
        for each in self._open.values():
            each.close()


def _configured_in(folder: str) -> list[NamedLocation]:
    """The flow stores, training runs and indexes that the configuration of a folder names; those that exist."""
    found = []
    try:
        if (table := find_configuration(Path(folder))) is None:
            return []
        named, index = read_settings(folder).locations, None
        if "index" in table.values:
            from holdfast.adapters.index import index_address  # start-up cost: most folders have no index

            index = index_address(folder)
    except HoldfastError:  # `holdfast config` says what is wrong with it
        return []
    for each in [*named, *([index] if index else [])]:
        address = _within(folder, each)
        with contextlib.suppress(HoldfastError):
            kind = kind_of(address)
            if kind != FOLDER:
                found.append(_place(address, kind, folder))
    return found


def _within(folder: str, word: str) -> str:
    """An address of a configuration: paths begin at its folder."""
    if is_url(word):
        path = word.removeprefix("sqlite:///")
        return word if path == word or path.startswith("/") else f"sqlite:///{os.path.join(folder, path)}"
    return os.path.normpath(os.path.join(folder, os.path.expanduser(word)))


def _place(address: str, kind: LocationKind, project: str = "") -> NamedLocation:
    path = without_password(address).rstrip("/")
    title = os.path.basename(path) or address
    if title.startswith("."):  # what is hidden is called by its folder, too
        title = f"{os.path.basename(os.path.dirname(path))}/{title}"
    digest = sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    slug = _NOT_IN_KEYS.sub("-", title.lower()).strip("-")[:40]
    return NamedLocation(f"{slug}-{digest}" if slug else digest, kind, address, title, project)


def open_workspace(folder: str, environ: Mapping[str, str], home: Path, *, store: str | None = None) -> Workspace:
    """A folder with its own configuration."""
    try:
        settings = read_settings(Path(folder))
    except HoldfastError:  # an invalid configuration must not keep anybody from going back
        settings = Settings()
    options = settings.options() | {"on_unknown": "tagged", "create": False, "missing_ok": True}
    if store is not None:
        options["store"] = store
    return Workspace(folder, environ=environ, home=home, **options)
