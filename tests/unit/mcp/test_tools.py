"""What the tools do, spoken with by the package's own client over a real pipe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace

from .clients import connected, run


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_saves_looks_restores_and_takes_it_back(project: Path, ws: Workspace, mode: str) -> None:
    async def scene() -> None:
        async with connected(project, mode=mode) as talk:
            saved = await talk.ok("save", message="good", name="first")
            (project / "a.txt").write_text("two\n")
            (project / "b.txt").write_text("new\n")

            differs = await talk.ok("diff", a="first")
            assert {each["path"]: each["change"] for each in differs["changes"]} == {
                "a.txt": "modified",
                "b.txt": "added",
            }
            assert "-one\n+two\n" in differs["text"]

            plan = await talk.ok("preview", checkpoint="first")
            assert {each["path"]: each["action"] for each in plan["entries"]} == {
                "a.txt": "replaced",
                "b.txt": "removed",
                ".": "retimed",
            }
            assert (project / "b.txt").exists()

            done = await talk.ok("restore", checkpoint="first", digest=plan["digest"])
            assert done["ok"] and done["counts"]["removed"] == 1
            assert (project / "a.txt").read_text() == "one\n" and not (project / "b.txt").exists()

            undone = await talk.ok("undo")
            assert undone["checkpoint"] == done["undo_id"]
            assert (project / "a.txt").read_text() == "two\n" and (project / "b.txt").exists()

            listed = await talk.ok("list")
            assert [each["id"] for each in listed["checkpoints"]] == [saved["checkpoint"]["id"]]
            found = await talk.ok("search", text="new")
            assert [each["path"] for each in found["matches"]] == ["b.txt"]

    run(scene())
    assert ws.get("first").message == "good"


@pytest.mark.slow
def test_the_client_is_the_actor_unless_the_user_says_otherwise(project: Path, ws: Workspace) -> None:
    async def scene() -> None:
        async with connected(project, mode="legacy") as talk:
            await talk.ok("save")
            await talk.ok("save", name="by-itself")
        async with connected(project, "--actor", "kelp", "--session", "s1") as talk:
            await talk.ok("save")
            await talk.ok("save", name="by-option")

    run(scene())
    assert ws.get("by-itself").actor == "mcp"  # what the package's client calls itself
    assert (ws.get("by-option").actor, ws.get("by-option").session) == ("kelp", "s1")


@pytest.mark.slow
def test_what_the_first_save_of_a_client_finds_is_the_users(project: Path, ws: Workspace) -> None:
    start = ws.save("start")
    (project / "mine.txt").write_text("mine\n")

    async def scene() -> None:
        async with connected(project, "--actor", "kelp", "--session", "s1") as talk:
            first = await talk.ok("save", message="before my work")
            assert first["checkpoint"]["actor"] is None and first["notes"] == [
                "What this first save found is not attributed to kelp."
            ]
            (project / "agents.txt").write_text("agent\n")
            second = await talk.ok("save", message="done")
            assert second["checkpoint"]["actor"] == "kelp" and second["notes"] == []
        (project / "mine-too.txt").write_text("mine\n")
        async with connected(project, "--actor", "kelp", "--session", "s1") as talk:  # resumed, and the user edited
            assert (await talk.ok("save"))["checkpoint"]["actor"] is None

    run(scene())
    assert ws.restore(start.id, keep_mine=True).ok
    assert (project / "mine.txt").exists() and (project / "mine-too.txt").exists()
    assert not (project / "agents.txt").exists()


def test_every_tool_says_what_it_may_change_and_what_it_gives(project: Path) -> None:
    async def scene() -> dict[str, Any]:
        async with connected(project) as talk:
            return {tool.name: tool for tool in (await talk.client.list_tools()).tools}

    tools = run(scene())
    reading = {name for name, tool in tools.items() if tool.annotations.read_only_hint}
    destroying = {name for name, tool in tools.items() if tool.annotations.destructive_hint}
    assert {name.removeprefix("checkpoint_") for name in reading} == {"list", "diff", "preview", "search", "secrets"}
    assert {name.removeprefix("checkpoint_") for name in destroying} == {"restore", "undo"}
    assert not tools["checkpoint_undo"].annotations.idempotent_hint
    assert len(tools) == 8
    assert all(tool.output_schema["required"] and tool.description and tool.title for tool in tools.values())


def test_undo_does_not_remove_what_was_saved_since(project: Path, ws: Workspace) -> None:
    first = ws.save().id
    (project / "b.txt").write_text("gone\n")
    before = ws.restore(first).undo_id
    (project / "new.txt").write_text("new\n")
    ws.save()

    async def scene() -> None:
        async with connected(project) as talk:
            error = await talk.error("undo")
            assert error["kind"] == "refused" and before in error["hint"]

    run(scene())
    assert (project / "new.txt").exists()


def test_restore_needs_the_digest_of_this_preview(project: Path, ws: Workspace) -> None:
    ws.save("good")
    (project / "a.txt").write_text("two\n")
    (project / "b.txt").write_text("new\n")
    before = _contents(project)

    async def scene() -> None:
        async with connected(project) as talk:
            assert "checkpoint_preview" in (await talk.error("restore", checkpoint="latest"))["hint"]
            assert (await talk.error("restore", checkpoint="latest", digest=""))["kind"] == "conflict"
            some = await talk.ok("preview", checkpoint="latest", paths=["a.txt"])
            less = await talk.ok("preview", checkpoint="latest", keep_new=True)
            for other in (some, less):
                refused = await talk.error("restore", checkpoint="latest", digest=other["digest"])
                assert refused["kind"] == "conflict"
            assert _contents(project) == before

            plan = await talk.ok("preview", checkpoint="latest")
            (project / "a.txt").write_text("three, by the user\n")
            moved = await talk.error("restore", checkpoint="latest", digest=plan["digest"])
            assert moved["kind"] == "conflict" and "checkpoint_preview" in moved["hint"]
            assert (project / "a.txt").read_text() == "three, by the user\n"
            assert (project / "b.txt").exists()

            part = await talk.ok("preview", checkpoint="latest", paths=["a.txt"])
            await talk.ok("restore", checkpoint="latest", paths=["a.txt"], digest=part["digest"])
            assert (project / "a.txt").read_text() == "one\n" and (project / "b.txt").exists()

    run(scene())


def test_names_are_escaped_and_accepted_back(project: Path, ws: Workspace) -> None:
    names = [b"\xff\x1b[31mred\n.txt", "\u202egnp.exe".encode(), b"back\\nslash", b"tag-\xf3\xa0\x81\x81"]
    for name in names:
        (Path(os.fsdecode(os.fsencode(project) + b"/" + name))).write_text("hidden \x1b]0;title\x07 \u2066text\n")
    ws.save('say "}\n\x1b[2J\x00', actor="\x1b[31m", session="\u2066")
    for name in names:
        os.unlink(os.fsencode(project) + b"/" + name)

    async def scene() -> None:
        async with connected(project) as talk:
            plan = await talk.ok("preview", checkpoint="latest")
            found = await talk.ok("search", text="hidden")
            listed, differs = await talk.ok("list"), await talk.ok("diff")
            for answer in (plan, found, listed, differs):
                assert all(text.replace("\n", "").replace("\t", "").isprintable() for text in _texts(answer))
            paths = [each["path"] for each in plan["entries"] if each["action"] == "written"]
            assert paths == [each["path"] for each in found["matches"]]
            assert set(paths) == {
                "\\xff\\x1b[31mred\\n.txt",
                "\\u202egnp.exe",
                "back\\\\nslash",
                "tag-\\U000e0041",
            }
            for path in paths:
                part = await talk.ok("preview", checkpoint="latest", paths=[path])
                await talk.ok("restore", checkpoint="latest", paths=[path], digest=part["digest"])
            wrong = await talk.error("preview", checkpoint="latest", paths=["a\\qb", "\x1b[31m"])
            assert wrong["kind"] == "refused" and "two" in wrong["hint"]
            for other in (["\\x00"], ["\\udc80"], ["\\Uffffffff"]):
                assert (await talk.error("diff", paths=other))["kind"] == "refused"
            assert "\x1b" not in str(await talk.error("diff", a="\x1b[31m"))

    run(scene())
    assert {*names, b"a.txt"} == set(os.listdir(os.fsencode(project)))


@pytest.mark.slow
def test_long_answers_come_in_pages_that_miss_and_repeat_nothing(project: Path, ws: Workspace) -> None:
    ws.save("before", name="before")
    for number in range(450):
        (project / f"{number:03}.txt").write_text(f"{number} and some more text\n" * 3)
    for number in range(7):
        (project / "a.txt").write_text(f"{number}\n")
        ws.save(f"{number}")

    async def scene() -> None:
        async with connected(project) as talk:
            plan = [page async for page in _pages(talk.ok, "preview", checkpoint="before", limit=200)]
            assert len(plan) == 3 and len({page["digest"] for page in plan}) == 1
            assert len({each["path"] for page in plan for each in page["entries"]}) == plan[0]["total"] == 452

            found = [page async for page in _pages(talk.ok, "search", text="more", limit=200)]
            assert len(found) == 3 and all(len(page["matches"]) <= 200 for page in found)
            assert len({each["path"] for page in found for each in page["matches"]}) == 450

            text, at = "", 0
            while at is not None:
                page = await talk.ok("diff", a="before", limit=1, text_offset=at)
                text, at = text + page["text"], page["next_text_offset"]
                assert len(page["text"]) <= 20_000 and len(page["changes"]) == 1
            assert text == ws.diff("before").diff_content

            first = await talk.ok("list", limit=5)
            ws.save("while somebody leafs", allow_empty=True)
            second = await talk.ok("list", limit=5, before=first["next_before"])
            listed = [each["message"] for page in (first, second) for each in page["checkpoints"]]
            assert listed == ["6", "5", "4", "3", "2", "1", "0", "before"] and second["next_before"] is None
            assert "200" in (await talk.error("list", limit=201))["message"]

    run(scene())


def test_pages_of_a_search_are_cut_from_one_order(project: Path, ws: Workspace) -> None:
    for name in ("z", "m", "b"):  # found in another order than they are shown in
        (project / name).write_text("text\n")
        ws.save(name)

    async def scene() -> None:
        async with connected(project) as talk:
            pages = [page async for page in _pages(talk.ok, "search", text="text", limit=1)]
            assert [each["path"] for page in pages for each in page["matches"]] == ["b", "m", "z"]

    run(scene())


@pytest.mark.slow
def test_paths_as_long_as_they_get_make_a_page_shorter(project: Path, ws: Workspace) -> None:
    ws.save("before", name="before")
    deep = project / Path(*["\x01" * 200 for _ in range(12)])
    deep.mkdir(parents=True)
    for number in range(40):
        (deep / f"{number}").write_text("")

    async def scene() -> None:
        async with connected(project) as talk:
            pages = [page async for page in _pages(talk.ok, "diff", a="before", limit=200)]
            assert len(pages) > 1 and all(len(str(page["changes"])) < 120_000 for page in pages)
            assert sum(len(page["changes"]) for page in pages) == pages[0]["total"]

    run(scene())


def test_what_cannot_be_done_is_an_error_with_a_hint(project: Path) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("nothing", {}, "not-found"),
        ("diff", {}, "not-found"),
        ("undo", {}, "not-found"),
        ("preview", {"checkpoint": "nowhere"}, "not-found"),
        ("preview", {}, "refused"),
        ("preview", {"checkpoint": 7}, "refused"),
        ("preview", {"checkpoint": "x" * 1000}, "refused"),
        ("list", {"limit": 0}, "refused"),
        ("list", {"workspace": "/"}, "refused"),
        ("save", {"message": "x" * 100_000}, "refused"),
        ("search", {"text": ""}, "refused"),
        ("search", {"text": "x", "paths": ["../.."]}, "refused"),
        ("search", {"text": "x", "paths": ["/etc/passwd"]}, "refused"),
        ("search", {"text": "x", "paths": []}, "refused"),
        ("search", {"text": "x", "paths": ["**/**/**/**/**/x"]}, "refused"),
    ]

    async def scene() -> None:
        async with connected(project) as talk:
            for tool, arguments, kind in wrong:
                error = await talk.error(tool, **arguments)
                assert (error["kind"], bool(error["hint"])) == (kind, True), (tool, arguments, error)
                assert len(error["message"]) < 1000
            assert (await talk.ok("list"))["checkpoints"] == []

    run(scene())


def test_a_save_says_what_it_could_not_hold(project: Path) -> None:
    (project / ".holdfastignore").write_text("*\n")

    async def scene() -> None:
        async with connected(project) as talk:
            saved = await talk.ok("save")
            assert not saved["checkpoint"]["complete"] and "incomplete" in saved["notes"][-1]
            assert saved["uncovered"][0]["reason"] == "nothing-held"
            assert saved["uncovered_total"] == len(saved["uncovered"]) > 1

    run(scene())


def test_vanished_folder_or_store_is_an_error_until_it_returns(project: Path, ws: Workspace) -> None:
    ws.save("good")

    async def scene() -> None:
        async with connected(project) as talk:
            for gone in (project, ws.store):
                gone.rename(gone.with_name("aside"))
                for tool, arguments in (("save", {}), ("preview", {"checkpoint": "latest"}), ("diff", {})):
                    assert (await talk.error(tool, **arguments))["hint"]
                gone.with_name("aside").rename(gone)
            assert len((await talk.ok("list"))["checkpoints"]) == 1
            assert not (await talk.ok("save"))["is_new"]

    run(scene())


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for each in pair for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []


async def _pages(ok: Any, tool: str, **arguments: Any) -> Any:
    at = 0
    while at is not None:
        page = await ok(tool, offset=at, **arguments)
        yield page
        at = page["next_offset"]


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
