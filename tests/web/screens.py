"""Makes the pictures in `docs/`, of a session that is played for them: `make screens`."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, ViewportSize, sync_playwright

from .sessions import Session, environment, open_workspace, play
from .test_browser import CHROMIUM, FLAGS

SIZE: ViewportSize = {"width": 1200, "height": 760}


def main(target: Path) -> None:
    """Play the session, start the command, and take the pictures."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-screens-") as scratch:
        folder = Path(scratch).resolve()
        environ = environment(folder)
        session = play(folder, environ)
        go_another_way(session, environ)
        call = [sys.executable, "-m", "holdfast.cli", "ui", "--no-open"]
        run = subprocess.Popen(call, cwd=session.project, env=environ, stdout=subprocess.PIPE)
        assert run.stdout is not None
        try:
            address = run.stdout.readline().decode().strip()
            with sync_playwright() as driver:
                browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                take(browser.new_page(viewport=SIZE, reduced_motion="reduce"), address, target)
                dark = browser.new_context(viewport=SIZE, reduced_motion="reduce", color_scheme="dark")
                page = dark.new_page()
                page.goto(address)
                page.get_by_text("The cart ignores the discount").click()
                page.get_by_role("link", name="Side by side").click()
                page.screenshot(path=target / "dark.png")
                browser.close()
        finally:
            run.send_signal(signal.SIGINT)
            run.wait(20)


def go_another_way(session: Session, environ: dict[str, str]) -> None:
    """Restore an older state and work on from there, so that the timeline has a branch."""
    workspace = open_workspace(session.project, environ)
    before = next(each for each in workspace.list(None) if each.message == "switch to kronor")
    workspace.restore(before.id)
    session.prompt("Print the total as JSON, without touching the configuration.")
    session.say("assistant", {"type": "text", "text": "Only src/app.py has to change."})
    text = "import json\n\nfrom cart import total\n\nprint(json.dumps({'total': total([1, 2, 3])}))\n"
    session.write("src/app.py", text)


def take(page: Page, address: str, target: Path) -> None:
    """The pictures in daylight."""
    page.goto(address)
    page.screenshot(path=target / "timeline.png")
    page.get_by_text("The cart ignores the discount").click()
    page.screenshot(path=target / "turn.png")
    page.locator(".hunk", has_text="-17,1").get_by_role("link", name="Take back").click()
    page.locator(".plan button").wait_for()
    page.screenshot(path=target / "plan.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
