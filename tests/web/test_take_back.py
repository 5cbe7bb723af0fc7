"""Taking back through the page: what is shown is what is done, and it can be undone."""

from __future__ import annotations

import html
import re
from typing import Any

from starlette.testclient import TestClient  # noqa: F401  # marks these tests

from holdfast.workspace import Workspace

from .conftest import Pages
from .sessions import CART, Session


def form_of(text: str) -> dict[str, Any]:
    """The fields of the form of a plan."""
    fields = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', text.partition('class="plan"')[2])
    return {html.unescape(name): html.unescape(value) for name, value in fields}


def turn_with(workspace: Workspace, prompt: str) -> tuple[str, str]:
    """The turn of a prompt: what it came from, and its newest checkpoint."""
    turn = next(turn for turn in workspace.turns(None).turns if prompt in turn.prompt)
    parent = workspace.shown_parent(turn.checkpoints[-1])
    assert parent is not None
    return parent.id, turn.checkpoints[0].id


def test_one_hunk_is_taken_back_and_undone(pages: Pages, workspace: Workspace, session: Session) -> None:
    cart = session.project / "src" / "cart.py"
    written = cart.read_text()
    base, tip = turn_with(workspace, "discount")
    hunk = workspace.changes(base, tip, ["src/cart.py"]).hunks[1]
    shown = pages.get("plan", what="hunks", **{"from": base}, to=tip, path="src/cart.py", hunk=hunk.id)
    assert "This changes 1 path" in shown.text
    assert cart.read_text() == written
    done = pages.post("apply", form_of(shown.text))
    assert "Took back 1 hunk of src/cart.py" in done.text
    assert cart.read_text() == written.replace("4.9 if weight_kg <= 2 else 7.5", "4.9 if weight_kg < 2 else 8.9")
    digest = workspace.preview_undo().digest
    assert digest in done.text
    pages.post("undo", {"digest": digest})
    assert cart.read_text() == written
    pages.post("redo", {"digest": workspace.preview_redo().digest})
    assert "weight_kg < 2" in cart.read_text()


def test_a_file_a_turn_and_everything_after(pages: Pages, workspace: Workspace, session: Session) -> None:
    base, tip = turn_with(workspace, "discount")
    project = session.project
    shown = pages.get("plan", what="file", **{"from": base}, to=tip, path="tests/test_cart.py").text
    pages.post("apply", form_of(shown))
    assert not (project / "tests" / "test_cart.py").exists()
    assert (project / "docs" / "cart.png").exists()
    shown = pages.get("plan", what="part", **{"from": base}, to=tip).text
    pages.post("apply", form_of(shown))
    assert (project / "src" / "cart.py").read_text() == CART
    assert not (project / "docs").exists()
    assert "json" in (project / "src" / "app.py").read_text()  # of a later turn
    shown = pages.get("plan", what="after", ref="baseline").text
    pages.post("apply", form_of(shown))
    assert "json" not in (project / "src" / "app.py").read_text()


def test_a_turn_goes_and_later_work_stays(pages: Pages, workspace: Workspace, session: Session) -> None:
    _, tip = turn_with(workspace, "discount")
    shown = pages.get("plan", what="turn", ref=tip).text
    done = pages.post("apply", form_of(shown))
    assert "Took back turn 1" in done.text
    assert (session.project / "src" / "cart.py").read_text() == CART
    assert not (session.project / "tests").exists()
    assert "json" in (session.project / "src" / "app.py").read_text()
    assert "SEK" in (session.project / "config.toml").read_text()


def test_only_the_agents_part_goes(pages: Pages, workspace: Workspace, session: Session) -> None:
    base, _ = turn_with(workspace, "discount")
    shown = pages.get("plan", what="agent", ref=base, agent="claude-code").text
    pages.post("apply", form_of(shown))
    assert (session.project / "config.toml").read_text() == '[shop]\ncurrency = "SEK"\ndebug = false\n'
    assert (session.project / "src" / "cart.py").read_text() == CART


def test_conflicts_are_shown_side_by_side(pages: Pages, workspace: Workspace, session: Session) -> None:
    base, _ = turn_with(workspace, "--json")
    (session.project / "config.toml").write_text('[shop]\ncurrency = "SEK"\ndebug = "maybe"\njson = 1\n')
    workspace.save("mine")
    shown = pages.get("plan", what="agent", ref=base, agent="claude-code").text
    assert "you changed the same lines" in shown
    assert "split" in shown
    assert "maybe" in shown


class TestDigest:
    def test_another_folder_is_another_plan(self, pages: Pages, workspace: Workspace, session: Session) -> None:
        readme = session.project / "README.md"
        shown = pages.get("plan", what="after", ref="baseline").text
        readme.write_text("mine, not saved\n")
        answer = pages.post("apply", form_of(shown))
        assert answer.status_code == 409
        assert "Nothing was done" in answer.text
        assert readme.read_text() == "mine, not saved\n"
        assert (session.project / "docs" / "cart.png").exists()

    def test_no_digest_no_change(self, pages: Pages, session: Session, workspace: Workspace) -> None:
        pages.post("apply", form_of(pages.get("plan", what="after", ref="baseline").text) | {"digest": ""})
        assert (session.project / "docs" / "cart.png").exists()
        workspace.restore("baseline")
        assert pages.post("undo", {"digest": ""}).status_code == 409
        assert not (session.project / "docs").exists()

    def test_only_a_page_of_ours_is_returned_to(self, pages: Pages) -> None:
        for back in ("//evil.example/", "https://evil.example/", "/\\evil.example", "/\nx: y"):
            shown = pages.get("plan", what="after", ref="baseline", back=back).text
            fields = form_of(shown)
            answer = pages.post("apply", fields, follow_redirects=False)
            assert answer.headers["location"] == f"/w/{pages.key}/timeline"
            pages.post("undo", {"digest": re.search(r'name="digest" value="(\w+)"', pages.get("timeline").text)[1]})  # type: ignore[index]


def test_nonsense_is_refused(pages: Pages) -> None:
    for query in ({}, {"what": "x"}, {"what": "hunks"}, {"what": "file"}, {"what": "part", "path": "x"}):
        assert pages.get("plan", **query).status_code == 400
    assert pages.get("plan", what="after", ref="nope").status_code == 404


def test_json_is_what_the_command_prints(pages: Pages, workspace: Workspace) -> None:
    shown = pages.get("plan.json", what="after", ref="baseline").json()
    assert set(shown) == {"plan", "restored"}
    assert shown["restored"] is None
    fields = {"what": "after", "ref": "baseline", "digest": shown["plan"]["digest"]}
    done = pages.post("apply.json", fields).json()
    assert done["restored"]["ok"] is True
    assert set(done["restored"]) >= {"checkpoint", "undo_id", "written", "removed", "failed"}
    stale = pages.post("apply.json", fields)
    assert stale.status_code == 409
    assert stale.json()["error"]["kind"] == "conflict"
