"""Each page, and the same as JSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient  # noqa: F401  # marks these tests

from holdfast.errors import Refused
from holdfast.web import looking
from holdfast.web.answers import Query
from holdfast.web.app import PAGES
from holdfast.web.conversation import Message, with_rest
from holdfast.web.graph import GraphRow, Lane, draw
from holdfast.web.places import NamedLocations
from holdfast.workspace import Workspace
from waiting import wait_for

from .conftest import Pages, make_pages
from .crawling import crawl
from .sessions import Session, open_workspace, picture


def printed(workspace: Workspace, environ: dict[str, str], *words: str) -> Any:
    """What the command prints with `--json`."""
    call = [sys.executable, "-m", "holdfast.cli", "-C", str(workspace.path), *words, "--json"]
    return json.loads(subprocess.run(call, env=environ, capture_output=True, check=True).stdout)


def test_home_lists_every_workspace(pages: Pages, environ: dict[str, str], workspace: Workspace) -> None:
    answer = pages.client.get("/home")
    assert "shop" in answer.text
    assert "claude-code" in answer.text  # its hooks ran here
    document = pages.client.get("/home.json").json()
    wanted = printed(workspace, environ, "workspaces")
    assert [each["folder"] for each in document["items"]] == [each["folder"] for each in wanted["items"]]
    assert document["items"][0].keys() == wanted["items"][0].keys()


class TestTimeline:
    def test_turns_stand_together(self, pages: Pages) -> None:
        text = pages.get("timeline").text
        assert text.count("data-key=") == 4
        assert text.index("Add a --json option") < text.index("switch to kronor") < text.index("before the agent")
        assert "3 checkpoints" in text

    def test_json_is_that_of_log(self, pages: Pages, workspace: Workspace, environ: dict[str, str]) -> None:
        document = pages.get("timeline.json").json()
        wanted = printed(workspace, environ, "log")
        assert document["items"] == wanted["items"]
        assert document["next"] == wanted["next"]
        assert document["turns"][0]["actor"] == "claude-code"

    @pytest.mark.parametrize(
        ("query", "shown"),
        [
            ({"actor": "you"}, {"switch to kronor", "before the agent"}),
            ({"actor": "claude-code"}, {"Add a --json option to app.py.", "The cart ignores"}),
            ({"path": "config.toml"}, {"Add a --json option to app.py.", "switch to kronor", "before the agent"}),
            ({"text": "KRONOR"}, {"switch to kronor"}),
            ({"session": "4f1c2a9e-demo", "text": "cart"}, {"The cart ignores"}),
            ({"text": "["}, set()),
        ],
    )
    def test_filters(self, pages: Pages, query: dict[str, str], shown: set[str]) -> None:
        text = pages.get("timeline", **query).text
        every = {"Add a --json option to app.py.", "switch to kronor", "The cart ignores", "before the agent"}
        assert {each for each in every if f">{each}" in text} == shown

    def test_pages_follow_each_other(self, pages: Pages, workspace: Workspace) -> None:
        for number in range(30):
            (workspace.path / "n").write_text(str(number))
            workspace.save(f"save {number}")
        seen: list[str] = []
        before = None
        while True:
            page = pages.get("timeline.json", limit=8, **({"before": before} if before else {})).json()
            seen += [each["id"] for each in page["items"]]
            before = page["next"]
            if before is None:
                break
        assert seen == [each.id for each in workspace.list(None)]
        assert "Older" in pages.get("timeline", limit=8).text
        at = workspace.list(None)[10].id
        assert ">save 19<" in pages.get("timeline", at=at).text
        assert ">save 20<" not in pages.get("timeline", at=at).text

    def test_restores_are_shown_as_branches(self, pages: Pages, workspace: Workspace) -> None:
        workspace.restore("baseline")
        (workspace.path / "README.md").write_text("another way\n")
        workspace.save("another way")
        text = pages.get("timeline").text
        assert "Restored a1" in text
        assert "across" in text

    def test_a_turn_that_changed_nothing(self, pages: Pages, session: Session) -> None:
        session.prompt("What does total() do?")
        session.reply("It sums up, with VAT.")
        text = pages.get("timeline").text
        assert "What does total() do?" in text
        assert "changed nothing" in text
        assert "It sums up, with VAT." in text

    def test_checks_are_green_or_red(self, pages: Pages, workspace: Workspace) -> None:
        first, _, third = workspace.list(3)
        workspace.mark(first, "check", {"passed": True, "command": "true"})
        workspace.mark(third, "check", {"passed": False, "command": "false"})
        text = pages.get("timeline").text
        assert text.count("check green") == 1
        assert text.count("check red") == 1
        assert "check green" in pages.get(f"turn/{first.id}").text

    def test_nothing_yet(self, pages: Pages) -> None:
        assert "No checkpoint matches" in pages.get("timeline", text="nothing like it").text


class TestGraph:
    def test_a_line(self) -> None:
        rows = draw([GraphRow({"3"}, {"2"}), GraphRow({"2"}, {"1"}), GraphRow({"1"}, ())])
        assert rows[0] == [Lane(up=False, down=True, node=True, across=False)]
        assert rows[2] == [Lane(up=True, down=False, node=True, across=False)]

    def test_work_that_went_on_from_an_older_state(self) -> None:
        rows = draw([GraphRow({"3"}, {"1"}), GraphRow((), ()), GraphRow({"2"}, {"1"}), GraphRow({"1"}, ())])
        assert [lane.node for lane in rows[2]] == [False, True]
        assert [lane.across for lane in rows[3]] == [False, True]

    def test_a_turn_that_another_interrupted(self) -> None:
        rows = draw([GraphRow({"3", "1"}, {"2", "0"}), GraphRow({"2"}, {"1"}), GraphRow({"0"}, ())])
        assert [len(row) for row in rows] == [1, 1, 1]


class TestTurn:
    def test_conversation_beside_changes(self, pages: Pages, workspace: Workspace) -> None:
        turn = next(each for each in workspace.turns(None).turns if "discount" in each.prompt)
        text = pages.get(f"turn/{turn.checkpoints[0].id}").text
        assert "I will look at src/cart.py first." in text
        assert "Write: src/cart.py" in text
        assert "tests/test_cart.py" in text
        assert '<td class="t">    <span class="s-k">if</span>' in text
        assert "<img src=" in text
        assert "kronor" not in text.partition('class="turn-page')[2]  # what the person did meanwhile
        split = pages.get(f"turn/{turn.checkpoints[0].id}", view="split").text
        assert 'class="code split"' in split

    def test_what_an_agent_did_after_its_last_change(self, pages: Pages, workspace: Workspace) -> None:
        turn = next(each for each in workspace.turns(None).turns if "discount" in each.prompt)
        page = f"turn/{turn.checkpoints[0].id}"
        text = pages.get(page).text.partition('class="turn-page')[2]
        assert "Bash: pytest -q" in text  # saved with the turn that follows
        assert text.count("Carts with more than 50 items now get 5 %.") == 1
        assert "--json" not in text
        assert "Add a --json option" not in pages.get(page, whole=1).text

    def test_the_rest_of_another_conversation(self) -> None:
        def talk(*words: str) -> list[Message]:
            return [Message("user" if word.isupper() else "assistant", word) for word in words]

        mine = talk("A", "b", "C", "d")
        assert with_rest(mine, talk("A", "b", "C", "d", "e", "F", "g")) == talk("A", "b", "C", "d", "e")
        assert with_rest(mine, talk("A", "x", "C", "d", "e")) == talk("A", "b", "C", "d", "e")
        for later in (talk("X", "b", "C", "d", "e"), talk("A", "b"), talk("C", "d", "e", "F"), []):
            assert with_rest(mine, later) == mine
        assert with_rest([], mine) == []

    def test_what_the_agent_said_at_the_end(self, pages: Pages, workspace: Workspace, session: Session) -> None:
        session.prompt("One file, please.")
        session.write("one.txt", "agent\n")
        session.reply("Here it is & done.")  # after the last checkpoint of the turn
        newest = workspace.turns(1).turns[0]
        page = f"turn/{newest.checkpoints[0].id}"
        assert pages.get(page).text.count("Here it is &amp; done.") == 1
        assert pages.get(f"{page}.json").json()["closing"] == "Here it is & done."
        (session.project / "two.txt").write_text("agent\n")
        session.event("PostToolUse", tool_name="Bash", tool_input={}, tool_use_id="late")  # saves the conversation
        found = workspace.turns(1).turns[0].checkpoints[0]
        assert pages.get(f"turn/{found.id}").text.count("Here it is &amp; done.") == 1

    def test_neighbours(self, pages: Pages, workspace: Workspace) -> None:
        turns = workspace.turns(None).turns
        text = pages.get(f"turn/{turns[1].checkpoints[0].id}").text
        assert f'/turn/{turns[0].checkpoints[0].id}" data-newer' in text
        assert f'/turn/{turns[2].checkpoints[0].id}" data-older' in text

    def test_the_persons_changes_are_not_the_agents(self, pages: Pages, workspace: Workspace, session: Session) -> None:
        session.prompt("Two files, please.")
        session.write("one.txt", "agent\n")
        (session.project / "mine.txt").write_text("mine\n")
        workspace.save("mine, meanwhile")
        session.write("two.txt", "agent\n")
        newest = workspace.turns(1).turns[0]
        assert len(newest.checkpoints) == 2
        text = pages.get(f"turn/{newest.checkpoints[0].id}").text
        assert "one.txt" in text
        assert "two.txt" in text
        assert "mine.txt" not in text
        assert "Part 1 of 2" in text

    def test_a_part_without_changes_cannot_be_taken_back(
        self, pages: Pages, workspace: Workspace, session: Session
    ) -> None:
        session.prompt("One file stays.")
        session.write("one.txt", "agent\n")
        (session.project / "mine.txt").write_text("mine\n")
        workspace.save("mine, meanwhile")
        session.write("two.txt", "agent\n")
        session.tool("Bash", {"command": "rm two.txt"}, (session.project / "two.txt").unlink)
        text = pages.get(f"turn/{workspace.turns(1).turns[0].checkpoints[0].id}").text
        assert "Part 2 of 2" in text and "No file changed" in text
        assert text.count("Take back this part") == 1

    def test_json(self, pages: Pages, workspace: Workspace) -> None:
        newest = workspace.list(1)[0]
        document = pages.get(f"turn/{newest.id}.json").json()
        assert document["actor"] == "claude-code"
        assert {each["path"] for each in document["parts"][0]["files"]} == {"config.toml", "src/app.py"}
        assert document["parts"][0]["files"][0]["hunks"][0]["id"]

    def test_much_is_loaded_when_it_is_looked_at(self, pages: Pages, workspace: Workspace) -> None:
        for number in range(60):
            (workspace.path / f"f{number:02}.py").write_text("x = 1\n" * 100)
        workspace.save("before")
        for number in range(60):
            (workspace.path / f"f{number:02}.py").write_text("x = 2\n" * 100)
        saved = workspace.save("much")
        text = pages.get(f"turn/{saved.id}").text
        assert text.count("<article") == 60
        assert text.count("data-lazy") > 50
        parent = workspace.shown_parent(saved)
        assert parent is not None
        fragment = pages.get("compare", a=parent.id, b=saved.id, path="f59.py", fragment="file").text
        assert fragment.count('<tr class="added">') == 100
        assert "<html" not in fragment


class TestLooking:
    def test_compare(self, pages: Pages, workspace: Workspace, environ: dict[str, str]) -> None:
        assert "No differences" in pages.get("compare").text
        (workspace.path / "README.md").write_text("# Shop\n\nSells kelp and more.\n")
        text = pages.get("compare").text
        assert "Sells kelp and more." in text
        assert pages.get("compare.json").json() == printed(workspace, environ, "diff")

    def test_compare_shows_new_files_of_the_folder(self, pages: Pages, workspace: Workspace, tmp_path: Path) -> None:
        (workspace.path / "new.txt").write_text("never saved\n")
        (workspace.path / "new.png").write_bytes(picture(4, 4))
        (tmp_path / "outside.txt").write_text("outside")
        (workspace.path / "link.png").symlink_to(tmp_path / "outside.txt")
        os.mkfifo(workspace.path / "pipe")
        text = pages.get("compare").text
        assert "never saved" in text
        assert "raw?ref=now&amp;path=new.png" in text
        answer = pages.get("raw", ref="now", path="new.png")
        assert answer.content == picture(4, 4)
        assert answer.headers["content-type"] == "image/png"
        for path in ("link.png", "pipe", "../outside.txt", "nope.png", ""):
            assert pages.get("raw", ref="now", path=path).status_code in (400, 404)

    def test_permissions_in_words(self, pages: Pages, workspace: Workspace) -> None:
        (workspace.path / "src" / "app.py").chmod(0o755)
        assert "permissions 644 → 755, now executable" in pages.get("compare").text

    def test_files_and_downloads(self, pages: Pages, workspace: Workspace) -> None:
        assert "src/" in pages.get("files").text
        assert "discount" in pages.get("files", path="src/cart.py").text
        assert pages.get("raw", path="docs/cart.png").headers["content-type"] == "image/png"
        assert pages.get("raw", path="README.md").content == b"# Shop\n\nSells kelp.\n"
        assert pages.get("files", path="nope").status_code == 404
        assert pages.get("files", path="../../etc/passwd").status_code in (400, 404)
        assert pages.get("raw", path="/etc/passwd").status_code in (400, 404)

    def test_blame_and_history(self, pages: Pages, workspace: Workspace, environ: dict[str, str]) -> None:
        text = pages.get("blame", path="src/cart.py").text
        assert "claude-code a2" in text
        assert pages.get("blame.json", path="src/cart.py").json() == printed(workspace, environ, "blame", "src/cart.py")
        history = pages.get("history.json", path="src/cart.py").json()
        assert [each["short_id"] for each in history["items"]] == ["a2", "a1"]
        assert "before the agent" in pages.get("history", path="src/cart.py").text

    def test_search(self, pages: Pages, workspace: Workspace, environ: dict[str, str]) -> None:
        text = pages.when_done("search", q="weight_kg < 2")
        assert "removed in" in text
        document = pages.get("search.json", q="weight_kg < 2").json()
        assert document["items"] == printed(workspace, environ, "search", "weight_kg < 2")["items"]
        talk = pages.when_done("search", q="I will look at")
        assert ">Conversation</a>" in talk
        assert "removed in" not in talk
        assert wait_for(lambda: "is not a valid regular expression" in pages.get("search", q="(", regex=1).text)
        assert pages.get("search.json", q="(", regex=1).status_code == 400
        assert "Search all contents" in pages.get("search").text

    def test_search_shows_what_it_found_so_far(
        self, pages: Pages, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        go_on, ask = threading.Event(), NamedLocations.ask_folder

        def slow(self: NamedLocations, what: str, key: str, tell: Any = None, **options: Any) -> Any:
            def told(name: str, value: Any) -> None:
                tell(name, value)
                if name == "found":
                    tell("progress", ["searching", 2, 5])
                    assert go_on.wait(120)

            return ask(self, what, key, told if tell else None, **options)

        monkeypatch.setattr(NamedLocations, "ask_folder", slow)
        found = wait_for(lambda: text if "so far" in (text := pages.get("search", q="weight_kg < 2").text) else "")
        assert "Searching: 2 of 5 checkpoints, 1 match so far" in found
        assert ">src/cart.py</a>" in found
        assert "removed in" not in found
        assert "fragment=1" in re.findall('data-poll="([^"]*)"', found)[0]
        assert "Searching" in pages.get("search", q="weight_kg < 2", fragment=1).text
        other = pages.get("search.json", q="weight_kg < 2", path="docs").json  # waits for no other search
        go_on.set()
        assert other()["items"] == []
        assert "removed in" in pages.when_done("search", q="weight_kg < 2")

    def test_a_search_that_nobody_waits_for_ends(self, pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(looking, "_ABANDONED_S", -1)
        answer = wait_for(lambda: found if "data-poll" not in (found := pages.get("search", q="total")).text else None)
        assert answer.status_code == 503
        monkeypatch.undo()
        assert "src/cart.py" in pages.when_done("search", q="total")

    def test_coverage_and_usage(self, pages: Pages, workspace: Workspace, environ: dict[str, str]) -> None:
        assert "It contains everything" in pages.get("coverage").text
        (workspace.path / "node_modules").mkdir()
        (workspace.path / "node_modules" / "x.js").write_text("x")
        workspace.save("with dependencies")
        assert "dependencies or build output" in pages.get("coverage").text
        assert "<svg" in pages.when_done("usage")
        wanted = printed(workspace, environ, "usage")
        assert pages.get("usage.json").json()["paths"][: len(wanted["paths"])] == wanted["paths"]

    def test_usage_after_a_purge(self, pages: Pages, workspace: Workspace) -> None:
        """A purge frees space, and the checkpoints stay."""
        (workspace.path / "large.bin").write_bytes(os.urandom(100_000))
        workspace.save("large")
        assert "large.bin" in pages.when_done("usage")
        workspace.purge("large.bin")
        assert "large.bin" not in pages.when_done("usage")

    def test_usage_that_takes_long(self, pages: Pages, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
        go_on, asked = threading.Event(), []
        ask = NamedLocations.ask_folder

        def slow(self: NamedLocations, *words: Any, **options: Any) -> Any:
            asked.append(1)
            assert go_on.wait(120)
            return ask(self, *words, **options)

        monkeypatch.setattr(NamedLocations, "ask_folder", slow)
        monkeypatch.setattr(looking, "WAIT_S", 0.01)
        for _ in range(2):
            text = pages.get("usage").text
            assert "Measuring" in text
            assert "data-poll" in text
        go_on.set()
        text = wait_for(lambda: found if "Measuring" not in (found := pages.get("usage", fragment=1).text) else "")
        assert "<html" not in text
        assert "src/cart.py" in text
        assert "src/cart.py" in pages.get("usage").text
        assert len(asked) == 1  # nothing was saved since
        (workspace.path / "new").write_text("new")
        workspace.save("new")
        wait_for(lambda: "Measuring" not in pages.get("usage").text)
        assert len(asked) == 2


def test_no_link_is_dead_and_every_page_is_json(pages: Pages, workspace: Workspace, session: Session) -> None:
    (session.project / "README.md").write_text("# Shop\n\nChanged.\n")
    workspace.restore("baseline", ["config.toml"])
    found = crawl(pages.client, f"/w/{pages.key}/timeline")
    assert {url: status for url, status in found.items() if status != 200} == {}
    reached = {urlsplit(url).path.split("/")[3] for url in found if url.startswith("/w/")}
    names = {path.split("/")[3] for path in PAGES if path.startswith("/w/")}
    assert names | {f"{name}.json" for name in names - {"turn"}} | {"raw"} <= reached
    assert any(url.partition("?")[0].endswith(".json") for url in found if "/turn/" in url)


class TestErrors:
    def test_a_page_that_is_not_there(self, pages: Pages) -> None:
        assert pages.client.get("/nope").status_code == 404
        answer = pages.client.get("/w/other-00000000/timeline.json")
        assert answer.status_code == 404
        assert answer.json()["error"]["kind"] == "not-found"

    def test_what_cannot_be_is_said(self, pages: Pages) -> None:
        answer = pages.get("turn/zzz")
        assert answer.status_code == 404
        assert "All workspaces" in answer.text
        assert f"/w/{pages.key}/search" in answer.text  # the pages of the workspace are still at hand
        assert "There is no checkpoint" in answer.text
        for name in ("doc.MD", "nope"):
            assert f"<p>{name} does not exist.</p>" in pages.get("blame", path=name).text
        assert pages.get("timeline", limit="x").status_code == 400
        assert pages.get("timeline", limit=10**9).status_code == 400

    def test_before_the_first_checkpoint(self, tmp_path: Path, environ: dict[str, str]) -> None:
        (tmp_path / "fresh").mkdir()
        pages = make_pages(open_workspace(tmp_path / "fresh", environ), environ)
        for page in ("compare", "files", "coverage"):
            text = pages.get(page).text
            assert "No checkpoints yet" in text
            assert "holdfast save" in text
            assert "latest" not in text

    def test_a_folder_that_is_gone_can_be_looked_at(self, pages: Pages, workspace: Workspace) -> None:
        import shutil

        shutil.rmtree(workspace.path)
        assert pages.get("timeline").status_code == 200
        assert "folder is gone" in pages.client.get("/home").text


class TestLargeContent:
    def test_large_files_are_not_read(self, pages: Pages, workspace: Workspace) -> None:
        with open(workspace.path / "large.bin", "wb") as file:
            file.truncate(100 << 20)
        saved = workspace.save("large")
        text = pages.get(f"turn/{saved.id}").text
        assert "100 MiB" in text
        assert "too large to be shown" in pages.get("files", path="large.bin").text

    def test_a_large_diff_is_cut(self, pages: Pages, workspace: Workspace) -> None:
        (workspace.path / "big.txt").write_text("".join(f"line {number}\n" for number in range(150_000)))
        workspace.save("first")
        (workspace.path / "big.txt").write_text("".join(f"Line {number}\n" for number in range(150_000)))
        saved = workspace.save("second")
        answer = pages.get(f"turn/{saved.id}")
        assert len(answer.text) < 300_000
        assert "more lines" in answer.text

    def test_a_diff_of_many_hunks_is_cut(self, pages: Pages, workspace: Workspace) -> None:
        """A file in which every third line changed made a page of 44 MB, and one of two lines one of 182 MB."""
        lines = [f"line {number}\n" for number in range(6_000)]
        for change in ("", "!"):
            (workspace.path / "some.txt").write_text("".join(f"{change}{each}" for each in lines[::3]))
            mixed = (f"{change}{each}" if at % 3 else each for at, each in enumerate(lines))
            (workspace.path / "many.txt").write_text("".join(mixed))
            saved = workspace.save("mixed")
        text = pages.get(f"turn/{saved.id}").text
        assert len(text) < 300_000
        assert text.count("data-hunk") <= 210
        assert re.search(r"1,9\d\d more hunks", text)

    def test_a_name_of_newlines(self, pages: Pages, workspace: Workspace) -> None:
        name = "\n" * 255
        (workspace.path / name).write_text("x\n")
        saved = workspace.save(name)
        for page in (f"turn/{saved.id}", "timeline", "files", "usage", "coverage", "search?q=x"):
            answer = pages.client.get(f"/w/{pages.key}/{page}")
            assert answer.status_code == 200
            text = pages.when_done(page)
            assert len(text) < 60_000
            assert r"\n\n\n" in text or page in ("coverage", "search?q=x")
            assert "\n\n\n\n" not in answer.text
        for page in ("files", "history", "blame", "compare"):
            assert pages.get(page, path=name).status_code == 200
        done = pages.get("plan", what="path", ref=saved.id, path=name)
        assert done.status_code == 200

    def test_a_page_that_takes_long_keeps_no_other_waiting(
        self, pages: Pages, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun, go_on = threading.Event(), threading.Event()
        blame = workspace.blame

        def slow(*words: Any, **options: Any) -> Any:
            begun.set()
            assert go_on.wait(120)
            return blame(*words, **options)

        monkeypatch.setattr(workspace, "blame", slow)
        answers: list[int] = []
        with pages.client:  # one event loop for all
            asking = threading.Thread(target=lambda: answers.append(pages.get("blame", path="src/cart.py").status_code))
            asking.start()
            assert begun.wait(120)
            assert pages.get("timeline").status_code == 200
            assert pages.client.get("/home").status_code == 200
            assert not answers
            go_on.set()
            asking.join(120)
        assert answers == [200]

    def test_a_long_line_is_cut(self, pages: Pages, workspace: Workspace) -> None:
        (workspace.path / "min.js").write_text("x" * 3_000_000)
        saved = workspace.save("minified")
        assert len(pages.get(f"turn/{saved.id}").text) < 100_000


def test_live_events(pages: Pages, workspace: Workspace) -> None:
    import asyncio

    from holdfast.web import live

    class Request:
        async def is_disconnected(self) -> bool:
            return False

    async def listen() -> list[str]:
        told = live._told(Request(), workspace)  # type: ignore[arg-type]
        first = await anext(told)
        (workspace.path / "new").write_text("new\n")
        saved = await asyncio.to_thread(workspace.save, "new")
        second = await asyncio.wait_for(anext(told), 20)
        assert saved.id in second
        await told.aclose()  # type: ignore[attr-defined]
        return [first, second]

    first, second = asyncio.run(listen())
    assert first.startswith("data: ")
    assert first != second


def test_the_command(session: Session, environ: dict[str, str]) -> None:
    import signal
    import urllib.error
    import urllib.request

    call = [sys.executable, "-m", "holdfast.cli", "ui", "--no-open"]
    run = subprocess.Popen(call, cwd=session.project, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout is not None
    try:
        address = run.stdout.readline().decode().strip()
        assert address.startswith("http://127.0.0.1:")
        assert "/timeline?token=" in address
        jar = urllib.request.HTTPCookieProcessor()
        with urllib.request.build_opener(jar).open(address, timeout=20) as answer:
            assert b"switch to kronor" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(address.partition("?")[0], timeout=20)
    finally:
        run.send_signal(signal.SIGINT)
        _, told = run.communicate(timeout=20)
    assert run.returncode == 0
    assert b"Traceback" not in told


def test_a_port_that_is_taken(session: Session, environ: dict[str, str], tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        call = [sys.executable, "-m", "holdfast.cli", "ui", "--no-open", "--port", port]
        done = subprocess.run(call, cwd=session.project, env=environ, capture_output=True, timeout=30)
    assert done.returncode == 7
    assert f"port {port}".encode() in done.stderr


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "0", "\u0663", "1e3"])
def test_a_number_in_an_address_that_is_none(number: str) -> None:
    assert Query.parse(b"limit=7").count("limit", 5, 10) == 7
    with pytest.raises(Refused):
        Query.parse(f"limit={number}".encode()).count("limit", 5, 10)
