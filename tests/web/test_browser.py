"""The page in a real browser: the whole story, keys, live updates, narrow and dark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect, sync_playwright

from holdfast.workspace import Workspace

from .sessions import Session

pytestmark = pytest.mark.browser
CHROMIUM = os.environ.get("HOLDFAST_TEST_CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


SHIFTS = """
new Promise((done) => {
  let total = 0;
  new PerformanceObserver((list) => { for (const each of list.getEntries()) total += each.value; })
    .observe({ type: "layout-shift", buffered: true });
  requestAnimationFrame(() => requestAnimationFrame(() => done(total)));
})
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not Path(CHROMIUM).exists():
        if os.environ.get("CI"):
            pytest.fail(f"there is no {CHROMIUM}")
        pytest.skip(f"there is no {CHROMIUM}")
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def address(session: Session, environ: dict[str, str]) -> Iterator[str]:
    """The address that the command prints."""
    call = [sys.executable, "-m", "holdfast.cli", "ui", "--no-open"]
    run = subprocess.Popen(call, cwd=session.project, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout is not None
    yield run.stdout.readline().decode().strip()
    run.send_signal(signal.SIGINT)
    _, told = run.communicate(timeout=20)
    assert b"Traceback" not in told, told.decode()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = context.new_page()
    wrong: list[str] = []
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    found.goto(address)
    yield found
    assert not wrong
    context.close()


def test_from_a_session_to_one_hunk_to_undo(page: Page, session: Session) -> None:
    cart = session.project / "src" / "cart.py"
    written = cart.read_text()
    page.get_by_text("The cart ignores the discount").click()
    page.locator(".hunk", has_text="-17,1").get_by_role("link", name="Take back").click()
    page.locator(".plan").get_by_role("button", name="Take back").click()
    expect(page.locator(".banner")).to_contain_text("Took back 1 hunk of src/cart.py")
    assert cart.read_text() == written.replace("4.9 if weight_kg <= 2 else 7.5", "4.9 if weight_kg < 2 else 8.9")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".banner")).to_contain_text("Undone")
    assert cart.read_text() == written
    page.get_by_role("button", name="Redo").click()
    expect(page.locator(".banner")).to_contain_text("Done again")
    assert "weight_kg < 2" in cart.read_text()


def test_the_place_and_the_focus_stay(page: Page, session: Session) -> None:
    """What was taken back stays in view, and the banner is seen wherever the page was scrolled to."""
    top = "(each) => each.getBoundingClientRect().top"
    page.set_viewport_size({"width": 1280, "height": 500})
    page.get_by_text("The cart ignores the discount").click()
    link = page.locator(".hunk", has_text="-17,1").get_by_role("link", name="Take back")
    link.evaluate("(each) => scrollTo({ top: scrollY + each.getBoundingClientRect().top - 250, behavior: 'instant' })")
    link.click()
    page.locator(".plan").get_by_role("link", name="Cancel").click()
    expect(link).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".plan button.primary")).to_be_focused()
    before = link.evaluate(top)
    page.keyboard.press("Enter")
    expect(page.locator(".banner")).to_contain_text("Took back 1 hunk")
    expect(page.locator(".banner")).to_be_in_viewport()
    expect(link).to_be_focused()
    assert abs(link.evaluate(top) - before) < 3
    assert page.evaluate("scrollY") > 0
    page.get_by_role("button", name="Undo").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".banner")).to_contain_text("Undone")
    expect(page.get_by_role("button", name="Redo")).to_be_focused()
    assert abs(link.evaluate(top) - before) < 3
    page.get_by_role("link", name="Timeline", exact=True).click()
    expect(page.locator(".row").first).to_be_visible()
    assert page.evaluate("scrollY") == 0  # another page begins at its top


def test_a_plan_can_be_cancelled(page: Page, session: Session) -> None:
    before = (session.project / "src" / "cart.py").read_bytes()
    page.get_by_text("The cart ignores the discount").click()
    page.get_by_role("link", name="Take back this turn").click()
    page.locator(".plan").get_by_role("link", name="Cancel").click()
    expect(page.locator(".plan")).to_have_count(0)
    assert (session.project / "src" / "cart.py").read_bytes() == before


def test_new_checkpoints_appear_by_themselves(page: Page, session: Session, workspace: Workspace) -> None:
    expect(page.locator(".row")).to_have_count(4)
    (session.project / "README.md").write_text("# Shop\n\nSells algae.\n")
    workspace.save("algae")
    expect(page.locator(".row").first).to_contain_text("algae", timeout=15_000)
    session.prompt("More algae.")
    session.write("algae.txt", "more\n")
    expect(page.locator(".row").first).to_contain_text("More algae.", timeout=15_000)
    expect(page.locator(".row")).to_have_count(6)


def test_what_is_saved_before_the_events_begin(page: Page, session: Session, workspace: Workspace) -> None:
    expect(page.locator(".row")).to_have_count(4)

    def save_first(route: Route) -> None:
        if not (session.project / "kelp.txt").exists():
            (session.project / "kelp.txt").write_text("kelp\n")
            workspace.save("kelp")
        route.continue_()

    page.route("**/events", save_first)
    page.reload()
    expect(page.locator(".row").first).to_contain_text("kelp", timeout=15_000)


