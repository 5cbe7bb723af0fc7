"""The documentation site: `make docs` builds it without a warning, and it needs nothing from elsewhere."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT, pages

PUBLIC = ["", ".workspace", ".model", ".project", ".flow", ".training", ".indexing", ".serde", ".importers"]
"""The modules whose `__all__` is all that they promise."""
_IMPORTED = re.compile(r"^from (holdfast[\w.]*) import ([\w, ]+?)(?: *#.*)?$", re.MULTILINE)
NO_DOCSTRING_OF_THEIR_OWN = {"JSON", "__version__"}  # a type alias; a text


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.mark.extras
def test_every_page_is_built_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))  # and 404.html
    for page in pages:
        text = page.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"?([^\" >]+)|<link[^>]* href=\"?([^\" >]+)", text)
        assert loaded
        assert not [each for pair in loaded for each in pair if "//" in each], page.name


@pytest.mark.browser
def test_search_and_copying_work_from_a_disk(site: Path) -> None:
    from playwright.sync_api import expect, sync_playwright  # the browser tests alone need it

    chromium = os.environ.get("HOLDFAST_TEST_CHROMIUM", "/usr/bin/chromium")
    if not Path(chromium).exists() and not os.environ.get("CI"):
        pytest.skip(f"there is no {chromium}")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.get_by_placeholder("Search").click()
        page.keyboard.type("tombstone")
        expect(page.locator(".md-search-result__item").first).to_contain_text("tombstone", timeout=30_000)
        page.goto((site / "index.html").as_uri())
        page.get_by_placeholder("Search").click()
        page.keyboard.type("restore")
        first = page.locator(".md-search-result__link").first  # who searches wants to use it, not to change it
        expect(first).to_have_attribute("href", re.compile(r"/cli\.html"), timeout=30_000)
        page.goto((site / "tutorials" / "coding-agent.html").as_uri())
        page.evaluate("addEventListener('copy', () => { copied = document.activeElement.value })")
        page.locator(".md-code__button").nth(1).click()
        assert page.evaluate("copied") == "holdfast install claude-code"  # what is typed, without prompt and output
        browser.close()
    assert asked
    assert all(url.startswith(("file:", "blob:", "data:", "about:")) for url in asked), asked


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring_and_a_place(name: str) -> None:
    if name == ".training":
        pytest.importorskip("blake3")
    module = importlib.import_module(f"holdfast{name}")
    shown = _shown()
    for each in sorted(set(module.__all__) - NO_DOCSTRING_OF_THEIR_OWN):
        value = getattr(module, each)
        assert any(value is other for other in shown), f"docs/reference has no {module.__name__}.{each}"
        assert _docstring(value), f"{module.__name__}.{each} has no docstring"
        for method in _public_methods(value) if inspect.isclass(value) else ():
            assert inspect.getdoc(getattr(value, method)), f"{module.__name__}.{each}.{method} has no docstring"


@pytest.mark.extras
def test_every_name_that_a_page_imports_is_in_the_reference() -> None:
    shown, missing, found = _shown(), set(), 0
    for page in pages():
        for module, names in _IMPORTED.findall(page.text):
            if module.startswith("holdfast.compat") or "internals" in page.path.parts:
                continue  # names of others; for developers
            for name in names.split(", "):
                found += 1
                value = getattr(importlib.import_module(module), name)
                if not inspect.ismodule(value) and not any(value is other for other in shown):
                    missing.add(f"{module}.{name}")
    assert not missing
    assert found > 30


def _shown() -> list[object]:
    """What the reference shows."""
    told = "\n".join(path.read_text("utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
    shown = []
    for name in re.findall(r"^::: (\S+)$", told, re.MULTILINE):
        module, _, last = name.rpartition(".")
        with contextlib.suppress(ImportError):  # of an extra that is not installed
            shown.append(getattr(importlib.import_module(module), last))
    return shown


def _public_methods(value: type) -> list[str]:
    """The methods and properties that a class defines itself."""
    found = []
    for name, each in vars(value).items():
        function = each.fget if isinstance(each, property) else getattr(each, "__func__", each)
        if not name.startswith("_") and inspect.isfunction(function) and function.__module__ == value.__module__:
            found.append(name)
    return found


def _docstring(value: object) -> str | None:
    """The docstring that was written for it, not that of its type, nor the one that a dataclass generates."""
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return str(value)  # a constant: the page shows its value
    text = value.__doc__ or ""
    return "" if text.startswith(f"{value.__name__}(") else text
