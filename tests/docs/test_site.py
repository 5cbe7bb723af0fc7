"""The documentation site: `make docs` builds it without a warning, and it needs nothing from elsewhere."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT

PUBLIC = ["", ".workspace", ".model", ".project", ".flow", ".training", ".indexing"]  # each with an `__all__`
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
    told = "\n".join(path.read_text("utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
    shown = {each.rpartition(".")[2] for each in re.findall(r"^::: (\S+)$", told, re.MULTILINE)}
    public = set(module.__all__) - NO_DOCSTRING_OF_THEIR_OWN
    assert public <= shown, f"docs/reference has no {sorted(public - shown)}"
    for each in sorted(public):
        value = getattr(module, each)
        assert _docstring(value), f"{module.__name__}.{each} has no docstring"
        for method, function in vars(value).items() if inspect.isclass(value) else ():
            if not method.startswith("_") and inspect.isfunction(function) and function.__module__ == value.__module__:
                assert inspect.getdoc(getattr(value, method)), f"{module.__name__}.{each}.{method} has no docstring"


def _docstring(value: object) -> str | None:
    """The docstring that was written for it, not that of its type, nor the one that a dataclass generates."""
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return str(value)  # a constant: the page shows its value
    text = value.__doc__ or ""
    return "" if text.startswith(f"{value.__name__}(") else text
