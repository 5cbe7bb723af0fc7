"""Flow stores, training runs and indexes in a real browser; and that many events and large states leave it quick."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from holdfast.flow import Checkpoint, CheckpointMetadata, open_states
from waiting import wait_for

from .places import make_places
from .sessions import environment
from .test_browser import SHIFTS, browser, press  # noqa: F401  # a fixture

pytestmark = pytest.mark.browser
_PAGES = {
    "state.db": ["", "?session=support-41", "/checkpoint?session=support-41&ref=s5", "/usage", "/verify"],
    "base": ["", "/checkpoint?ref=best", "/compare?a=100&b=latest", "/usage", "/verify"],
    "lab/.holdfast-index": ["", "/search?q=kelp", "/plan", "/runs", "/checkpoint", "/usage", "/verify"],
}


class Lab:
    """A running page over a project with one location of each kind."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.origin = address.partition("/w/")[0]
        self.links: dict[str, str] = {}

    def enter(self, page: Page) -> None:
        page.goto(self.address)
        page.goto(f"{self.origin}/home")
        found = page.locator(".card h2 a").all()
        self.links = {each.inner_text(): each.get_attribute("href") or "" for each in found}

    def url(self, name: str, rest: str = "") -> str:
        return f"{self.origin}{self.links[name]}{rest}"

    def every_url(self) -> list[str]:
        return [f"{self.origin}/home", *(self.url(name, rest) for name, each in _PAGES.items() for rest in each)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("places").resolve()
    environ = environment(folder)
    project = folder / "lab"
    make_places(project, environ)
    with open_states(f"sqlite:///{project / 'state.db'}") as states:
        told = CheckpointMetadata("big", "large", _noon(), "read", 1)
        states.save(Checkpoint(told, {"rows": list(range(1_000_000))}))
    call = [sys.executable, "-m", "holdfast.cli"]
    subprocess.run([*call, "save"], cwd=project, env=environ, check=True, capture_output=True)
    run = subprocess.Popen([*call, "ui", "--no-open"], cwd=project, env=environ, stdout=subprocess.PIPE)
    assert run.stdout is not None
    yield Lab(run.stdout.readline().decode().strip())
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=60)


def _noon() -> Any:
    from datetime import UTC, datetime

    return datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def page(browser: Any, lab: Lab) -> Iterator[Page]:  # noqa: F811
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = context.new_page()
    found.set_default_timeout(120_000)
    lab.enter(found)
    yield found
    context.close()


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    expect.set_options(timeout=120_000)
    yield
    expect.set_options(timeout=5_000)


def test_a_session_with_its_forks(page: Page, lab: Lab) -> None:
    page.goto(lab.url("state.db"))
    page.get_by_role("link", name="support-41", exact=True).click()
    expect(page.locator(".row")).to_have_count(10)
    expect(page.locator(".row.fork")).to_contain_text("support-41-cheaper")
    press(page, "j")
    press(page, "j")
    press(page, "Enter")
    expect(page.locator("h1")).to_have_text("s8")
    page.locator("summary", has_text="messages").click()
    expect(page.locator(".tree .tree summary").first).to_be_visible()


def test_a_state_with_a_million_entries(page: Page, lab: Lab) -> None:
    page.goto(lab.url("state.db", "/checkpoint?session=large&ref=big"))
    page.locator("summary", has_text="rows").click()
    expect(page.locator(".tree .tree li")).to_have_count(101)
    page.locator("[data-more] a").click()
    expect(page.locator(".tree .tree li")).to_have_count(201)
    page.keyboard.press("Escape")
    page.locator("h1").click()
    press(page, "?")
    expect(page.locator("#keys")).to_be_visible()


def test_runs_over_each_other_and_a_range(page: Page, lab: Lab) -> None:
    page.goto(lab.url("base"))
    expect(page.locator(".charts polyline")).to_have_count(2)
    page.get_by_label("From step").fill("300")
    page.get_by_label("To step").fill("900")
    page.get_by_label("wide").check()
    page.get_by_role("button", name="Zoom").click()
    expect(page.locator(".charts polyline")).to_have_count(4)
    expect(page).to_have_url(re.compile(r"from=300&to=900&with=wide-"))
    assert "steps 300 to 900" in (page.locator(".charts svg").first.get_attribute("aria-label") or "")


