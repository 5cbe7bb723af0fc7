"""Starts the page: binds to loopback, says where, and serves until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import uvicorn

from holdfast.durable import platform
from holdfast.errors import HoldfastError, Unavailable
from holdfast.location import FOLDER
from holdfast.web.app import make_app
from holdfast.web.places import NamedLocations
from holdfast.web.rendering import Templates, address
from holdfast.web.security import TOKEN, ServerKeys
from holdfast.web.site import Site
from holdfast.web.timeline import PAGE
from holdfast.workspace import Workspace

HOST = "127.0.0.1"
_TRIM_EVERY_S = 20.0


def serve(
    named: Sequence[str | Workspace],
    *,
    port: int,
    read_only: bool,
    opens: bool,
    tell: Callable[[str], None],
    environ: Mapping[str, str],
    home: Path,
) -> None:
    """Serve the page until the process is stopped. `port` 0 is a free one; `tell` is given the address.

    Unavailable if the port is taken.
    """
    platform.keep_heap_small()
    keys = ServerKeys()
    places = NamedLocations(named, environ, home)
    listening = _listen(port)
    taken = int(listening.getsockname()[1])
    templates = Templates(keys, read_only=read_only)
    site = Site(places, keys, templates, read_only)
    first = places.named[0] if len(places.named) == 1 else None
    page = address("w", first.key, "timeline") if first and first.kind.name == "workspace" else address("home")
    where = f"http://{HOST}:{taken}{page}?{TOKEN}={keys.token}"
    tell(where)
    threading.Thread(target=_prepare, args=(places, templates), daemon=True).start()
    ended = threading.Event()
    threading.Thread(target=_give_memory_back, args=(ended,), daemon=True).start()
    if opens:
        webbrowser.open(where)
    config = uvicorn.Config(
        make_app(site, taken),
        log_level="error",
        access_log=False,  # it would print the token
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=1,  # pages that wait for events never end by themselves
        lifespan="off",
        ws="none",
    )
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        ended.set()
        listening.close()
        places.close()


def _prepare(places: NamedLocations, templates: Templates) -> None:
    """Do what the first page would have to, while the browser starts: compile its template, and compute what its turns
    changed, which is kept."""
    templates.load("timeline.html", "timeline_rows.html")
    for place in places.named:
        if place.kind == FOLDER:
            with contextlib.suppress(HoldfastError):
                places.workspace(place.key)[1].turns(PAGE, safety=True)


def _give_memory_back(ended: threading.Event) -> None:
    """A page that was large leaves free pages between others that are in use."""
    while not ended.wait(_TRIM_EVERY_S):
        platform.give_memory_back()


def _listen(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((HOST, port))
        found.listen(128)
    except OSError as error:
        found.close()
        why = os.strerror(error.errno or 0)
        raise Unavailable(f"port {port} of {HOST} cannot be used: {why}", hint="Choose another port.") from None
    return found
