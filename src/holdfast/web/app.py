"""The routes of the page, and errors as pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from holdfast.errors import HoldfastError, NotFound
from holdfast.web import home, live, locations, looking, take_back, timeline, turn, work
from holdfast.web.answers import Answer, Query, error_response, form_of, respond
from holdfast.web.security import RequestGuard
from holdfast.web.site import Site

PAGES: dict[str, Callable[[Request], Answer | Response]] = {
    "/home": home.show,
    "/w/{key}/timeline": timeline.show,
    "/w/{key}/turn/{ref}": turn.show,
    "/w/{key}/plan": take_back.show_plan,
    "/w/{key}/compare": looking.compare,
    "/w/{key}/files": looking.files,
    "/w/{key}/history": looking.history,
    "/w/{key}/blame": looking.blame,
    "/w/{key}/search": looking.search,
    "/w/{key}/coverage": looking.coverage,
    "/w/{key}/usage": looking.usage,
    "/l/{key}": locations.show,
    "/l/{key}/checkpoint": locations.checkpoint,
    "/l/{key}/state": locations.state,
    "/l/{key}/compare": locations.compare,
    "/l/{key}/usage": locations.usage,
    "/l/{key}/search": locations.search,
    "/l/{key}/runs": locations.runs,
    "/l/{key}/documents": locations.documents,
    "/l/{key}/verify": work.verify,
    "/l/{key}/plan": work.plan,
}
"""What is shown at an address; with `.json` behind it, the same as JSON."""
ACTIONS: dict[str, Callable[[Request, Query], Response]] = {
    "/w/{key}/apply": take_back.apply,
    "/w/{key}/undo": take_back.undo,
    "/w/{key}/redo": take_back.redo,
    "/w/{key}/review": take_back.review,
    "/l/{key}/fork": locations.fork,
    "/l/{key}/start-verify": work.start_verify,
    "/l/{key}/start-plan": work.start_plan,
}
"""What changes something: POST, with a token of one of our pages."""


def make_app(site: Site, port: int) -> RequestGuard:
    """The application, behind its guard."""
    routes: list[Any] = [Route("/", _first)]
    for path, show in PAGES.items():
        routes += [Route(path + suffix, _page(show)) for suffix in (".json", "")]
    for path, act in ACTIONS.items():
        routes += [Route(path + suffix, _action(act), methods=["POST"]) for suffix in ("", ".json")]
    routes += [
        Route("/w/{key}/raw", _plain(looking.raw)),
        Route("/w/{key}/events", live.events),
        Mount("/static", StaticFiles(packages=[("holdfast.web", "static")])),
    ]
    handlers: dict[Any, Any] = {HoldfastError: _failed, HTTPException: _missing}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.state.site = site
    return RequestGuard(app, site.keys, port, read_only=site.read_only)


def _page(show: Callable[[Request], Answer | Response]) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:  # not async: Starlette runs it in a thread
        answer = show(request)
        return respond(request, answer) if isinstance(answer, Answer) else answer

    return endpoint


def _plain(show: Callable[[Request], Response]) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        return show(request)

    return endpoint


def _action(act: Callable[[Request, Query], Response]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        form = await form_of(request)
        return await run_in_threadpool(partial(act, request, form))

    return endpoint


def _first(request: Request) -> Response:
    return RedirectResponse("/home", status_code=303)


def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HoldfastError)
    return error_response(request, error)


def _missing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return error_response(request, NotFound("there is no such page", hint="Begin with the first page."))
    return Response(str(error.detail), status_code=error.status_code, media_type="text/plain")