def test_a_tab_that_nobody_sees_has_no_connection(page: Page, session: Session, workspace: Workspace) -> None:
    def become(state: str) -> None:
        page.evaluate(f"Object.defineProperty(document, 'hidden', {{value: {state}, configurable: true}})")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    expect(page.locator(".row")).to_have_count(4)
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/events")):
        become("true")
    (session.project / "kelp.txt").write_text("kelp\n")
    workspace.save("kelp")
    with page.expect_request("**/events"):
        become("false")
    expect(page.locator(".row").first).to_contain_text("kelp", timeout=15_000)


def press(page: Page, key: str) -> None:
    """Press a key once the page listens: after a navigation, its script runs when all of it was read."""
    page.wait_for_load_state("load")
    page.keyboard.press(key)


def test_the_keyboard_alone(page: Page, session: Session) -> None:
    for _ in range(3):
        press(page, "j")
    expect(page.locator(".row.chosen")).to_contain_text("The cart ignores")
    press(page, "Enter")
    expect(page.locator("h1")).to_contain_text("The cart ignores")
    press(page, "j")
    press(page, "j")
    expect(page.locator(".file.chosen")).to_contain_text("src/cart.py")
    press(page, "x")
    expect(page.locator(".plan button.primary")).to_be_focused()
    press(page, "Enter")
    expect(page.locator(".banner")).to_contain_text("Took back src/cart.py")
    assert "len(prices) > 50" not in (session.project / "src" / "cart.py").read_text()
    press(page, "s")
    expect(page.locator("table.split").first).to_be_visible()
    press(page, "ArrowRight")
    expect(page.locator("h1")).to_contain_text("switch to kronor")
    press(page, "ArrowLeft")
    expect(page.locator("h1")).to_contain_text("The cart ignores")
    press(page, "?")
    expect(page.locator("#keys")).to_be_visible()
    press(page, "Escape")
    press(page, "u")
    expect(page).to_have_url(re.compile("/timeline"))
    press(page, "/")
    page.keyboard.type("kronor")
    press(page, "Enter")
    expect(page.locator(".row")).to_have_count(1)


def test_lines_are_loaded_when_they_come_into_view(page: Page, session: Session, workspace: Workspace) -> None:
    for text in ("x = 1\n" * 100, "x = 2\n" * 100):
        for number in range(40):
            (session.project / f"f{number:02}.py").write_text(text)
        saved = workspace.save("much")
    page.goto(page.url.replace("/timeline", f"/turn/{saved.id}"))
    last = page.locator("article").last
    expect(last.locator("tr")).to_have_count(0)
    last.scroll_into_view_if_needed()
    expect(last.locator("tr.added")).to_have_count(100)


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (2560, "dark")])
def test_every_page_fits(browser: Any, address: str, width: int, scheme: str, tmp_path: Path) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    turn = page.locator(".row .head a").nth(2).get_attribute("href")
    base = page.url.rpartition("/")[0]
    names = ["timeline", "compare?a=baseline&view=split", "files", "files?path=src/cart.py", "blame?path=src/cart.py"]
    names.append("files?path=docs/cart.png")
    urls = [f"{base}/{name}" for name in [*names, "search?q=total", "coverage", "usage", "history?path=src/cart.py"]]
    origin = re.match(r"https?://[^/]*", page.url)
    assert origin
    for url in [*urls, f"{origin[0]}{turn}", f"{origin[0]}/home", f"{origin[0]}/nope"]:
        page.goto(url)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, url
        assert page.evaluate(SHIFTS) < 0.001, url
        tall = "[...document.querySelectorAll('.top nav a')].filter((each) => each.offsetHeight > 40).length"
        assert page.evaluate(tall) == 0, url  # no word is broken
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        assert dark == (scheme == "dark")
        page.screenshot(path=tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 5_000
    context.close()


def test_no_serious_finding_of_axe(page: Page) -> None:
    axe = Path(os.environ.get("HOLDFAST_TEST_AXE", "build/axe/node_modules/axe-core/axe.min.js"))
    if not axe.exists():
        if os.environ.get("CI"):
            pytest.fail(f"there is no {axe}")
        pytest.skip(f"there is no {axe}: npm install --prefix build/axe axe-core")
    base = page.url.rpartition("/")[0]
    turn = page.locator(".row .head a").nth(2).get_attribute("href") or ""
    names = ["timeline", "compare?a=baseline", "compare?a=baseline&view=split", "files", "files?path=src/cart.py"]
    names += ["blame?path=src/cart.py", "search?q=total", "coverage", "usage", "history?path=src/cart.py"]
    names += ["plan?what=after&ref=baseline", f"turn/{turn.rpartition('/')[2]}", "nope"]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for url in [*(f"{base}/{name}" for name in names), base.partition("/w/")[0] + "/home"]:
            page.goto(url)
            page.context.new_cdp_session(page).send("Runtime.evaluate", {"expression": f"{axe.read_text()};0"})
            found = page.evaluate("axe.run().then(r => r.violations.map(v => [v.impact, v.id, v.nodes[0].html]))")
            assert not [each for each in found if each[0] in ("serious", "critical")], url
