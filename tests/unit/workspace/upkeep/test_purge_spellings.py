"""A purged secret goes in every spelling, and what is left anywhere in the store is named."""

from __future__ import annotations

import base64
import json
import os
import random
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from holdfast import NotFound, Workspace
from holdfast.testing.faulty_disks import KillingDisk, die_in_child
from holdfast.workspace.upkeep.state_redaction import CUT_OUT

KEY = "sk-0123456789abcdef"
LINE = "the passphrase is correct horse battery"
Git = Callable[..., bytes]


def _pem() -> str:
    body = base64.b64encode(random.Random(5).randbytes(300)).decode()
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----", ""])


PEM = _pem()


@pytest.fixture
def everything(project, git: Git) -> Callable[[], bytes]:
    """All objects of the store, inflated, one after the other."""

    def read() -> bytes:
        return git(f"--git-dir={project.store}", "cat-file", "--batch-all-objects", "--batch", "--unordered")

    return read


def _spellings(text: str) -> list[str]:
    once = json.dumps(text)
    return [
        text,
        once,
        json.dumps({"content": once}),
        json.dumps(once).replace("/", "\\/"),
        quote(text, safe=""),
        quote_plus(text),
        base64.b64encode(text.encode()).decode(),
        base64.urlsafe_b64encode(text.encode()).decode(),
    ]


def test_a_private_key_goes_from_transcripts(project, ws: Workspace, everything) -> None:
    project.write("id.pem", PEM.encode())
    talk = [{"role": "tool", "content": f"{each} end"} for each in _spellings(PEM)]
    ws.save("one", state={"talk": talk, "bytes": PEM.encode(), "opaque": b"\xff" + PEM.encode()})
    done = ws.purge("id.pem")
    assert (done.plan.partly, done.plan.also_at) == ({}, {})
    state = ws.get("latest").state
    assert [each["content"] for each in state["talk"]][:2] == [f"{CUT_OUT}\n end", f'"{CUT_OUT}\\n" end']
    assert json.loads(state["talk"][2]["content"].removesuffix(" end")) == {"content": f'"{CUT_OUT}\\n"'}
    assert state["opaque"] == CUT_OUT
    lines = [line for line in PEM.split("\n") if len(line) > 30]
    left = everything()
    for text in (PEM, *lines):
        for spelled in _spellings(text):
            assert spelled.strip('"').encode() not in left
    assert ws.verify().ok


def test_a_number_and_names_go_too(project, ws: Workspace, everything) -> None:
    project.write("card", b"4111111111111111\n")
    state = {"pay": {"card": 4111111111111111, "4111111111111111": 1, "x4111111111111111": 2, CUT_OUT: 3}}
    ws.save("one", state=state)
    done = ws.purge("card")
    assert done.plan.partly == {}
    assert ws.get("latest").state == {
        "pay": {"card": CUT_OUT, f"{CUT_OUT} 2": 1, f"x{CUT_OUT}": 2, CUT_OUT: 3},
    }
    assert b"4111111111111111" not in everything()


class TestWhatIsLeft:
    """What a purge cannot take is in its result."""

    def test_another_file_that_repeats_a_key(self, project, ws: Workspace) -> None:
        project.write(".env", f"API_KEY={KEY}\n".encode())
        project.write("deep/notes.json", json.dumps({"inner": json.dumps({"key": KEY})}).encode())
        one = ws.save("one")
        plan = ws.purge(".env", dry_run=True)
        assert plan.also_at == {"deep/notes.json": one.id}
        assert ws.purge(".env").plan == plan

    def test_a_large_file_with_a_key_where_two_parts_meet(self, project, ws: Workspace) -> None:
        parts = random.Random(3).randbytes(9 << 20)
        project.write("large", parts)
        project.write(".env", f"API_KEY={KEY}\n".encode())
        ws.save("without it")
        tree = ws._repository.contents(ws.get("latest")).root.tree
        [entry] = [each for each in ws._repository.objects.tree(tree) if each.name == b"large"]
        at = len(ws._repository.objects.blob(ws._repository.objects.tree(entry.oid)[0].oid)) - 5
        project.write("large", parts[: at - 100_000] + parts[at - 100_000 : at] + KEY.encode() + parts[at:])
        ws.save("with it")
        assert "large" in ws.purge(".env").plan.also_at

    def test_a_path_and_an_attribute(self, project, ws: Workspace) -> None:
        project.write(".env", f"API_KEY={KEY}\n".encode())
        project.write(f"{KEY}.txt", b"of it\n")
        os.setxattr(project.write("a"), "user.key", base64.b64encode(KEY.encode()))
        one = ws.save("one")
        assert set(ws.purge(".env").plan.partly[one.id]) == {"(paths)", "(attributes)"}

    def test_a_name_and_a_session(self, project, ws: Workspace) -> None:
        project.write(".env", f"API_KEY={KEY}\n".encode())
        one = ws.save("one", session=KEY, actor=f"x/{KEY}")
        assert ws.purge(".env").plan.partly == {one.id: ["(session)", "(actor)"]}

    def test_what_somebody_put_into_the_store(self, project, ws: Workspace, git: Git) -> None:
        project.write(".env", f"API_KEY={KEY}\n".encode())
        ws.save("one")
        where = f"--git-dir={project.store}"
        blob = git(where, "hash-object", "-w", "--stdin", given=f"also {KEY}\n".encode()).decode().strip()
        tree = git(where, "mktree", given=f"100644 blob {blob}\tnote\n".encode()).decode().strip()
        commit = git(where, *_WHO, "commit-tree", "-m", "own", tree).decode().strip()
        git(where, "update-ref", "refs/heads/own", commit)
        git(where, "repack", "-q", "-a", "-d")
        (project.store / "holdfast" / "a-note").write_text(f"remember {KEY}")
        assert project.open().purge(".env").plan.partly == {"(store)": [f"object {blob}", "holdfast/a-note"]}


