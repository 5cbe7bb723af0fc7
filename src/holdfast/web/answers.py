"""One answer of the server: a page, or the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused, Unavailable
from holdfast.remedies import word_hint
from holdfast.web.remedies import PAGE
from holdfast.web.security import CSRF, is_csrf
from holdfast.web.site import Site

_DIGITS_MAX = 18
_STATUS: dict[type[BaseException], int] = {NotFound: 404, Conflict: 409, Damaged: 500, Refused: 400, Unavailable: 503}
_KIND: dict[type[BaseException], str] = {
    NotFound: "not-found",
    Conflict: "conflict",
    Damaged: "damaged",
    Refused: "refused",
    Unavailable: "unavailable",
}
_TITLES = {
    404: "Not found",
    409: "It changed meanwhile",
    500: "Stored data is damaged",
    400: "Not possible",
    503: "Not available now",
}
_FIRST_WORDS = {"an", "it", "no", "not", "nothing", "only", "that", "the", "there", "this", "to", "your"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page shows: values for its template, and what the same address with `.json` answers."""

    template: str
    values: Mapping[str, Any]
    document: Callable[[], Any]
    """Called only for JSON."""
    status: int = 200


@dataclass(frozen=True, slots=True)
class Query:
    """The words after `?`, or of a form. A byte that is no text is a lone surrogate, as in the names of files."""

    pairs: tuple[tuple[str, str], ...] = field(default=())

    @classmethod
    def parse(cls, text: bytes) -> Query:
        pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
        return cls(tuple(pairs))

    def get(self, name: str) -> str:
        return next((value for key, value in self.pairs if key == name), "")

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.pairs if key == name]

    def count(self, name: str, default: int, most: int) -> int:
        """A whole number from 1 to `most`. Refused if it is none."""
        text = self.get(name)
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX and 0 < int(text) <= most):
            raise Refused(f"{name} is not a number from 1 to {most:,}", hint="Leave it out.")
        return int(text)


def query_of(request: Request) -> Query:
    """The words after `?` of a request."""
    return Query.parse(request.scope["query_string"])


def site_of(request: Request) -> Site:
    """What all pages share."""
    site: Site = request.app.state.site
    return site


async def form_of(request: Request) -> Query:
    """The form of a POST. Refused unless it comes from one of our pages."""
    form = Query.parse(await request.body())
    if not is_csrf(site_of(request).keys, form.get(CSRF)):
        raise Refused("this form is not from a page of this server", hint="Load the page again.")
    return form


def respond(request: Request, answer: Answer) -> Response:
    """The response to a request: JSON where the address ends with `.json`."""
    if wants_json(request):
        return json_response(answer.document(), answer.status)
    html = site_of(request).templates.page(answer.template, request, answer.values)
    return HTMLResponse(html, status_code=answer.status)


def json_response(value: Any, status: int = 200) -> Response:
    """A JSON document as the command line prints it."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    return Response(text + "\n", status_code=status, media_type="application/json")


def wants_json(request: Request) -> bool:
    return str(request.scope["path"]).endswith(".json")


def go(address: str) -> Response:
    """Send the browser to another of these pages after a POST."""
    return RedirectResponse(address, status_code=303)


def error_document(error: HoldfastError) -> dict[str, Any]:
    """An error as the command line prints it, in the words of the page."""
    remedy = error.remedy.code if error.remedy else None
    kind = _KIND.get(_kind_of(error), "bug")
    return {"kind": kind, "message": error.message, "hint": word_hint(error, PAGE), "remedy": remedy}


def _kind_of(error: HoldfastError) -> type[BaseException]:
    return next(kind for kind in type(error).__mro__ if kind in _STATUS or kind is HoldfastError)


def _sentence(message: str) -> str:
    """A message with a capital letter, unless it may begin with a name."""
    return message[:1].upper() + message[1:] if message.partition(" ")[0] in _FIRST_WORDS else message


def error_response(request: Request, error: HoldfastError) -> Response:
    """An error as a page that says what happened and what to do, or as the document of the command line."""
    status = _STATUS.get(_kind_of(error), 500)
    document = error_document(error)
    values: dict[str, Any] = {"title": _TITLES.get(status, "Error"), "hint": document["hint"]}
    values["message"] = _sentence(error.message)
    if document["remedy"] == "save_first":  # nothing is wrong: there is nothing to show yet
        values |= {"title": "No checkpoints yet", "message": "", "hint": PAGE["save_first"]}
    with suppress(HoldfastError):
        values["place"] = site_of(request).places.find(request.path_params.get("key", ""))
    return respond(request, Answer("error.html", values, lambda: {"error": document}, status))
