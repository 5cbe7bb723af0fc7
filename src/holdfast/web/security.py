"""Who may ask for a page, and what every response forbids the browser to do.

The server listens on loopback, where every user and every page in the browser can reach it. So:

- the address that is printed has a random token; it becomes a cookie that no script can read and that is never sent
  from another site; without either there is only a refusal;
- a `Host` other than ours is refused, so that a name that resolves to 127.0.0.1 is of no use (DNS rebinding);
- an `Origin` other than ours is refused, and one is required for POST, which also needs a token from one of our pages;
- scripts, styles, images and connections come from this server or not at all (CSP), and nobody may frame a page.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

TOKEN = "token"
CSRF = "csrf"
"""The field of a form."""
BODY_MAX_BYTES = 1 << 20
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """The secrets of one run of the server."""

    token: str = field(default_factory=_secret)
    """In the address that is printed."""
    cookie: str = field(default_factory=_secret)
    csrf: str = field(default_factory=_secret)


class RequestGuard:
    """The ASGI application in front of the pages: refuses requests that are not allowed, and adds the headers."""

    def __init__(self, app: Any, keys: ServerKeys, port: int, *, read_only: bool = False) -> None:
        self._app = app
        self._keys = keys
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"holdfast-{port}"  # cookies of one host are shared by all its ports
        self._read_only = read_only

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websockets
        response = self._refusal(scope)
        if response is None:
            await self._app(scope, _limited(receive), _with_headers(send))
        else:
            await response(scope, receive, _with_headers(send))

    def _refusal(self, scope: dict[str, Any]) -> Response | None:
        """The response to a request that must not reach a page; None if it may."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if headers.get("host") not in self._hosts:
            return _refused(scope, "This address belongs to another server.", 421)
        origin = headers.get("origin")
        is_ours = origin in {f"http://{host}" for host in self._hosts}
        if origin is not None and not is_ours:
            return _refused(scope, "A page of another site asked for this.")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in query if name == TOKEN), None)
        if given is not None and scope["method"] == "GET" and _same(given, self._keys.token):
            return self._let_in(scope, query)
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return _refused(scope, "A page of another site asked for this.")
        if not _same(_cookie_of(headers.get("cookie", ""), self._cookie), self._keys.cookie):
            return _refused(scope, "Open the address that holdfast ui printed: it contains the token.", 401)
        if scope["method"] in ("GET", "HEAD"):
            return None
        if scope["method"] != "POST" or not is_ours:
            return _refused(scope, "Only a page of this server may ask for this.")
        if self._read_only:
            return _refused(scope, "This page is read-only: holdfast ui was started with --read-only.")
        return None

    def _let_in(self, scope: dict[str, Any], query: list[tuple[str, str]]) -> Response:
        """Turn the token into a cookie, and leave it out of the address."""
        rest = urlencode([(name, value) for name, value in query if name != TOKEN])
        path = "/" + quote(scope["path"].lstrip("/"))  # never another host, as //host would be
        response = RedirectResponse(path + (f"?{rest}" if rest else ""), status_code=303)
        response.set_cookie(self._cookie, self._keys.cookie, httponly=True, samesite="strict", path="/")
        return response


def is_csrf(keys: ServerKeys, given: str) -> bool:
    """Whether a form comes from one of our pages."""
    return _same(given, keys.csrf)


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode())


def _cookie_of(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def _refused(scope: dict[str, Any], message: str, status: int = 403) -> Response:
    """A refusal that tells nothing, in the form that was asked for; `message` is ours, and needs no escaping."""
    if scope["path"].endswith(".json"):
        error = {"kind": "refused", "message": message, "hint": "", "remedy": None}
        return JSONResponse({"error": error}, status_code=status)
    return HTMLResponse(
        f'<!doctype html><html lang="en"><meta name="viewport" content="width=device-width">'
        f'<meta name="color-scheme" content="light dark"><title>Holdfast</title><h1>Refused</h1><p>{message}</p>',
        status_code=status,
    )


def _with_headers(send: Any) -> Any:
    async def sending(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in own]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending


def _limited(receive: Any) -> Any:
    """Receive at most `BODY_MAX_BYTES`; the rest of a larger body is dropped, and its form is not valid then."""
    taken = 0

    async def receiving() -> Any:
        nonlocal taken
        message = await receive()
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > BODY_MAX_BYTES:
                return {"type": "http.disconnect"}
        return message

    return receiving
