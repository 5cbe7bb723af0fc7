"""Secrets that checkpoints contain: found when saved, listed, purged, redacted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast import NotFound, Workspace
from holdfast.workspace import secrets as scanning
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.tree import TreeReader, View

KEY = "ghp_Zq3vT8mK1xW6bN4cR7yL2pD9sF5gH0jQ1aEu"
OTHER = "ghp_Bq3vT8mK1xW6bN4cR7yL2pD9sF5gH0jQ1aEv"


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    (tmp_path / "ws").mkdir()
    return Workspace(tmp_path / "ws", store=tmp_path / "store")


def write(ws: Workspace, name: str, text: str) -> None:
    (ws.path / name).write_text(text)


def codes(ws: Workspace) -> list[str]:
    return [each.code for each in ws.status().attention]


def stored_bytes(ws: Workspace) -> bytes:
    """Every object of the store, and every other file in it."""
    objects = ws._repository.objects
    objects.refresh()
    found = [objects.read(oid)[1] for pack in objects.packs() for oid in pack.oids()]
    return b"\n".join([*found, *(path.read_bytes() for path in ws.store.rglob("*") if path.is_file())])


def test_a_new_file_is_listed(ws: Workspace) -> None:
    write(ws, ".env", f"A=1\nTOKEN={KEY}\n")
    saved = ws.save("one")
    (found,) = ws.secrets().found
    assert (found.kind, found.path, found.line, found.checkpoint) == ("github-token", ".env", 2, saved.id)
    (attention,) = [each for each in ws.status().attention if each.code == "secret"]
    assert ".env:2" in attention.message and KEY not in attention.message and attention.remedy is not None
    assert attention.remedy.arguments == {"id": found.id}


def test_nothing_stored_beside_objects_contains_the_secret(ws: Workspace) -> None:
    write(ws, ".env", f"TOKEN={KEY}\n")
    ws.save("one", state={"conversation": {"text": KEY}})
    assert (ws.store / "holdfast" / "secrets.json").exists()
    for path in (ws.store / "holdfast").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()


def test_a_save_without_secrets_writes_no_file(ws: Workspace) -> None:
    write(ws, "a.py", "print(1)\n")
    ws.save("one", state={"x": 1})
    assert not (ws.store / "holdfast" / "secrets.json").exists() and codes(ws) == []


def test_tracked_files_are_left_out(ws: Workspace) -> None:
    write(ws, "tracked.py", f"TOKEN = '{KEY}'\n")
    write(ws, "ignored.env", f"TOKEN = '{OTHER}'\n")
    write(ws, ".gitignore", "*.env\n")
    for words in (["init", "-q"], ["add", "tracked.py", ".gitignore"]):
        subprocess.run(["git", *words], cwd=ws.path, check=True)
    ws.save("one")
    assert [each.path for each in ws.secrets(every=True).found] == ["ignored.env"]
    assert [each.path for each in ws.secrets().found] == ["ignored.env"]


def test_states_and_messages_are_scanned(ws: Workspace) -> None:
    write(ws, "a", "1")
    ws.save(f"set {OTHER}", state={"conversation": {"text": f'he said\n"{KEY}"\n'}})
    assert sorted(each.state or "" for each in ws.secrets().found) == ["(record)", "conversation"]


def test_purge_removes_a_file_secret(ws: Workspace) -> None:
    write(ws, ".env", f"TOKEN={KEY}\n")
    ws.save("one")
    (found,) = ws.secrets().found
    plan = ws.purge(secrets=[found.id], dry_run=True)
    assert plan.paths == [".env"]
    ws.purge(secrets=[found.id])
    assert ws.secrets().found == () and KEY.encode() not in stored_bytes(ws)
    with pytest.raises(NotFound):
        ws.purge(secrets=[found.id])


def test_purge_removes_a_secret_of_a_state(ws: Workspace) -> None:
    long = "".join(f'{{"n": {number}}}\n' for number in range(9000))
    for number in range(3):
        write(ws, "a", str(number))
        ws.save("one", state={"conversation": {"text": f'{long}"{KEY}"\n' + "more\n" * number * 800}})
    ids = {each.id for each in ws.secrets().found}
    assert len(ids) == 1
    ws.purge(secrets=[*ids])
    assert ws.secrets().found == () and codes(ws) == [] and KEY.encode() not in stored_bytes(ws)
    assert ws.secrets(every=True).found == ()
    state = ws.get("latest").state["conversation"]
    assert isinstance(state, dict) and "[purged]" in str(state["text"]) and str(state["text"]).startswith(long)


def test_a_secret_across_two_chunks_is_found(ws: Workspace) -> None:
    for size in range(30_000, 34_000, 500):
        write(ws, "a", str(size))
        ws.save("one", state={f"s{size}": {"text": "x" * size + f" {KEY} " + "y" * 9000}})
    assert len(ws.secrets().found) == 8


def test_much_content_is_scanned_later(ws: Workspace) -> None:
    write(ws, "big.txt", "word word\n" * 20_000 + f"TOKEN={KEY}\n")
    ws.save("one")
    assert scanning.SecretScan(ws._repository).report() == ((), (ws.get("latest").id,), ())
    assert codes(ws) == ["secret"]  # status scans it
    assert ws.secrets().pending == ()


def test_what_is_pending_costs_later_saves_nothing(ws: Workspace) -> None:
    """Only what changes the list writes it: it is synced, and a save may cost a tenth more at most."""
    write(ws, "large.txt", "words and more words\n" * 10_000)
    ws.save("one")
    listed = ws.store / "holdfast" / "secrets.json"
    before = listed.stat()
    write(ws, "b.txt", "nothing\n")
    ws.save("two")
    assert listed.stat() == before and len(scanning.SecretScan(ws._repository).report().pending) == 1


def test_more_than_status_scans_stays_pending(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.workspace.status.SECRETS_MAX_BYTES", 1000)
    write(ws, "big.txt", "word word\n" * 20_000 + f"TOKEN={KEY}\n")
    ws.save("one")
    assert codes(ws) == ["secrets-pending"]
    assert [each.path for each in ws.secrets().found] == ["big.txt"] and codes(ws) == ["secret"]


def test_what_is_too_much_for_status_costs_it_little(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """P8: it reads only as many folders as it would scan, and writes the list only if that changes."""
    monkeypatch.setattr("holdfast.workspace.status.SECRETS_MAX_BYTES", 5000)
    for number in range(60):
        (ws.path / str(number)).mkdir()
        write(ws, f"{number}/a.txt", f"{number} word\n" * 200)
    ws.save("one")
    read: list[Node] = []

    class Counting(TreeReader):
        def view(self, node: Node) -> View:
            read.append(node)
            return super().view(node)

    monkeypatch.setattr(scanning, "TreeReader", Counting)
    listed = ws.store / "holdfast" / "secrets.json"
    before = listed.stat()
    assert codes(ws) == ["secrets-pending"]
    assert listed.stat() == before and 0 < len(read) < 10
    assert ws.secrets().pending == () and len(read) > 60


class TestDeleted:
    """What a deleted checkpoint had may be in those that are left."""

    def save_two(self, ws: Workspace) -> str:
        ws.save("before")
        write(ws, "big.txt", "word word\n" * 20_000 + f"TOKEN={KEY}\n")
        first = ws.save("one").id
        write(ws, "b.txt", "nothing\n")
        ws.save("two")
        return first

    def test_pending_one(self, ws: Workspace) -> None:
        ws.delete(self.save_two(ws))
        assert scanning.SecretScan(ws._repository).report().pending == (ws.get("latest").id,)
        assert [each.path for each in ws.secrets().found] == ["big.txt"]

    def test_pending_last_one(self, ws: Workspace) -> None:
        self.save_two(ws)
        ws.delete("latest~1")
        ws.delete("latest")
        assert ws.secrets() == ((), (), ())

    def test_all_are_scanned_again(self, ws: Workspace) -> None:
        first = self.save_two(ws)
        ws.secrets()
        ws.delete(first)
        write(ws, "b.txt", "more\n")
        ws.save("three")
        (ws.store / "holdfast" / "secrets.json").unlink()
        assert [each.path for each in ws.secrets(every=True).found] == ["big.txt"]

    def test_first_one(self, ws: Workspace) -> None:
        first = self.save_two(ws)
        ws.delete(first)
        ws.delete("latest~1")
        assert [each.path for each in ws.secrets(every=True).found] == ["big.txt"]


def test_large_files_are_reported(ws: Workspace) -> None:
    with open(ws.path / "huge.bin", "wb") as file:
        file.truncate(9 << 20)
    ws.save("one")
    assert ws.secrets().skipped == ("huge.bin",)


def test_the_same_content_is_scanned_once(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned: list[int] = []
    find = scanning.find_secrets
    monkeypatch.setattr(scanning, "find_secrets", lambda data, **how: scanned.append(len(data)) or find(data, **how))
    write(ws, "a", "x" * 5000)
    ws.save("one")
    write(ws, "b", "x" * 5000)
    ws.save("two")
    assert scanned.count(5000) == 1


def test_a_scan_that_fails_does_not_fail_a_save(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scanning.SecretScan, "_write", fail)
    write(ws, ".env", f"TOKEN={KEY}\n")
    assert ws.save("one").is_new
    monkeypatch.undo()
    assert len(ws.secrets().found) == 1  # it was still pending


class _Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("deferred", [False, True])
def test_a_kill_before_the_scan_leaves_it_to_the_next_save(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, deferred: bool
) -> None:
    def killed(*args: object, **keywords: object) -> None:
        raise _Killed

    write(ws, ".env", f"TOKEN={KEY}\n")
    if deferred:  # a helper that is killed before it scans
        ws.defer_scans()
        ws.save("one")
    else:
        with monkeypatch.context() as patch, pytest.raises(_Killed):
            patch.setattr(scanning.SecretScan, "after_save", killed)
            ws.save("one")
    later = Workspace(ws.path, store=ws.store)
    assert len(later.list()) == 1
    write(later, "b.txt", "nothing secret\n")
    later.save("two")
    assert len(scanning.SecretScan(later._repository).report().pending) == 1
    assert [each.path for each in later.secrets().found] == [".env"]
    assert scanning.SecretScan(later._repository).report().pending == ()
    assert not (ws.store / "holdfast" / "unscanned").exists()


def test_a_damaged_list_is_rebuilt(ws: Workspace) -> None:
    write(ws, ".env", f"TOKEN={KEY}\n")
    ws.save("one")
    (ws.store / "holdfast" / "secrets.json").write_text('{"found": [3]}')
    assert codes(ws) == [] and len(ws.secrets(every=True).found) == 1 and codes(ws) == ["secret"]


def test_scanning_can_be_turned_off(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    ws = Workspace(tmp_path / "ws", store=tmp_path / "store", scan_secrets=False)
    write(ws, ".env", f"TOKEN={KEY}\n")
    ws.save("one")
    assert ws.secrets().found == ()
