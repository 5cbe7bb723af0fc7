"""A purged path's content is in no checkpoint and in no object of the store; git itself is asked."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from holdfast import Conflict, Damaged, NotFound, Refused, Unavailable, Workspace, durable
from holdfast.model import Reason
from holdfast.testing.faulty_disks import (
    CountingDisk,
    DiskCall,
    FailingDisk,
    ForgetfulDisk,
    KillingDisk,
    PowerLoss,
    die_in_child,
)
from holdfast.workspace.upkeep.purge_journal import read_begun
from holdfast.workspace.upkeep.state_redaction import CUT_OUT

SECRET = b"API_KEY=sk-0123456789abcdef\n"
Git = Callable[..., bytes]


@pytest.fixture
def everything(project, git: Git) -> Callable[[], bytes]:
    """All objects of the store, inflated, one after the other, whether anything names them or not."""

    def read() -> bytes:
        return git(f"--git-dir={project.store}", "cat-file", "--batch-all-objects", "--batch", "--unordered")

    return read


@pytest.fixture
def history(project, ws: Workspace) -> Workspace:
    """Three saves with a secret in two of them, and a restore in between."""
    project.write("a", b"plain\n")
    project.write("folder/b", b"plain too\n")
    ws.save("one", name="one")
    project.write(".env", SECRET)
    ws.save("two", name="two", state={"note": "kept"})
    project.write("a", b"changed\n")
    ws.restore("one")
    ws.undo()
    ws.save("three", name="three")
    return ws


def test_the_content_is_in_no_object_afterwards(
    project, history: Workspace, everything: Callable[[], bytes], git: Git
) -> None:
    assert SECRET in everything()
    done = history.purge(".env")
    assert SECRET not in everything()
    assert done.objects > 0
    assert done.bytes_freed >= 0
    git(f"--git-dir={project.store}", "fsck", "--strict")
    assert history.verify().ok


def test_the_checkpoints_keep_their_ids_and_everything_else(project, history: Workspace) -> None:
    before = {each.id: each for each in history.list(safety=True)}
    done = history.purge(".env")
    after = {each.id: each for each in history.list(safety=True)}
    assert before.keys() == after.keys()
    touched = {key for key in before if before[key].commit != after[key].commit}
    assert touched == set(done.plan.checkpoints)
    assert before[history.get("one").id].commit == history.get("one").commit
    for each in after.values():
        same = before[each.id]
        assert (each.message, each.timestamp, each.parent, each.operation) == (
            same.message, same.timestamp, same.parent, same.operation,
        )  # fmt: skip
    two = history.get("two")
    assert two.purged == (".env",)
    assert [(item.path, item.reason) for item in two.uncovered] == [(".env", Reason.PURGED)]
    assert two.state == {"note": "kept"}
    assert two.files_changed == []
    assert two.complete


def test_a_restore_brings_the_rest_and_says_what_is_purged(project, history: Workspace) -> None:
    history.purge(".env")
    (project.root / ".env").unlink()
    project.write("a", b"other\n")
    done = history.restore("two")
    assert done.missing == {".env": "not covered by the checkpoint: purged"}
    assert (project.root / "a").read_bytes() == b"plain\n"
    project.write(".env", b"NEW=1\n")
    assert ".env" in history.restore("two").kept
    assert (project.root / ".env").read_bytes() == b"NEW=1\n"


def test_the_next_save_holds_it_again_unless_it_is_ignored(
    project, history: Workspace, everything: Callable[[], bytes]
) -> None:
    done = history.purge(".env")
    assert done.plan.in_workspace == [".env"]
    project.write(".holdfastignore", b".env\n")
    saved = history.save("four")
    assert SECRET not in everything()
    assert ".env" in {item.path for item in saved.uncovered}
    (project.root / ".holdfastignore").unlink()
    history.save("five")
    assert SECRET in everything()
    assert history.verify().ok


def test_a_dry_run_only_says_what_would_be_done(project, history: Workspace, everything: Callable[[], bytes]) -> None:
    plan = history.purge(".env", dry_run=True)
    assert plan.paths == [".env"]
    assert 0 < plan.bytes_freed < len(SECRET) + 50
    assert history.get("two").id in plan.checkpoints
    assert history.get("one").id not in plan.checkpoints
    assert SECRET in everything()
    assert not history.get("two").purged
    assert history.purge(".env").plan == plan


def test_safety_checkpoints_are_purged_too(project, ws: Workspace, everything: Callable[[], bytes]) -> None:
    project.write("a", b"plain\n")
    ws.save("one")
    project.write("a", SECRET)
    ws.restore("latest")
    [path] = ws.purge("a").plan.paths
    assert path == "a"
    assert SECRET not in everything()
    assert ws.undo().missing == {}
    assert ws.verify().ok


def test_a_folder_goes_with_all_that_is_in_it(project, ws: Workspace, everything: Callable[[], bytes]) -> None:
    project.write("keys/deep/er/id", SECRET)
    project.write("keys/other", b"another secret\n")
    project.write("keys-not", b"stays\n")
    (project.root / "keys" / "link").symlink_to("a-secret-place")
    ws.save("one")
    assert ws.purge("keys").plan.paths == ["keys"]
    found = everything()
    assert not any(text in found for text in (SECRET, b"another secret", b"a-secret-place"))
    (project.root / "keys-not").unlink()
    ws.restore("latest", ["keys-not"])
    assert (project.root / "keys-not").read_bytes() == b"stays\n"
    assert (project.root / "keys" / "other").exists()


def test_a_glob_takes_every_match(project, ws: Workspace, everything: Callable[[], bytes]) -> None:
    for path in ("a.pem", "deep/er/b.pem", "deep/c.txt"):
        project.write(path, path.encode() + SECRET)
    ws.save("one")
    project.write("deep/c.txt", b"changed\n")
    ws.save("two")
    assert ws.purge("*.pem").plan.paths == ["a.pem", "deep/er/b.pem"]
    found = everything()
    assert b"b.pem" + SECRET not in found
    assert b"c.txt" + SECRET in found


def test_all_parts_of_a_large_file_go(project, ws: Workspace, everything: Callable[[], bytes]) -> None:
    data = random.Random(1).randbytes(9 << 20)
    project.write("model.bin", data)
    project.write("a")
    ws.save("one")
    project.write("model.bin", data[:1000] + b"x" + data[1000:])
    ws.save("two")
    before = sum(path.stat().st_size for path in (project.store / "objects" / "pack").iterdir())
    done = ws.purge("model.bin")
    found = everything()
    assert not any(data[at : at + 64] in found for at in range(0, len(data), 100_000))
    assert done.bytes_freed == done.plan.bytes_freed > 9 << 20
    assert sum(path.stat().st_size for path in (project.store / "objects" / "pack").iterdir()) < before / 100


def test_the_same_bytes_under_another_path_stay_and_are_named(
    project, ws: Workspace, everything: Callable[[], bytes]
) -> None:
    project.write("secret", SECRET)
    ws.save("one")
    project.write("deep/copy", SECRET)
    two = ws.save("two")
    done = ws.purge("secret")
    assert done.plan.also_at == {"deep/copy": two.id}
    assert SECRET in everything()
    assert ws.purge("deep/copy").plan.also_at == {}
    assert SECRET not in everything()


def test_a_hard_link_that_stays_is_named(project, ws: Workspace) -> None:
    project.write("secret", SECRET)
    os.link(project.root / "secret", project.root / "twin")
    one = ws.save("one")
    assert ws.purge("secret").plan.also_at == {"twin": one.id}
    (project.root / "twin").unlink()
    assert ws.restore("latest", ["twin"]).ok
    assert (project.root / "twin").read_bytes() == SECRET


def test_what_a_conversation_repeats_is_cut_out_of_it(project, ws: Workspace, everything: Callable[[], bytes]) -> None:
    project.write(".env", SECRET)
    project.write("a")
    ws.save("one")
    long = [{"role": "user", "content": f"message {number} " + "\n" * 50} for number in range(400)]
    said = {"role": "tool", "content": f'the file says: "{SECRET.decode()}"'}
    state = {"conversation": [*long[:200], said, *long[200:]], "other": {"n": [1, None, True]}}
    two = ws.save("two", state=state, allow_empty=True)
    (project.root / ".env").unlink()
    three = ws.save("three", state=state)
    done = ws.purge(".env")
    assert done.plan.states == {two.id: ["conversation"], three.id: ["conversation"]}
    assert SECRET.strip() not in everything()
    found = ws.get(three.id)
    assert found.state["conversation"][200]["content"] == f'the file says: "{CUT_OUT}\n"'
    assert [*found.state["conversation"][:200], *found.state["conversation"][201:]] == long
    assert found.state["other"] == state["other"]
    assert found.purged == ("(state) conversation",)


def test_refs_that_git_has_packed_and_loose_copies_go_too(
    project, history: Workspace, everything: Callable[[], bytes], git: Git
) -> None:
    where = f"--git-dir={project.store}"
    git(where, "pack-refs", "--all")
    git(where, "gc", "--quiet")
    name = git(where, "hash-object", "--stdin", given=SECRET).decode().strip()
    loose = project.store / "objects" / name[:2] / name[2:]  # git itself writes none of what a pack has
    loose.parent.mkdir(exist_ok=True)
    loose.write_bytes(zlib.compress(b"blob %d\0%s" % (len(SECRET), SECRET)))
    project.open().purge(".env")
    assert not loose.exists()
    assert SECRET not in everything()
    assert history.get("two").purged == (".env",)
    git(where, "fsck", "--strict")


@pytest.mark.parametrize("index", ["lost", "cut short", "of other names"])
def test_unreadable_pack_may_still_hold_the_secret(project, history: Workspace, index: str) -> None:
    packs = project.store / "objects" / "pack"
    name = sha1(b"blob %d\0%s" % (len(SECRET), SECRET)).digest()
    found = next(path for path in packs.glob("*.idx") if name in path.read_bytes())
    again = packs / f"pack-{'0' * 40}.pack"  # a second copy, as a merge that was interrupted leaves it
    again.write_bytes(found.with_suffix(".pack").read_bytes()[:-1])
    whole = bytearray(found.read_bytes())
    if index == "cut short":
        again.with_suffix(".idx").write_bytes(whole[:500])
    elif index == "of other names":
        for last in range(1032 + 19, 1032 + 20 * int.from_bytes(whole[1028:1032], "big"), 20):
            whole[last] ^= 1
        again.with_suffix(".idx").write_bytes(whole)
    with pytest.raises(Damaged, match=f"{again.name} has no valid index"):
        project.open().purge(".env")
    assert not history.verify().ok
    again.unlink()
    history.save("the next writer goes on with it", allow_empty=True)
    assert history.purge_error is None
    assert history.verify().ok


def test_a_power_loss_does_not_bring_it_back(project, ws: Workspace, everything: Callable[[], bytes]) -> None:
    project.write("kept", b"in the same pack\n")
    project.write(".env", SECRET)
    ws.save()
    disk = ForgetfulDisk(project.store)
    with durable.use_disk(disk):
        project.open().purge(".env")
    disk.lose_power()
    assert SECRET not in everything()


def test_purge_without_room_changes_nothing(project, history: Workspace) -> None:
    packs = project.store / "objects" / "pack"
    before = sorted(os.listdir(packs)), [each.commit for each in history.list(safety=True)]
    disk = FailingDisk(at=2, error=errno.ENOSPC, once=False)
    with durable.use_disk(disk), pytest.raises(Unavailable, match="No space left"):
        project.open().purge(".env")
    assert disk.failed is not None and disk.failed.name == "write"
    assert (sorted(os.listdir(packs)), [each.commit for each in history.list(safety=True)]) == before
    assert history.verify().ok


def test_the_catalog_does_not_keep_a_message_that_repeated_it(project, ws: Workspace) -> None:
    project.write(".env", SECRET)
    ws.save("with sk-0123456789abcdef in it")
    with open(project.store / "holdfast" / "catalog.db", "rb") as catalog:
        ws.purge(".env")
        assert os.fstat(catalog.fileno()).st_nlink == 0  # some builds of SQLite leave what was in a row, others do not
    assert CUT_OUT in ws.list()[0].message
    assert [path for path in (project.store / "holdfast").iterdir() if b"sk-0123" in path.read_bytes()] == []


def test_other_things_of_the_store_are_as_they_were(project, ws: Workspace) -> None:
    """Modes, times, extended attributes and names that git forbids survive a rewritten folder."""
    project.write("folder/secret", SECRET)
    project.write("folder/.gitattributes", b"* text\n").chmod(0o640)
    project.write("folder/deep/x", b"x\n")
    (project.root / "folder" / "empty").mkdir(mode=0o711)
    os.mkfifo(project.root / "folder" / "pipe")
    os.setxattr(project.root / "folder" / "deep" / "x", "user.tag", b"blue")
    for number in range(300):
        project.write(f"folder/many-{number:03}")
    ws.save("one")
    ws.export("latest", project.area / "before")
    ws.purge("folder/secret")
    ws.export("latest", project.area / "after")
    (project.area / "before" / "folder" / "secret").unlink()
    os.utime(project.area / "before" / "folder", ns=(os.stat(project.area / "after" / "folder").st_mtime_ns,) * 2)
    from holdfast.testing.disk_contract import describe, differences

    assert not differences(describe(project.area / "before"), describe(project.area / "after"))


@pytest.fixture
def deep(project) -> Iterator[str]:
    """A path a thousand folders deep; gone afterwards, since pytest could not remove it."""
    folder = os.open(project.root, os.O_RDONLY)
    for _ in range(1000):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    fd = os.open("secret", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=folder)
    os.write(fd, SECRET)
    os.close(fd)
    os.close(folder)
    yield "d/" * 1000 + "secret"
    subprocess.run(["rm", "-rf", str(project.root / "d")], check=True)


def test_a_path_a_thousand_folders_deep_is_purged(ws: Workspace, deep: str, everything: Callable[[], bytes]) -> None:
    ws.save("one")
    ws.purge(deep)
    assert SECRET not in everything()
    assert ws.verify().ok


def test_the_scan_cache_does_not_keep_the_name_of_the_content(project, history: Workspace, git: Git) -> None:
    name = bytes.fromhex(git("hash-object", "--stdin", given=SECRET).decode().strip())
    cache: Path = project.store / "holdfast" / "scan.cache"
    assert name in cache.read_bytes()
    history.purge(".env")
    assert not cache.exists() or name not in cache.read_bytes()


def test_purge_of_an_unknown_path_is_not_found(project, history: Workspace) -> None:
    before = {each.id: each.commit for each in history.list(safety=True)}
    for wrong in ("no-such-file", "*.nothing"):
        with pytest.raises(NotFound, match=r"no checkpoint contains"):
            history.purge(wrong)
    for wrong in (".", str(project.root)):
        with pytest.raises(Refused):
            history.purge(wrong)
    with pytest.raises(Refused):
        history.purge()
    assert before == {each.id: each.commit for each in history.list(safety=True)}


def test_unreadable_checkpoint_stops_a_purge_before_any_change(project, history: Workspace) -> None:
    ref = project.store / "refs" / "tags" / history.get("one").id
    ref.write_text("0" * 40 + "\n")
    again = project.open()
    with pytest.raises(Damaged):
        again.purge(".env")
    assert not again.get("two").purged


def test_pack_that_cannot_be_rewritten_is_reported(project, ws: Workspace) -> None:
    project.write("noise", random.Random(1).randbytes(5000))
    project.write("secret", SECRET)
    ws.save("one")
    pack = max((project.store / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_size)
    data = bytearray(pack.read_bytes())
    data[data.index((project.root / "noise").read_bytes()[100:200])] ^= 1
    pack.chmod(0o600)
    pack.write_bytes(data)
    with pytest.raises(Damaged, match="may still be in the store"):
        project.open().purge("secret")
    later = project.open()
    assert "holdfast/purge.json" in {problem.what for problem in later.verify().problems}
    project.write("more")
    assert later.save("nobody is kept from saving").complete
    assert isinstance(later.purge_error, Damaged)


@pytest.fixture
def begun(project, ws: Workspace) -> str:
    """A purge of `first` that was killed when its journal was written; the commit that the checkpoint had before."""
    project.write("first", SECRET)
    project.write("second", b"another secret, as long\n")
    before = ws.save("one").commit
    for number in range(1, 60):
        disk = KillingDisk(at=number, when="after")
        assert die_in_child(disk, lambda: project.open().purge("first"))
        if (project.store / "holdfast" / "purge.json").exists():
            return before
    raise AssertionError("no journal was written")


def test_an_interrupted_purge_is_named_until_a_writer_ends_it(project, begun: str, everything) -> None:
    [problem] = project.open().verify().problems
    assert problem.what == "holdfast/purge.json"
    assert "first" in problem.detail
    project.write("more")
    (project.root / "first").unlink()
    ws = project.open()
    ws.save("two")
    assert ws.purge_error is None
    assert ws.verify().ok
    assert SECRET not in everything()


def test_purge_remembers_an_unfinished_earlier_one(project, begun: str, git: Git, everything) -> None:
    git(f"--git-dir={project.store}", "update-ref", "refs/heads/kept", begun)
    project.write("more")
    ws = project.open()
    ws.save("two")
    assert isinstance(ws.purge_error, Conflict)
    with pytest.raises(Conflict, match="refs/heads/kept"):
        ws.purge("second")
    git(f"--git-dir={project.store}", "update-ref", "-d", "refs/heads/kept")
    (project.root / "first").unlink()
    done = ws.purge("second")
    assert done.plan.paths == ["first", "second"]
    assert SECRET not in everything()
    assert b"another secret" not in everything()
    assert ws.verify().ok


class CutAtTheFirstRef(ForgetfulDisk):
    """The power goes just before the first checkpoint has its new commit."""

    def _pass(self, call: DiskCall, act: Callable[[], int | None], half: Callable[[], None] | None) -> int | None:
        if call.name == "rename" and "to tags/" in call.about:
            self.is_off = True
        return super()._pass(call, act, half)


def test_journal_is_written_before_the_first_rewrite(project, history: Workspace) -> None:
    """Some checkpoints may be rewritten on the medium by then, and others not."""
    disk = CutAtTheFirstRef(project.store)
    with durable.use_disk(disk), pytest.raises(PowerLoss):
        history.purge(".env")
    disk.lose_power()
    begun = read_begun((project.store / "holdfast" / "purge.json").read_bytes())
    assert begun is not None and begun.paths == [".env"] and begun.objects


class WithoutNewRefs(CountingDisk):
    """No checkpoint can be given another commit."""

    def _pass(self, call: DiskCall, act: Callable[[], int | None], half: Callable[[], None] | None) -> int | None:
        if call.name == "rename" and "to tags/" in call.about:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return act()


def test_interrupted_purge_does_not_claim_nothing_changed(project, history: Workspace, everything) -> None:
    with durable.use_disk(WithoutNewRefs()), pytest.raises(Unavailable, match="the purge is not finished") as caught:
        history.purge(".env")
    assert "nothing was" not in str(caught.value)
    (project.root / ".env").unlink()
    project.open().save("the next to write")
    assert SECRET not in everything()


class WithoutAJournal(CountingDisk):
    """The journal of a purge cannot be written."""

    def _pass(self, call: DiskCall, act: Callable[[], int | None], half: Callable[[], None] | None) -> int | None:
        if call.name == "create" and "purge.json" in call.about:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return act()


def test_stuck_purge_does_not_block_writers(project, begun: str, everything) -> None:
    project.write("more")
    (project.root / "first").unlink()
    ws = project.open()
    with durable.use_disk(WithoutAJournal()):
        saved = ws.save("two")
    assert isinstance(ws.purge_error, Unavailable) and "cannot be continued" in ws.purge_error.message
    assert ws.get("latest").id == saved.id
    project.open().save("three", allow_empty=True)
    assert SECRET not in everything()


def test_purge_remembers_lines_of_an_unfinished_earlier_one(project, ws: Workspace, git: Git, everything) -> None:
    project.write("first", b"a first line of it\nand another one of it\n")
    project.write("second", SECRET)
    before = ws.save("one", state={"log": "it said: and another one of it. Then it went on"}).commit
    disk = CutAtTheFirstRef(project.store)
    with durable.use_disk(disk), pytest.raises(PowerLoss):
        ws.purge("first", lines=True)
    disk.lose_power()
    for path in ("first", "second"):
        (project.root / path).unlink()
    git(f"--git-dir={project.store}", "update-ref", "refs/heads/kept", before)
    ws = project.open()
    ws.save("two")
    assert isinstance(ws.purge_error, Conflict)
    git(f"--git-dir={project.store}", "update-ref", "-d", "refs/heads/kept")
    ws.purge("second")
    assert b"another one of it" not in everything()


def test_unreadable_purge_journal_does_not_block_writers(project, begun: str, everything) -> None:
    journal = project.store / "holdfast" / "purge.json"
    journal.write_bytes(b"{")
    project.write("more")
    ws = project.open()
    ws.save("two")
    assert isinstance(ws.purge_error, Damaged)
    assert [problem.what for problem in ws.verify().problems] == ["holdfast/purge.json"]
    ws.purge("first")
    assert not journal.exists()
    assert SECRET not in everything()


def test_what_a_deleted_checkpoint_had_at_the_path_goes_too(project, ws: Workspace, everything) -> None:
    project.write("secret", b"an older secret\n")
    first = ws.save("one")
    project.write("secret", SECRET)
    ws.save("two")
    ws.delete(first.id)
    assert b"an older secret" in everything()
    ws.purge("secret")
    assert b"an older secret" not in everything()


def test_key_is_cut_out_of_states_and_records_only(project, ws: Workspace, everything) -> None:
    key = "sk-0123456789abcdef"
    project.write("settings", f"# how to reach it\nAPI_KEY={key}\nREGION=north\n".encode())
    ws.save(f"use {key} now", state={"talk": [{"args": f'{{"key": "{key}"}}'}]}, metadata={"tried": [key]})
    done = ws.purge("settings")
    checkpoint = ws.get("latest")
    assert checkpoint.message == f"use {CUT_OUT} now"
    assert checkpoint.metadata == {"tried": [CUT_OUT]}
    assert checkpoint.state == {"talk": [{"args": f'{{"key": "{CUT_OUT}"}}'}]}
    assert done.plan.states == {checkpoint.id: ["talk", "(message)", "(metadata)"]}
    assert checkpoint.purged == ("settings", "(state) talk", "(message)", "(metadata)")
    assert key.encode() not in everything()
    raw = b"".join(path.read_bytes() for path in project.store.rglob("*") if path.is_file())
    assert key.encode() not in raw
    assert ws.verify().ok


def test_repeated_line_is_reported_and_cut_on_request(project, ws: Workspace) -> None:
    line = "the passphrase is correct horse battery"
    project.write("notes", f"hello\n{line}\n".encode())
    checkpoint = ws.save("one", state={"talk": f"> {line}!"}, session=line)
    plan = ws.purge("notes", dry_run=True)
    assert (plan.states, plan.partly) == ({}, {checkpoint.id: ["talk", "(session)"]})
    done = ws.purge("notes", lines=True)
    assert done.plan.partly == {checkpoint.id: ["(session)"]}
    assert ws.get("latest").state == {"talk": f"> {CUT_OUT}!"}


def test_many_words_are_found_as_few_are(project, ws: Workspace) -> None:
    words = [f"key{number:04d}-{'x' * 8}" for number in range(300)]
    project.write("keys", "\n".join(words).encode())
    ws.save("one", state={"talk": ["nothing", words[217], {"deep": f"and {words[3]}."}]})
    ws.purge("keys")
    assert ws.get("latest").state == {"talk": ["nothing", CUT_OUT, {"deep": f"and {CUT_OUT}."}]}


def test_long_lived_process_saves_soundly_after_a_purge(project, history: Workspace) -> None:
    other = project.open()
    project.write("b", b"more\n")
    history.save("four")
    other.purge(".env")
    project.write("c", b"more\n")
    history.save("five")
    assert history.verify().ok
    (project.root / ".env").unlink()
    history.restore("latest")
    assert (project.root / ".env").read_bytes() == SECRET


@pytest.mark.parametrize(
    "wrong",
    [
        {"paths": "src"},  # a text is no list of its letters
        {"paths": -1},
        {"secrets": [["00", float("inf"), 1]]},
        {"objects": float("nan")},
    ],
)
def test_a_purge_journal_with_a_wrong_value_is_not_followed(wrong: dict[str, Any]) -> None:
    stored: dict[str, Any] = {"paths": ["src"], "objects": [], "secrets": []}
    assert read_begun(json.dumps(stored).encode()) is not None
    assert read_begun(json.dumps(stored | wrong).encode()) is None


def test_a_purge_journal_that_is_nested_too_deeply_is_not_followed() -> None:
    assert read_begun(b"[" * 100_000) is None
