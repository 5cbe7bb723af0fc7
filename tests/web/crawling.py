"""Follows the links of pages."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

_NOT_PAGES = re.compile(r"/static/|/raw$")


def crawl(client: Any, start: str) -> dict[str, int]:
    """Return the status of every page that links lead to, and of each as JSON; one page of each form of address."""
    waiting, seen, found = [start], set(), {}
    while waiting:
        url = waiting.pop()
        path, query = urlsplit(url).path, parse_qs(urlsplit(url).query)
        form = (re.sub(r"/turn/[^/.]+", "/turn", path), *sorted(query), *query.get("what", []), *query.get("view", []))
        if form in seen:
            continue
        seen.add(form)
        answer = client.get(url)
        found[url] = answer.status_code
        if _NOT_PAGES.search(path) or path.endswith(".json"):
            if path.endswith(".json") and answer.status_code == 200:
                answer.json()
            continue
        for link in re.findall(r'(?:href|data-lazy|data-tree|src)="(/[^"]*)"', answer.text):
            waiting.append(html.unescape(link))
    return found
