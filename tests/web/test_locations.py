"""Flow stores, training runs and indexes on the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from holdfast.flow import Checkpoint, CheckpointMetadata, open_states
from holdfast.web.app import make_app
from holdfast.web.charts import Series, draw
from holdfast.web.places import Places
from holdfast.web.rendering import Templates
from holdfast.web.security import Keys
from holdfast.web.site import Site

from .conftest import PORT
from .sessions import environment

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Client:
    """The page over some locations."""

    def __init__(self, addresses: list[str], environ: dict[str, str]) -> None:
        self.keys = Keys()
        self.places = Places(addresses, environ, Path(environ["HOME"]))
        site = Site(self.places, self.keys, Templates(self.keys, read_only=False))
        self.client = TestClient(make_app(site, PORT), base_url=f"http://127.0.0.1:{PORT}")
        self.client.get("/home", params={"token": self.keys.token})

    def get(self, page: str = "", /, number: int = 0, **query: Any) -> Any:
        return self.client.get(f"/l/{self.places.named[number].key}{page}", params=query)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path)


def printed(environ: dict[str, str], *words: str) -> Any:
    call = [sys.executable, "-m", "holdfast.cli", *words, "--json"]
    return json.loads(subprocess.run(call, env=environ, capture_output=True, check=True).stdout)


class TestFlow:
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        url = f"sqlite:///{tmp_path / 'state.db'}"
        with open_states(url) as states:
            for step in range(1, 6):
                state = {"messages": [f"m{at}" for at in range(step)], "<b>": {"n": step, "deep": {"er": [1, 2]}}}
                told = CheckpointMetadata(f"c{step}", "talk", timestamp=NOON, node_name="n", step=step)
                states.save(Checkpoint(told, state))
            many = CheckpointMetadata("big", "large", timestamp=NOON, node_name="n", step=1)
            states.save(Checkpoint(many, {"rows": list(range(1_000_000))}))
        return url

    def test_sessions_and_their_steps(self, url: str, environ: dict[str, str]) -> None:
        client = Client([url], environ)
        assert (
            "talk" in client.client.get("/home").text or client.places.named[0].title in client.client.get("/home").text
        )
        assert ">talk" in client.get().text.replace("\n", "")
        assert client.get(".json").json()["items"] == printed(environ, "log", url)["items"]
        steps = client.get(session="talk").text
        assert "c5" in steps
        wanted = printed(environ, "log", url, "--session", "talk")["items"]
        assert client.get(".json", session="talk").json()["items"] == wanted

    def test_a_session_is_a_line_of_steps(self, tmp_path: Path, environ: dict[str, str]) -> None:
        url = f"sqlite:///{tmp_path / 'line.db'}"
        with open_states(url) as states:
            for step in (1, 2, 3):
                parent = f"c{step - 1}" if step > 1 else None
                at = NOON + timedelta(seconds=step**2 * 10)
                told = CheckpointMetadata(f"c{step}", "talk", at, f"node-{step}", step, parent_id=parent)
                states.save(Checkpoint(told, {"n": "x" * 100 * step}))
            again = CheckpointMetadata("again", "talk", NOON + timedelta(hours=3), "node-2", 2, parent_id="c1")
            states.save(Checkpoint(again, {"n": 1}))
            states.fork("talk", "c2", into="other<b>")
            states.save(Checkpoint(CheckpointMetadata("x", "third", NOON.replace(tzinfo=None), "n", 1), {}))
        client = Client([url], environ)
        text = client.get(session="talk").text
        rows = re.findall(r"<li class=\"row.*?</li>", text, re.DOTALL)
        assert [re.findall(r"<p class=\"head\"><a[^>]*>([^<]*)<", row)[0] for row in rows] == [
            "again", "c3", "other&lt;b&gt;", "c2", "c1",
        ]  # fmt: skip
        assert "took 2 h 59 min" in rows[0]
        assert "took 50 s" in rows[1]
        assert "fork" in rows[2]
        assert "took 30 s" in rows[3]
        assert "took" not in rows[4]
        assert [row.count("<i></i>") for row in rows] == [1] * 5
        assert "across" in rows[3]  # where the fork leaves the line
        assert "across" in rows[4]  # where `again` does
        assert "B</span>" in rows[0]
        assert "from <a" in client.get(session="other<b>").text
        document = client.get(".json", session="talk").json()["items"]
        assert [each["seconds"] for each in document] == [10790.0, 50.0, 30.0, None]
        assert all(each["bytes"] > 0 for each in document)
        assert ">x</a>" in client.get(session="third").text

    def test_a_line_goes_on_on_the_next_page(self, url: str, environ: dict[str, str]) -> None:
        client = Client([url], environ)
        first = client.get(session="talk", limit=2).text
        assert first.count('<span class="lane up down node">') == 1
        assert "Older" in first

    def test_a_state_opens_piece_by_piece(self, url: str, environ: dict[str, str]) -> None:
        client = Client([url], environ)
        page = client.get("/checkpoint", session="talk", ref="c5").text
        assert "messages" in page
        assert "&lt;b&gt;" in page
        assert "<code>m4</code>" not in page  # not opened yet
        assert "m4" in client.get("/state", session="talk", ref="c5", at="0").text
        assert ">2<" in client.get("/state", session="talk", ref="c5", at="1.1.0").text
        assert client.get("/state", session="talk", ref="c5", at="9").status_code == 404
        assert client.get("/state", session="talk", ref="c5", at="x").status_code == 404

    def test_a_state_with_a_million_entries(self, url: str, environ: dict[str, str]) -> None:
        client = Client([url], environ)
        page = client.get("/checkpoint", session="large", ref="big").text
        assert "[1,000,000]" in page
        assert len(page) < 20_000
        part = client.get("/state", session="large", ref="big", at="0", start=500_000).text
        assert "500099" in part
        assert "499,900 more" in part

    def test_diff_between_steps(self, url: str, environ: dict[str, str]) -> None:
        client = Client([url], environ)
        assert "m4" in client.get("/compare", session="talk", a="c4", b="c5").text
        wanted = printed(environ, "diff", url, "--session", "talk", "c4", "c5")
        assert client.get("/compare.json", session="talk", a="c4", b="c5").json() == wanted

    def test_fork_from_a_step(self, url: str, environ: dict[str, str]) -> None:
        client = Client([url], environ)
        fields = {"csrf": client.keys.csrf, "session": "talk", "ref": "c2", "into": "other"}
        address = f"/l/{client.places.named[0].key}/fork"
        origin = {"origin": f"http://127.0.0.1:{PORT}"}
        assert client.client.post(address, data=fields).status_code == 403
        answer = client.client.post(address, data=fields, headers=origin)
        assert answer.status_code == 200
        with open_states(url) as states:
            found = states.load("other")
            assert found is not None
            assert found.state["messages"] == ["m0", "m1"]
        assert client.client.post(address, data=fields, headers=origin).status_code == 409

    def test_usage_and_errors(self, url: str, environ: dict[str, str]) -> None:
        client = Client([url], environ)
        assert client.get("/usage").status_code == 200
        assert client.get(session="nope").status_code == 404
        assert client.get("/checkpoint", session="talk", ref="nope").status_code == 404


class TestTraining:
    @pytest.fixture
    def runs(self, tmp_path: Path) -> list[str]:
        torch = pytest.importorskip("torch")
        from holdfast.training import save_checkpoint

        for name, factor in (("run-a", 1.0), ("run-b", 2.0)):
            for step in range(1, 9):
                state = {"w": torch.ones(5) * step, "frozen": torch.ones(3)}
                loss = factor / step
                save_checkpoint(tmp_path / name, step, state, metrics={"loss": loss}, best_key="loss", rng=False)
        return [str(tmp_path / "run-a"), str(tmp_path / "run-b")]

    def test_metrics_are_plotted(self, runs: list[str], environ: dict[str, str]) -> None:
        client = Client(runs, environ)
        page = client.get().text
        assert page.count("<polyline") == 1
        assert "best" in page
        both = client.get(**{"with": client.places.named[1].key}).text
        assert both.count("<polyline") == 2
        assert "run-b" in both
        zoomed = client.get(**{"from": "3", "to": "5"}).text
        assert "steps 3 to 5" in zoomed
        assert client.get(**{"from": "x"}).status_code == 400
        assert client.get(".json").json()["items"] == printed(environ, "log", runs[0])["items"]

    def test_tensors_are_compared(self, runs: list[str], environ: dict[str, str]) -> None:
        client = Client(runs, environ)
        page = client.get("/compare", a="1", b="8").text
        assert "w" in page
        assert "1 tensor the same" in page
        assert "tensors" in client.get("/checkpoint", ref="best").text
        assert client.get("/usage").status_code == 200


def test_charts_leave_out_what_is_no_number() -> None:
    assert draw("loss", [Series("a", [(1.0, float("nan")), (float("inf"), 1.0)])]) is None
    one = draw("loss", [Series("a", [(1.0, 2.0)])])
    assert one is not None
    assert "nan" not in one.lines[0].path


def test_an_index(tmp_path: Path, environ: dict[str, str]) -> None:
    project = tmp_path / "notes"
    (project / "docs").mkdir(parents=True)
    (project / "docs" / "cats.md").write_text("Cats purr and sleep.")
    (project / "words.py").write_text("def embed(texts):\n    return [[1.0] * 8 for text in texts]\n")
    (project / "holdfast.toml").write_text(
        '[index]\ninclude = ["*.md"]\n[index.embed.dense]\ncall = "words:embed"\nmodel = "words-1"\nusd_per_mtok = 0\n'
    )
    call = [sys.executable, "-m", "holdfast.cli", "index", "apply", "--yes"]
    subprocess.run(call, cwd=project, env=environ | {"PYTHONPATH": str(project)}, check=True, capture_output=True)
    folder = next(path for path in project.iterdir() if (path / "ledger.db").exists())
    client = Client([os.fspath(folder)], environ)
    assert "live" in client.get().text
    assert "docs" not in client.get("/nope").text
    assert client.get(".json").json()["items"] == printed(environ, "log", os.fspath(folder))["items"]
    assert "words" in client.get("/checkpoint", ref="latest").text or client.get("/checkpoint").status_code == 200
    assert client.get("/usage").status_code == 200
