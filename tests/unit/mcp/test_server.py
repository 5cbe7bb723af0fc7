"""The server within this process: what no client can bring about at a moment of its choosing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest

from holdfast import Workspace
from holdfast.errors import Conflict, Unavailable
from holdfast.mcp import results
from holdfast.mcp import tools as tools_module
from holdfast.mcp.server import _Service
from holdfast.mcp.tools import Tools
from holdfast.model import Reason, Uncovered

from .clients import run


def test_change_after_the_digest_check_is_not_overwritten(
    project: Path, ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws.save("good")
    (project / "a.txt").write_text("two\n")
    look = ws.preview

    def look_and_lose(*given: Any, **options: Any) -> Any:
        plan = look(*given, **options)
        (project / "a.txt").write_text("three, by the user\n")
        return plan

    digest = look("latest").digest
    monkeypatch.setattr(ws, "preview", look_and_lose)
    with pytest.raises(Conflict):
        Tools(ws).restore(checkpoint="latest", digest=digest)
    assert (project / "a.txt").read_text() == "three, by the user\n"


def test_client_name_is_truncated_and_escaped(project: Path, ws: Workspace) -> None:
    tools, client = Tools(ws), "\x1b[2J" + "x" * 300
    assert not answered(tools, "checkpoint_save", client=client).is_error
    assert not answered(tools, "checkpoint_save", client=client, name="second").is_error
    actor = ws.get("second").actor or ""
    assert actor.startswith("\\x1b[2Jxxx") and len(actor) == 200


def test_an_argument_that_is_null_counts_as_left_out(ws: Workspace) -> None:
    made = answered(Tools(ws), "checkpoint_save", message="m", name=None, pinned=None)
    assert not made.is_error, made
    assert (ws.get("latest").message, ws.get("latest").name) == ("m", None)


def test_what_nobody_foresaw_is_an_answer_too(ws: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    def fail(**_: Any) -> Any:
        raise RuntimeError("secret")

    tools = Tools(ws)
    tools.all["checkpoint_list"] = tools.all["checkpoint_list"]._replace(does=fail)
    told = answered(tools, "checkpoint_list")
    assert told.is_error and told.structured_content
    assert "RuntimeError" in told.structured_content["error"]["message"]
    assert "secret" not in str(told.structured_content) and "secret" in caplog.text


def test_a_restore_that_did_not_do_everything_says_so_in_words(
    project: Path, ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws.save("good")
    (project / "a.txt").write_text("two\n")
    done = ws.restore("latest")._replace(failed={"a.txt": "it is busy", "b.txt": "so is it"})
    monkeypatch.setattr(ws, "undo", lambda: done)
    answer = Tools(ws).undo()
    assert answer["notes"] == ["2 paths could not be restored."] and not answer["ok"]
    assert answer["entries"][0] == {"action": "failed", "path": "a.txt", "reason": "it is busy"}


def test_unfinished_restore_is_reported_each_time(ws: Workspace) -> None:
    ws.recovery_error = Unavailable("the disk is full", hint="Make room.")
    tools = Tools(ws)
    for _ in range(2):
        [note] = tools.call(tools.all["checkpoint_list"], {}, client="c")["notes"]
        assert "could not be finished: the disk is full" in note


def test_a_search_that_finds_too_much_says_so(project: Path, ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.txt", "c.txt"):
        (project / name).write_text("one\n")
    ws.save("good")
    assert not Tools(ws).search(text="one")["notes"]
    monkeypatch.setattr(tools_module, "MATCHES_MAX", 2)
    found = Tools(ws).search(text="one")
    assert (found["total"], len(found["notes"])) == (2, 1)


def test_entry_longer_than_a_page_is_its_own_page() -> None:
    entries = [{"path": "x" * 200_000}, {"path": "y"}]
    assert results.page(entries, 0, 10) == (entries[:1], {"total": 2, "next_offset": 1})
    assert results.page(entries, 1, 10) == (entries[1:], {"total": 2, "next_offset": None})


def test_failures_are_reported_before_exclusions(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = ws.save("m")
    left_out = [Uncovered(f"a{number:03}", Reason.EXCLUDED) for number in range(results.ENTRIES_MAX)]
    not_held = (*left_out, Uncovered("z", Reason.CHANGED))
    monkeypatch.setattr(type(saved), "uncovered", property(lambda self: not_held))
    told = results.saved(saved, 2)
    assert told["uncovered"][0]["path"] == "z"
    assert (len(told["uncovered"]), told["uncovered_total"]) == (results.ENTRIES_MAX, results.ENTRIES_MAX + 1)


def test_secrets_are_listed_and_not_shown(ws: Workspace) -> None:
    key = "ghp_Zq3vT8mK1xW6bN4cR7yL2pD9sF5gH0jQ1aEu"
    tools = Tools(ws)
    assert answered(tools, "checkpoint_secrets").structured_content["secrets"] == []
    for name in (".env", "new\nline"):
        (ws.path / name).write_text(f"A=1\nTOKEN={key}\n")
    (ws.path / "long.txt").write_text("words " * 20_000)  # more than a save scans
    saved = ws.save()
    first = answered(tools, "checkpoint_secrets", limit=1).structured_content
    second = answered(tools, "checkpoint_secrets", offset=first["next_offset"]).structured_content
    assert first["total"] == 2 and second["next_offset"] is None
    found = [*first["secrets"], *second["secrets"]]
    assert {each["place"] for each in found} == {".env:2", "new\\nline:2"}
    assert {(each["kind"], each["checkpoint"]) for each in found} == {("github-token", saved.id)}
    assert key not in str(first) + str(second) and "purge --secret" in first["notes"][0]


def answered(tools: Tools, tool: str, *, client: str = "c", **arguments: Any) -> types.CallToolResult:
    """What a client of that name is answered."""
    info = SimpleNamespace(client_info=SimpleNamespace(name=client))
    context: Any = SimpleNamespace(session=SimpleNamespace(client_params=info))

    async def scene() -> types.CallToolResult:
        service = _Service(tools)
        try:
            return await service._call(context, types.CallToolRequestParams(name=tool, arguments=arguments))
        finally:
            await service._threads.aclose()

    return run(scene())
