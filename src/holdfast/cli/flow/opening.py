"""Opening a flow location for a command: its tenants, its keys, and words for what is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from holdfast.cli.app import typed
from holdfast.cli.locations import Asked
from holdfast.errors import NotFound, Refused
from holdfast.flow import States, open_states
from holdfast.harmless import unescape
from holdfast.serde import Keys, NoKey, NotSealed, Registry, read_keys

KEYS = "HOLDFAST_FLOW_KEYS"
_PATIENCE_SECONDS = 10.0


class Location:
    """A location that is open; each of its tenants is opened when it is asked for."""

    def __init__(self, location: str, keys: Keys | None, *, create: bool = False) -> None:
        self.location = location
        self._keys = keys
        self._create = create
        self._open: dict[str, States] = {}
        self._stack = ExitStack()

    def tenant(self, name: str) -> States:
        """The states of one tenant. Objects of all classes stay opaque: nothing need be imported to look at them."""
        if name not in self._open:
            patience: dict[str, Any] = {"timeout": _PATIENCE_SECONDS} if self.location.startswith("postgres") else {}
            states = open_states(
                self.location,
                tenant=name,
                registry=Registry(),
                on_unknown="keep",
                keys=self._keys,
                create=self._create,
                **patience,
            )
            self._open[name] = self._stack.enter_context(states)
        return self._open[name]

    def tenants(self, only: str | None) -> list[str]:
        """The tenant that was asked for, or all there are; the one without a name is there always."""
        if only is not None:
            self.check_tenant(only)
            return [only]
        found = self.tenant("").store.tenants()
        return found or [""]

    def check_tenant(self, name: str) -> None:
        """NotFound, with those there are, if a tenant has nothing here: most often it is misspelt."""
        store = self.tenant(name).store
        if not name or store.sessions(limit=1) or store.tombstones():
            return
        known = ", ".join(repr(each) for each in store.tenants() if each) or "none but the one without a name"
        raise NotFound(f"there is no tenant {name!r}", hint=f"There are: {known}.")

    def close(self) -> None:
        self._stack.close()


@contextmanager
def opened(location: str, keys: Keys | None, *, create: bool = False) -> Iterator[Location]:
    """Open a location; without `create`, NotFound where there is none yet, and none is made."""
    if location.partition(":")[0] == "memory":
        raise Refused("memory:// ends with the program that uses it", hint="Name a file or a server.")
    place = Location(location, keys, create=create)
    try:
        yield place
    except NoKey as error:
        raise Refused(error.message, hint=f"Name the file of its keys with --keys, or in {KEYS}.") from None
    except NotSealed as error:
        raise Refused(error.message, hint=f"To read it as it is, leave out --keys and {KEYS}.") from None
    finally:
        place.close()


def keys_of(place: Asked) -> Keys | None:
    """The keys in the file that was named, on the command line or in the environment."""
    named = place.keys or os.environ.get(KEYS)
    return read_keys(named) if named else None


def session_of(place: Location, states: States, given: str) -> str:
    """The session that was named, exactly or as it is printed. NotFound, with the reason, if there is none."""
    for name in dict.fromkeys((given, _plain(given))):
        known = states.store.session(name) if name else None
        if known is not None and not known.is_deleted:
            return name
        if known is not None:
            raise NotFound(f"session {name!r} was deleted", hint="It is gone; `reopen` lets its id be used again.")
    tenant = states.store.tenant
    place.check_tenant(tenant)
    owners = [other for other in states.store.tenants() if other != tenant]
    having = [other for other in owners if place.tenant(other).store.session(given)]
    where = f" of tenant {tenant!r}" if tenant else ""
    hint = f"There is one of tenant {having[0]!r}: pass --tenant." if having else _listing(place.location)
    raise NotFound(f"there is no session {given!r}{where}", hint=hint)


def _listing(location: str) -> str:
    return f"List them with: {typed('log', location)}"


def _plain(given: str) -> str:
    try:
        return unescape(given)
    except Refused:
        return given
