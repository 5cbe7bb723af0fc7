"""Flow stores, training runs and indexes on the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

from holdfast.errors import NotFound
from holdfast.flow import Checkpoint, CheckpointMetadata, Place, Write, open_states
from holdfast.flow.location import FlowLocation
from holdfast.indexing.ledger.sqlite import SQLiteLedger
from holdfast.web import locations
from holdfast.web.app import make_app
from holdfast.web.charts import Series, draw
from holdfast.web.jobs import Job
from holdfast.web.locations import LARGE_BYTES
from holdfast.web.places import NamedLocations
from holdfast.web.rendering import Templates
from holdfast.web.security import ServerKeys
from holdfast.web.site import Site
from waiting import wait_for

from .conftest import PORT
from .crawling import crawl
from .sessions import environment

HOSTILE = "<img src=x onerror=alert(1)>\"'&\u202e\u2066\x1b[31m\x07"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Client:
    """The page over some locations."""

    def __init__(self, addresses: list[str], environ: dict[str, str], *, read_only: bool = False) -> None:
        self.keys = ServerKeys()
        self.places = NamedLocations(addresses, environ, Path(environ["HOME"]))
        self.site = Site(self.places, self.keys, Templates(self.keys, read_only=read_only), read_only)
        self.client = TestClient(make_app(self.site, PORT), base_url=f"http://127.0.0.1:{PORT}")
        self.client.get("/home", params={"token": self.keys.token})

    def get(self, page: str = "", /, number: int = 0, **query: Any) -> Any:
        return self.client.get(f"/l/{self.places.named[number].key}{page}", params=query)

    def post(self, action: str, key: str = "", **fields: str) -> Any:
        headers = {"origin": f"http://127.0.0.1:{PORT}"}
        data = {"csrf": self.keys.csrf, **fields}
        return self.client.post(f"/l/{key or self.places.named[0].key}{action}", data=data, headers=headers)

    def when_shown(self, page: str, **query: Any) -> str:
        """A page when its work has ended."""
        return wait_for(lambda: "" if "data-poll" in (text := self.get(page, **query).text) else text)

    def when_done(self, page: str) -> Any:
        """What a page says in JSON when its job has ended."""

        def ended() -> Any:
            found = self.get(f"{page}.json").json()
            return None if found["job"]["running"] else found

        return wait_for(ended)


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

    def test_hostile_names_are_escaped(self, tmp_path: Path, environ: dict[str, str]) -> None:
        url = f"sqlite:///{tmp_path / 'hostile.db'}"
        told = CheckpointMetadata(HOSTILE, HOSTILE, NOON, HOSTILE, 1, tags=(HOSTILE,), namespace=HOSTILE)
        with open_states(url) as states:
            states.save(Checkpoint(told, {HOSTILE: [HOSTILE, {"n": HOSTILE}]}))
            again = CheckpointMetadata("b", HOSTILE, NOON, "n", 2, parent_id=HOSTILE, namespace=HOSTILE)
            states.save(Checkpoint(again, {HOSTILE: 1}))
            states.fork(HOSTILE, HOSTILE, into=f"fork {HOSTILE}", namespace=HOSTILE)
        client = Client([url], environ)
        within = {"session": HOSTILE, "namespace": HOSTILE}
        answers = [client.get(), client.get(session=HOSTILE), client.get("/checkpoint", ref=HOSTILE, **within)]
        answers += [client.get("/state", ref=HOSTILE, at="0", **within), client.get("/compare", **within)]
        answers += [client.get(session=f"fork {HOSTILE}"), client.get("/usage"), client.get("/verify", session=HOSTILE)]
        answers += [client.get(session=f"no {HOSTILE}"), client.get("/checkpoint", ref=f"no {HOSTILE}", **within)]
        for answer in answers:
            assert "<img src=x" not in answer.text
            assert not set("\u202e\u2066\x1b\x07") & set(answer.text), answer.url
            assert not re.search(r"<script(?! src=\"/static/)|<style|\sstyle=|\son[a-z]+=[\"']", answer.text), (
                answer.url
            )
        assert [answer.status_code for answer in answers] == [200] * 8 + [404] * 2

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

    def test_large_states_are_decoded_elsewhere(
        self, url: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server stays small: it never has such a state as a value."""
        wanted = printed(environ, "show", url, "--session", "large", "big")
        with open_states(url) as states:
            told = CheckpointMetadata("big2", "large", timestamp=NOON, node_name="n", step=2, parent_id="big")
            states.save(Checkpoint(told, {"rows": [0, "new", *range(2, 1_000_000)]}))
        difference = printed(environ, "diff", url, "--session", "large", "big", "big2")
        client = Client([url], environ)
        decoded = []
        for name in ("get", "diff"):
            monkeypatch.setattr(FlowLocation, name, lambda *words: decoded.append(words))
        page = client.get("/checkpoint", session="large", ref="big").text
        assert "[1,000,000]" in page
        assert f'<time datetime="{NOON.isoformat()}' in page
        assert "999899" in client.get("/state", session="large", ref="big", at="0", start=999_800).text
        assert client.get("/state", session="large", ref="big", at="7").status_code == 404
        assert client.get("/state.json", session="large", ref="big", at="7").status_code == 404
        assert "new" in client.get("/compare", session="large", a="big", b="big2").text
        assert client.get("/checkpoint.json", session="large", ref="big").json() == wanted
        rows = client.get("/state.json", session="large", ref="big", at="0").json()
        assert rows == {"value": list(range(1_000_000))}
        assert client.get("/compare.json", session="large", a="big", b="big2").json() == difference
        assert not decoded

    def test_what_is_large(self, url: str) -> None:
        """Of states their size as it is stored, and everything else that `get` decodes."""
        location = FlowLocation(url, {"session": "talk"})
        assert 0 < location.encoded_bytes("c5") < 1_000
        assert location.compared_bytes("c4", "c5") == location.encoded_bytes("c4") + location.encoded_bytes("c5")
        assert location.compared_bytes(None, None) == location.compared_bytes("c4", "c5")
        assert FlowLocation(url, {"session": "large"}).encoded_bytes(None) > LARGE_BYTES
        with open_states(url) as states:
            before = location.encoded_bytes("c5")
            states.put_writes(Place("talk", "", "c5"), [Write("task", 0, "channel", "x" * 200_000)])
            assert location.encoded_bytes("c5") > before + 200_000
            told = CheckpointMetadata("c6", "talk", timestamp=NOON, node_name="n", step=6, extra={"x": "y" * 200_000})
            states.save(Checkpoint(told, {}))
        assert location.encoded_bytes("c6") > 200_000
        with pytest.raises(NotFound):
            location.encoded_bytes("nope")

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

    def test_no_link_is_dead_and_every_page_is_json(self, url: str, environ: dict[str, str]) -> None:
        client = Client([url], environ)
        found = crawl(client.client, f"/l/{client.places.named[0].key}")
        assert {url: status for url, status in found.items() if status != 200} == {}
        reached = {urlsplit(url).path.rpartition("/")[2] for url in found}
        assert {"checkpoint.json", "compare.json", "verify.json", "usage.json", "state"} <= reached

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

    def test_no_link_is_dead_and_every_page_is_json(self, runs: list[str], environ: dict[str, str]) -> None:
        client = Client(runs, environ)
        found = crawl(client.client, "/home")
        assert {url: status for url, status in found.items() if status != 200} == {}
        reached = {urlsplit(url).path.rpartition("/")[2] for url in found}
        assert {"home.json", "checkpoint.json", "compare.json", "verify.json", "usage.json"} <= reached

    def test_tensors_are_compared(self, runs: list[str], environ: dict[str, str]) -> None:
        client = Client(runs, environ)
        page = client.when_shown("/compare", a="1", b="8")
        assert "w" in page
        assert client.get("/compare.json", a="1", b="8").json() == printed(environ, "diff", runs[0], "1", "8")
        assert client.get("/compare", a="1", b="77").status_code == 404
        assert "1 tensor the same" in page
        assert "tensors" in client.get("/checkpoint", ref="best").text
        assert client.get("/usage").status_code == 200

    def test_tensors_are_compared_once(
        self, runs: list[str], environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client, asked, ask = Client(runs, environ), [], NamedLocations.ask
        go_on = threading.Event()

        def counted(self: NamedLocations, *words: Any, **more: Any) -> Any:
            asked.append(words)
            assert go_on.wait(120)
            return ask(self, *words, **more)

        monkeypatch.setattr(NamedLocations, "ask", counted)
        monkeypatch.setattr(locations, "WAIT_S", 0.01)
        assert "Reading all tensors" in client.get("/compare", a="1", b="8").text
        assert "Reading all tensors" in client.get("/compare", a="1", b="8", fragment=1).text
        go_on.set()
        page = client.when_shown("/compare", a="1", b="8")
        assert "1 tensor the same" in page
        assert client.get("/compare", a="1", b="8", fragment=1).text in page
        assert len(asked) == 1
        import torch

        from holdfast.training import save_checkpoint

        save_checkpoint(Path(runs[0]), 9, {"w": torch.ones(3)}, rng=False)
        client.when_shown("/compare", a="1", b="8")
        assert len(asked) == 2  # there is a newer one: perhaps `latest` was meant


def test_the_server_imports_no_framework(tmp_path: Path, environ: dict[str, str]) -> None:
    """The process that serves stays small: tensors are compared in another one."""
    code = """
import sys
from pathlib import Path
import torch
from holdfast.training import save_checkpoint
for step in (1, 2):
    save_checkpoint("run", step, {"w": torch.ones(4) * step}, rng=False)
"""
    pytest.importorskip("torch")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environ, check=True)
    code = """
import os, sys
from pathlib import Path
from web.test_locations import Client
client = Client(["run"], dict(os.environ))
for page in ("", "/compare?a=1&b=2", "/checkpoint", "/usage"):
    assert client.get(page).status_code == 200, page
assert "greatest change" in client.when_shown("/compare?a=1&b=2")
print({"torch", "numpy", "jax"} & {*sys.modules})
"""
    tests = Path(__file__).parents[1]
    known = {"PYTHONPATH": f"{tests}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, cwd=tmp_path, env=environ | known, capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_charts_leave_out_what_is_no_number() -> None:
    assert draw("loss", [Series("a", [(1.0, float("nan")), (float("inf"), 1.0)])]) is None
    one = draw("loss", [Series("a", [(1.0, 2.0)])])
    assert one is not None
    assert "nan" not in one.lines[0].path


WORDS = """
def embed(texts):
    return [[float(text.lower().count(word)) + 0.01 for word in ("cat", "tide", "kelp")] for text in texts]
"""


class TestIndex:
    @pytest.fixture
    def project(self, tmp_path: Path, environ: dict[str, str]) -> Path:
        project = tmp_path / "notes"
        (project / "docs").mkdir(parents=True)
        (project / "docs" / "cats.md").write_text("Cats purr and sleep. <b>A cat</b>.")
        (project / "docs" / "sea.md").write_text("The tide takes the kelp.")
        (project / "words.py").write_text(WORDS)
        (project / "holdfast.toml").write_text(
            '[index]\ninclude = ["*.md"]\n'
            '[index.embed.dense]\ncall = "words:embed"\nmodel = "words-1"\nusd_per_mtok = 2\n'
        )
        self.apply(project, environ)
        return project

    def apply(self, project: Path, environ: dict[str, str]) -> None:
        call = [sys.executable, "-m", "holdfast.cli", "index", "apply", "--yes"]
        subprocess.run(call, cwd=project, env=environ, check=True, capture_output=True)

    @pytest.fixture
    def folder(self, project: Path) -> str:
        return os.fspath(next(path for path in project.iterdir() if (path / "ledger.db").exists()))

    def test_generations(self, folder: str, environ: dict[str, str]) -> None:
        client = Client([folder], environ)
        assert "live" in client.get().text
        assert client.get("/nope").status_code == 404
        assert client.get(".json").json()["items"] == printed(environ, "log", folder)["items"]
        assert "words" in client.get("/checkpoint").text
        assert client.get("/usage").status_code == 200

    def test_documents_of_a_generation(self, folder: str, environ: dict[str, str]) -> None:
        client = Client([folder], environ)
        first = client.get("/documents.json", limit=1).json()
        assert first == {"items": [{"name": "docs/cats.md", "chunks": 1}], "next": "docs/cats.md"}
        rest = client.get("/documents.json", limit=1, after=first["next"], ref="1").json()
        assert rest == {"items": [{"name": "docs/sea.md", "chunks": 1}], "next": None}
        assert "More" in client.get("/documents", limit=1).text
        text = client.get("/documents").text
        assert text.index("docs/cats.md") < text.index("docs/sea.md")
        assert client.get("/documents", ref="7").status_code == 404

    def test_no_link_is_dead_and_every_page_is_json(self, folder: str, environ: dict[str, str]) -> None:
        client = Client([folder], environ)
        found = crawl(client.client, f"/l/{client.places.named[0].key}")
        assert {url: status for url, status in found.items() if status != 200} == {}
        reached = {urlsplit(url).path.rpartition("/")[2] for url in found}
        assert {"documents", "search", "plan", "runs", "verify", "usage", "checkpoint"} <= reached
        assert {"documents.json", "search.json", "plan.json", "runs.json", "verify.json", "usage.json"} <= reached

    def test_search_with_scores(self, project: Path, folder: str, environ: dict[str, str]) -> None:
        client = Client([folder], environ)
        assert "Search the live generation" in client.get("/search").text
        text = client.get("/search", q="a cat").text
        assert text.index("docs/cats.md") < text.index("docs/sea.md")
        assert "&lt;b&gt;A cat" in text
        wanted = printed(environ, "-C", os.fspath(project), "index", "search", "a cat")["items"]
        assert client.get("/search.json", q="a cat").json()["items"] == wanted
        assert client.get("/search", q="x", channel="nope").status_code == 404

    def test_a_plan_and_its_cost(self, project: Path, folder: str, environ: dict[str, str]) -> None:
        (project / "docs" / "new.md").write_text("More kelp.")
        client = Client([folder], environ)
        assert "No plan yet" in client.get("/plan").text
        assert client.post("/start-plan").status_code == 200
        found = client.when_done("/plan")["plan"]
        assert found == printed(environ, "-C", os.fspath(project), "index", "plan")["plan"]
        text = client.get("/plan").text
        assert "docs/new.md" in text
        assert "$0.00" in text
        assert "incremental" in text

    def test_what_was_applied_and_its_impact(self, project: Path, folder: str, environ: dict[str, str]) -> None:
        (project / "docs" / "cats.md").unlink()
        self.apply(project, environ)
        client = Client([folder], environ)
        text = client.get("/runs").text
        assert text.count("<li data-item>") == 2
        assert "1 of 1" in text  # taken out
        document = client.get("/runs.json").json()
        assert document["items"] == printed(environ, "-C", os.fspath(project), "index", "history")["items"]
        assert [each["impact"] for each in document["items"]] == ["incremental", "incremental"]
        assert document["items"][1]["done"]["published"] == 2
        assert client.get("/runs", limit=1).text.count("<li data-item>") == 1
        assert "Older" in client.get("/runs", limit=1).text

    def test_a_run_that_goes_on(self, folder: str, environ: dict[str, str]) -> None:
        plan = {"documents": 10, "deleted": 0, "to_embed": 30, "tokens": 300, "usd": 0.5, "generation": 1}
        with SQLiteLedger(Path(folder) / "ledger.db") as ledger:
            number = ledger.begin_record("incremental", plan | {"builds_beside": False, "settings": [], "reasons": []})
            ledger.update_record(number, {"published": 4, "embedded": 16}, is_end=False)
        client = Client([folder], environ)
        text = client.get("/runs", fragment="1").text
        assert 'value="50"' in text
        assert "data-poll" in text
        with SQLiteLedger(Path(folder) / "ledger.db") as ledger:
            ledger.update_record(number, {"published": 4, "embedded": 16, "stopped": "<i>no"}, is_end=True)
        text = client.get("/runs", fragment="1").text
        assert "<progress" not in text
        assert "&lt;i&gt;no" in text

    def test_verify(self, folder: str, environ: dict[str, str]) -> None:
        client = Client([folder], environ)
        client.post("/start-verify")
        assert client.when_done("/verify")["verify"] == printed(environ, "verify", folder)
        assert "no damage" in client.get("/verify").text

    def test_code_of_another_project_does_not_run(self, project: Path, environ: dict[str, str], tmp_path: Path) -> None:
        """A configuration that somebody else wrote names the function; only opening a page must not call it (P7)."""
        subprocess.run([sys.executable, "-m", "holdfast.cli", "save"], cwd=project, env=environ, check=True)
        (project / "words.py").write_text(WORDS + f"open({os.fspath(tmp_path / 'ran')!r}, 'w')\n")
        client = Client(["memory://"], environ)
        place = client.places.configured()[0]
        for page in ("search?q=cat", "plan", "runs", "verify", "usage", ""):
            client.client.get(f"/l/{place.key}/{page}".rstrip("/"))
        assert client.client.get(f"/l/{place.key}/search?q=cat").status_code == 400
        for action in ("start-plan", "start-verify"):
            assert client.post(f"/{action}", key=place.key).status_code == 400
        assert not (tmp_path / "ran").exists()
        named = Client([os.fspath(place.address)], environ)
        assert named.get("/search", q="cat").status_code == 200
        assert (tmp_path / "ran").exists()


class TestConfigured:
    def test_locations_of_a_configuration(self, tmp_path: Path, environ: dict[str, str]) -> None:
        project = tmp_path / "agent<b>"
        project.mkdir()
        with open_states(f"sqlite:///{project / 'state.db'}") as states:
            states.save(Checkpoint(CheckpointMetadata("c1", "talk", NOON, "n", 1), {"n": 1}))
        names = '"sqlite:///state.db", "runs/none", "postgresql://me:secret@nowhere.invalid/db", "/etc", "nope://x"'
        (project / "holdfast.toml").write_text(f"locations = [{names}]\n")
        subprocess.run([sys.executable, "-m", "holdfast.cli", "save"], cwd=project, env=environ, check=True)
        client = Client(["memory://"], environ)
        home = client.client.get("/home")
        assert "state.db" in home.text
        assert "nowhere.invalid" in home.text
        assert "secret" not in home.text
        assert "in the configuration of" in home.text
        assert "agent<b>" not in home.text
        told = client.client.get("/home.json").json()["locations"]
        assert [each["kind"] for each in told] == ["flow", "flow", "flow"]
        place = client.places.configured()[0]
        assert ">talk" in client.client.get(f"/l/{place.key}").text.replace("\n", "")
        (project / "holdfast.toml").write_text("locations = 7\n")
        assert client.client.get("/home").status_code == 200


class TestVerify:
    def test_damage_is_named(self, tmp_path: Path, environ: dict[str, str]) -> None:
        torch = pytest.importorskip("torch")
        from holdfast.training import save_checkpoint

        run = tmp_path / "run"
        for step in (1, 2):
            save_checkpoint(run, step, {"w": torch.ones(50_000) * step}, rng=False)
        client = Client([os.fspath(run)], environ)
        assert "Not verified" in client.get("/verify").text
        assert client.get("/verify.json").json() == {"job": None, "error": None, "verify": None}
        client.post("/start-verify")
        assert client.when_done("/verify")["verify"] == printed(environ, "verify", os.fspath(run))
        assert "no damage" in client.get("/verify").text
        shard = next(path for path in run.glob("step-*2/*.safetensors"))
        shard.chmod(0o600)
        shard.write_bytes(shard.read_bytes()[:-1] + b"x")
        client.post("/start-verify")
        assert not client.when_done("/verify")["verify"]["ok"]
        assert "its digest differs" in client.get("/verify").text

    def test_progress_is_shown(self, tmp_path: Path, environ: dict[str, str]) -> None:
        client = Client(["memory://"], environ)
        place, jobs = client.places.named[0], client.site.jobs
        go_on, told = threading.Event(), threading.Event()

        def work(job: Job) -> None:
            job.tell("reading", 25, 100)
            told.set()
            go_on.wait(60)
            raise NotFound("it is <gone>", hint="Look elsewhere.")

        job = jobs.start("verify", place.key, work=work)
        assert told.wait(60)
        assert jobs.start("verify", place.key, work=lambda progress: pytest.fail("twice")) is job
        text = client.get("/verify", fragment="1").text
        assert 'value="25"' in text
        assert "data-poll" in text
        go_on.set()
        assert client.when_done("/verify")["error"]["kind"] == "not-found"
        assert "It is &lt;gone&gt;" in client.get("/verify", fragment="1").text.replace("it is", "It is")

    def test_who_may_start_it(self, tmp_path: Path, environ: dict[str, str]) -> None:
        client = Client(["memory://"], environ, read_only=True)
        assert "read-only" in client.get("/verify").text
        assert "<form" not in client.get("/verify").text.partition("<main")[2].partition("</main>")[0]
        assert client.post("/start-verify").status_code == 403
        client = Client(["memory://"], environ)
        address = f"/l/{client.places.named[0].key}/start-verify"
        origin = {"origin": f"http://127.0.0.1:{PORT}"}
        assert client.client.post(address, data={"csrf": client.keys.csrf}).status_code == 403
        assert client.client.post(address, data={"csrf": "x"}, headers=origin).status_code == 400
        assert client.client.get(address).status_code in (404, 405)
        assert client.site.jobs.find("verify", client.places.named[0].key) is None