_WHO = ("-c", "user.name=n", "-c", "user.email=e@example.com")


def _interrupted(project, purge: Callable[[Workspace], object]) -> None:
    """Kill a purge as soon as its journal is there."""
    for number in range(1, 80):
        assert die_in_child(KillingDisk(at=number, when="after"), lambda: purge(project.open()))
        if (project.store / "holdfast" / "purge.json").exists():
            return
    raise AssertionError("no journal was written")


@pytest.mark.slow
def test_a_continued_purge_cuts_no_more_than_an_undisturbed_one(project, ws: Workspace) -> None:
    project.write(".env", f"API_KEY={KEY}\n".encode())
    words = "see checkpoint a1-0123456789 of 2024-01-01T00:00:00 in build-7f3a9c21d4"
    state = {"talk": [words, f"the key is {KEY}"]}
    ws.save("one", state=state, metadata={"said": words})
    (project.root / ".env").unlink()
    ws.save(words, state={"talk": [words]})
    _interrupted(project, lambda again: again.purge(".env"))
    later = project.open()
    later.save("goes on with it", allow_empty=True)
    one, two = later.get("latest~2"), later.get("latest~1")
    assert one.state == {"talk": [words, f"the key is {CUT_OUT}"]}
    assert one.metadata == {"said": words}
    assert (two.message, two.state) == (words, {"talk": [words]})


class TestLinesLater:
    """Lines can be cut after the purge that named them."""

    @pytest.fixture
    def purged(self, project, ws: Workspace) -> Workspace:
        project.write("notes", f"hello\n{LINE}\n".encode())
        project.write("other", b"API_KEY=sk-fedcba9876543210\n")
        state = {"talk": [json.dumps({"said": f"sk-fedcba9876543210 > {LINE}!"})], "more": {LINE: 1}}
        ws.save(f"about {LINE}", state=state, metadata={"of": [LINE]})
        (project.root / "notes").unlink()
        ws.save("two", state=state)
        left = ws.purge("notes").plan.partly
        assert {name for names in left.values() for name in names} == {"talk", "more", "(message)", "(metadata)"}
        return ws

    def test_they_are_cut(self, project, purged: Workspace, everything) -> None:
        with pytest.raises(NotFound, match="repeat lines of it"):
            purged.purge("notes")
        done = project.open().purge("notes", lines=True)
        assert done.plan.partly == {}
        assert LINE.encode() not in everything()
        assert not (project.store / "holdfast" / "lines-left.json").exists()
        with pytest.raises(NotFound, match="no checkpoint contains notes"):
            purged.purge("notes", lines=True)
        assert purged.verify().ok

    def test_also_after_another_purge_that_moved_them(self, project, purged: Workspace, everything) -> None:
        purged.purge("other")
        assert LINE.encode() in everything()
        purged.purge("notes", lines=True)
        assert LINE.encode() not in everything()

    def test_no_line_is_written_down(self, project, purged: Workspace) -> None:
        raw = b"".join(path.read_bytes() for path in (project.store / "holdfast").iterdir() if path.suffix == ".json")
        assert b"lines" not in raw and LINE[:10].encode() not in raw

    def test_a_kill_at_any_write_leaves_it_possible(self, project, purged: Workspace, everything) -> None:
        for number in range(1, 200):
            if not die_in_child(KillingDisk(at=number), lambda: project.open().purge("notes", lines=True)):
                break
            ws = project.open()
            ws.pin("latest", pinned=False)  # the next writer goes on with it
            if LINE.encode() not in everything():
                break
        assert LINE.encode() not in everything()
        assert project.open().verify().ok
