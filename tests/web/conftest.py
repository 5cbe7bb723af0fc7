"""A session of an agent, and the pages over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.workspace import Workspace
from waiting import wait_for

from .sessions import Session, environment, open_workspace, play

PORT = 8765


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path)


@pytest.fixture
def session(tmp_path: Path, environ: dict[str, str]) -> Session:
    return play(tmp_path, environ)


@pytest.fixture
def workspace(session: Session, environ: dict[str, str]) -> Workspace:
    return open_workspace(session.project, environ)


class Pages:
    """The pages of one server, asked for as a browser would that has opened the printed address."""

    def __init__(self, client: Any, site: Any) -> None:
        self.client, self.site = client, site
        self.key = site.places.named[0].key

    def get(self, page: str, /, **query: Any) -> Any:
        return self.client.get(f"/w/{self.key}/{page}", params=query)

    def when_done(self, page: str, **query: Any) -> str:
        """A page when its work has ended."""
        return wait_for(lambda: "" if "data-poll" in (text := self.get(page, **query).text) else text)

    def post(self, page: str, fields: dict[str, Any] | None = None, /, **options: Any) -> Any:
        data = {"csrf": self.site.keys.csrf} | (fields or {})
        headers = {"origin": f"http://127.0.0.1:{PORT}"} | options.pop("headers", {})
        return self.client.post(f"/w/{self.key}/{page}", data=data, headers=headers, **options)


def make_pages(workspace: Workspace, environ: dict[str, str], *, read_only: bool = False, enter: bool = True) -> Pages:
    """The pages of a workspace; without `enter`, as a stranger sees them."""
    from starlette.testclient import TestClient

    from holdfast.web.app import make_app
    from holdfast.web.places import NamedLocations
    from holdfast.web.rendering import Templates
    from holdfast.web.security import ServerKeys
    from holdfast.web.site import Site

    keys = ServerKeys()
    places = NamedLocations([workspace], environ, Path(environ["HOME"]))
    site = Site(places, keys, Templates(keys, read_only=read_only), read_only)
    client = TestClient(make_app(site, PORT), base_url=f"http://127.0.0.1:{PORT}")
    if enter:
        client.get("/home", params={"token": keys.token})
    return Pages(client, site)


@pytest.fixture
def pages(workspace: Workspace, environ: dict[str, str]) -> Iterator[Pages]:
    yield make_pages(workspace, environ)