def test_verify_goes_on_by_itself(page: Page, lab: Lab) -> None:
    page.goto(lab.url("base", "/verify"))
    page.get_by_role("button", name="Read every byte").click()
    expect(page.locator(".work .tag.green")).to_have_text("no damage")


def test_search_and_plan_of_an_index(page: Page, lab: Lab) -> None:
    page.goto(lab.url("lab/.holdfast-index", "/search"))
    press(page, "/")
    page.keyboard.type("holdfast")
    press(page, "Enter")
    expect(page.locator(".found li").first).to_contain_text("docs/kelp.md")
    page.get_by_role("link", name="Plan").click()
    page.get_by_role("button", name="Compute the plan").click()
    expect(page.locator(".work")).to_contain_text("docs/new.md")
    page.get_by_role("link", name="Runs").click()
    expect(page.locator(".work .tag.green")).to_have_text("done")


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (2560, "light")])
def test_every_page_fits_and_nothing_moves(browser: Any, lab: Lab, width: int, scheme: str) -> None:  # noqa: F811
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(120_000)
    lab.enter(page)
    timeline = lab.address.partition("?")[0]
    for url in [*lab.every_url(), timeline, f"{timeline.rpartition('/')[0]}/files"]:
        page.goto(url)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, url
        assert page.evaluate(SHIFTS) < 0.02, url
    context.close()


def test_no_serious_finding_of_axe(page: Page, lab: Lab) -> None:
    axe = Path(os.environ.get("HOLDFAST_TEST_AXE", "build/axe/node_modules/axe-core/axe.min.js"))
    if not axe.exists():
        if os.environ.get("CI"):
            pytest.fail(f"there is no {axe}")
        pytest.skip(f"there is no {axe}: npm install --prefix build/axe axe-core")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for url in lab.every_url():
            page.goto(url)
            page.context.new_cdp_session(page).send("Runtime.evaluate", {"expression": f"{axe.read_text()};0"})
            found = page.evaluate("axe.run().then(r => r.violations.map(v => [v.impact, v.id, v.nodes[0].html]))")
            assert not [each for each in found if each[0] in ("serious", "critical")], url


def test_one_update_at_a_time(page: Page, lab: Lab) -> None:
    """A server that answers slowly is not asked again before it has answered; what came meanwhile is shown after."""
    asked: list[Route] = []
    streams: list[Route] = []
    page.route("**/events", lambda route: streams.append(route))
    page.route("**fragment=rows**", lambda route: asked.append(route))
    page.clock.install()
    page.goto(lab.address.partition("?")[0])
    for number in range(3):
        wait_for(lambda wanted=number: page.evaluate("1") and len(streams) > wanted)
        told = json.dumps({"newest": f"a{number}-x"})
        streams[number].fulfill(content_type="text/event-stream", body=f"retry: 20\ndata: {told}\n\n")
        wait_for(lambda wanted=number: page.evaluate("1") and len(streams) > wanted + 1)
        page.clock.run_for(5_000)
    assert len(asked) == 1
    asked[0].continue_()
    wait_for(lambda: page.clock.run_for(1_000) or (page.evaluate("1") and len(asked) > 1))
    assert len(asked) == 2


def test_thousands_of_events_are_one_update(page: Page, lab: Lab) -> None:
    """However many events arrive, rows are asked for at most once a second, and replace those that were there."""
    told = "".join(f"data: {json.dumps({'newest': f'a{number}-x'})}\n\n" for number in range(5_000))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "fragment=rows" in request.url else None)
    streams: list[Route] = []
    page.route("**/events", lambda route: streams.append(route))  # it must be a function
    page.goto(lab.address.partition("?")[0])
    row = page.locator(".row")
    expect(row).to_have_count(1)
    page.evaluate("document.querySelector('.row').classList.add('old')")
    nodes = page.evaluate("document.querySelectorAll('*').length")
    wait_for(lambda: page.evaluate("1") and streams)
    streams[0].fulfill(content_type="text/event-stream", body=told)
    expect(page.locator(".row.old")).to_have_count(0)
    expect(row).to_have_count(1)
    assert len(asked) == 1
    assert page.evaluate("document.querySelectorAll('*').length") == nodes
