"""What MkDocs calls while it builds the site."""

from __future__ import annotations

from typing import Any

_WEIGHTS = {"tutorials/": 2, "how-to/": 2, "cli.md": 2, "reference/": 0.5, "decisions/": 0.1, "internals/": 0.3}
"""How much a page counts in the search, by its name or folder; others count 1. Who searches wants to use
Holdfast, not to change it."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Weigh the page in the search."""
    for start, weight in _WEIGHTS.items():
        if page.file.src_uri.startswith(start):
            page.meta.setdefault("search", {"boost": weight})
    return markdown
