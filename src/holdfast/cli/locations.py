"""Words of the command line that name a flow location, and the options that belong to one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click

from holdfast.cli.app import App, typed
from holdfast.cli.kinds import FLOW, OBJECT_STORES

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Asked(NamedTuple):
    """What a command was asked to look at."""

    location: str
    session: str | None
    tenant: str | None
    """None: all of them, or the one without a name, as the command says."""
    namespace: str | None
    """None: any."""
    keys: str | None
    """A file."""


def is_location(word: str | None) -> bool:
    """Whether a word is a URL: that of a store, or one that was meant to be."""
    scheme, colon, rest = (word or "").partition(":")
    return bool(colon) and (rest.startswith("//") or scheme in FLOW)


def option_tenant(function: _Function) -> _Function:
    return click.option("--tenant", metavar="NAME", help="With a location: only that tenant.")(function)


def option_namespace(function: _Function) -> _Function:
    return click.option("--namespace", metavar="NAME", help="With a location: only that namespace.")(function)


def option_keys(function: _Function) -> _Function:
    text = "With a location: the file of its keys. [default: $HOLDFAST_FLOW_KEYS]"
    return click.option("--keys", metavar="FILE", help=text)(function)


def asked(app: App, location: str | None, given: Mapping[str, Any], *, not_here: Mapping[str, Any]) -> Asked | None:
    """What was asked of a location; None where none is named. A usage error where the options do not fit together.

    given: the options of locations. not_here: those that a location does not take, as they stand on the command line.
    """
    if not is_location(location):
        for name in ("tenant", "namespace", "keys"):
            if given.get(name) is not None:
                raise click.UsageError(f"--{name} is for a flow location, such as sqlite:///state.db")
        return None
    return of_location(app, str(location), given, not_here=not_here)


def of_location(app: App, location: str, given: Mapping[str, Any], *, not_here: Mapping[str, Any]) -> Asked:
    """What was asked of a location that is one."""
    if location.partition("://")[0] in OBJECT_STORES:
        command = click.get_current_context().info_name
        raise click.UsageError(f"a training run goes before the command: holdfast -C {location} {command}")
    if app.directory or app.store:
        raise click.UsageError("-C and --store are for workspaces, not for a flow location")
    for name, value in not_here.items():
        if value:
            raise click.UsageError(f"{name} is not for a flow location")
    options = {name: given.get(name) for name in ("session", "tenant", "namespace", "keys")}
    return Asked(location, **options)


def check_location(word: str | None) -> None:
    """A usage error, with what was meant, where a word stands in the place of a location and is none."""
    if word is None or is_location(word):
        return
    if os.path.isdir(word):
        command = click.get_current_context().info_name
        if command == "copy":
            raise click.UsageError(f"{word} is a folder, and copy is for flow locations, such as sqlite:///state.db")
        raise click.UsageError(f"a folder goes before the command: holdfast -C {word} {command}")
    from urllib.parse import quote  # which no command needs that goes well

    meant = f"; write sqlite:///{quote(word)}" if os.path.isfile(word) else ", such as sqlite:///state.db"
    raise click.UsageError(f"{word!r} is no flow location{meant}")


def check_words(extra: str | None, session: str | None, *, every: bool = False) -> None:
    """A usage error where no location was named, and something was that needs one."""
    if extra is not None:
        raise click.UsageError(f"got unexpected extra argument ({extra})")
    if session is not None or every:
        raise click.UsageError(
            f"{'--all' if every else '--session'} is for a flow location, such as sqlite:///state.db"
        )


def session_needed(place: Asked, command: str) -> str:
    """The session that was named; a usage error where none is."""
    if place.session is None:
        listing = typed("log", place.location)
        raise click.UsageError(f"{command} needs --session ID with a location; list them with: {listing}")
    return place.session
