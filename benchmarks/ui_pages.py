"""What pages of the browser cost: the first page of 10,000 checkpoints, a turn of 50 files, 100 events a second.

    python benchmarks/ui_pages.py            # processor time of the server, and sizes
    python benchmarks/ui_pages.py --browser  # also a page in Chromium while 100 checkpoints a second arrive for 20 s

Processor time of the server's process (user and system): what else the machine does hardly changes it. *First ever* is
a store whose turns nobody has looked at yet, in a server that just started; it contains what the server prepares by
itself meanwhile. *Cold* is a server that just started, over a store that was looked at before. Half a minute on an idle
machine, in a temporary folder.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent))
from holdfast.workspace import Workspace
from report import verdict
from ui_use import HOLDFAST, Area, Client
from upkeep import generate

GOAL_MS, GOAL_KB = 300, 200
TURNS, EVENTS, PER_SECOND = 5, 2_000, 100
CHROMIUM = os.environ.get("HOLDFAST_TEST_CHROMIUM", "/usr/bin/chromium")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--browser", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-ui-pages-") as folder:
        area = Area(Path(folder).resolve(), options.checkpoints, 0)
        _turn(area, options.rounds)
        _first_page(area, options.rounds)
        if options.browser:
            _events(area)


class Server:
    """A server over one folder."""

    def __init__(self, area: Area, folder: Path) -> None:
        call = [*HOLDFAST, "ui", "--no-open", str(folder)]
        self.process = subprocess.Popen(call, cwd=folder, env=area.environ, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().decode().strip()

    def spent(self) -> float:
        """Its processor time, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def settle(self) -> None:
        """Wait until it has nothing to do any more."""
        last = -1.0
        while (now := self.spent()) != last:
            last = now
            time.sleep(0.5)


@contextlib.contextmanager
def _served(area: Area, folder: Path) -> Iterator[Server]:
    server = Server(area, folder)
    try:
        yield server
    finally:
        server.process.send_signal(signal.SIGINT)
        server.process.wait(60)


def _first_page(area: Area, rounds: int) -> None:
    first, cold, warm, sizes = [], [], [], []
    for number in range(rounds):
        home = area.folder / f"many-{number}"
        generate(home, area.checkpoints, store=None, environ=area.environ, home=area.folder / "home").list(1)
        for times in (first, cold):
            with _served(area, home / "project") as server:
                before = server.spent()
                client = Client(server.address)
                _, _, size = client.get(_page(server))
                times.append(server.spent() - before)
                sizes.append(size)
                server.settle()
                before = server.spent()
                for _ in range(10):
                    client.get(_page(server))
                warm.append((server.spent() - before) / 10)
    for name, times in (("first ever", first), ("cold", cold), ("warm", warm)):
        _tell(f"first page of {area.checkpoints:,} checkpoints, {name}", times)
    print(f"{'its size':<50} {max(sizes) / 1000:>8.0f} KB   {verdict(max(sizes) / 1000, GOAL_KB, unit=' KB')}")


def _turn(area: Area, rounds: int) -> None:
    folder = area.folder / "wide"
    for name in ("src", "docs"):
        (folder / name).mkdir(parents=True)
    area.shop = folder
    area.transcript.parent.mkdir(parents=True)
    area.turn(0, files=50)
    first, warm = [], []
    for number in range(1, rounds + 1):
        area.turn(number, files=50)
        with _served(area, folder) as server:
            server.settle()
            client = Client(server.address)
            body = client.get(_page(server))[1].decode()
            turn = re.findall(r'href="(/w/[^"]*/turn/[^"]*)"', body)[0]
            before = server.spent()
            _, shown, _ = client.get(turn)
            first.append(server.spent() - before)
            assert shown.count(b"<article") == 50, shown.count(b"<article")
            before = server.spent()
            for _ in range(10):
                client.get(turn)
            warm.append((server.spent() - before) / 10)
    _tell("turn of 50 files, the first time in a server", first)
    _tell("turn of 50 files, again", warm)


def _events(area: Area) -> None:
    """A timeline in Chromium, while checkpoints arrive: what it and the server spend in each fifth of the time."""
    from playwright.sync_api import sync_playwright

    home = area.folder / "events"
    ws = generate(home, 200 + EVENTS, store=None, environ=area.environ, home=area.folder / "home")
    refs = _unseen(ws, EVENTS)
    with _served(area, home / "project") as server, sync_playwright() as driver:
        server.settle()
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(server.address)
        page.evaluate(_FRAMES)
        metrics = page.context.new_cdp_session(page)
        metrics.send("Performance.enable")
        writer = threading.Thread(target=_arrive, args=(ws, refs))
        writer.start()
        began, spent, used = time.monotonic(), server.spent(), _task_seconds(metrics)
        print("100 checkpoints a second: processor time of the server, of the page, longest task, elements")
        for part in range(1, TURNS + 1):
            page.wait_for_timeout(max(0.0, (began + part * EVENTS / PER_SECOND / TURNS - time.monotonic())) * 1000)
            now, task = server.spent(), _task_seconds(metrics)
            longest, nodes = page.evaluate("[takeLongest(), document.querySelectorAll('*').length]")
            print(
                f"  {part} of {TURNS}: server {now - spent:5.2f} s, page {task - used:5.2f} s, "
                f"longest {longest:4.0f} ms, {nodes:,} elements",
                flush=True,
            )
            spent, used = now, task
        writer.join()
        page.wait_for_selector(f"[data-key='{refs[-1][0]}']", timeout=60_000)
        print("  the last one is shown")
        browser.close()


_FRAMES = """
(() => {
  let longest = 0;
  const see = (list) => { for (const each of list.getEntries()) longest = Math.max(longest, each.duration); };
  new PerformanceObserver(see).observe({ type: "longtask" });
  window.takeLongest = () => { const found = longest; longest = 0; return found; };
})()
"""


def _task_seconds(session: Any) -> float:
    found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return float(found["TaskDuration"])


def _unseen(ws: Workspace, count: int) -> list[tuple[str, str]]:
    """Take the refs of the newest checkpoints away: their objects stay, and they arrive when the ref is written."""
    tags = ws.store / "refs" / "tags"
    found = [(name, (tags / name).read_text()) for name in sorted(os.listdir(tags))[-count:]]
    for name, _ in found:
        (tags / name).unlink()
    return found


def _arrive(ws: Workspace, refs: list[tuple[str, str]]) -> None:
    began = time.monotonic()
    for number, (name, commit) in enumerate(refs):
        time.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
        (ws.store / "refs" / "tags" / name).write_text(commit)


def _page(server: Server) -> str:
    return urlsplit(server.address).path


def _tell(name: str, times: list[float]) -> None:
    median, most = statistics.median(times) * 1000, max(times) * 1000
    print(f"{name:<50} {median:>8.0f} ms, most {most:.0f} ms   {verdict(median, GOAL_MS, unit=' ms')}", flush=True)


if __name__ == "__main__":
    main()
