"""What the library answers to what makes no sense: one table of references, one of values, one of stores.

Each gets an error of the tree, one sentence and a hint, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Workspace
from holdfast.durable import use_disk
from holdfast.errors import Conflict, HoldfastError, NotFound, Refused, Unavailable
from holdfast.project import SyncCheckpointManager
from holdfast.retention import Policy
from holdfast.testing.faulty_disks import CountingDisk, FailingDisk
from holdfast.workspace import CheckpointConfig, CheckpointService
from unprivileged import unprivileged
from waiting import wait_for

if TYPE_CHECKING:
    from .conftest import Project

HALF = "\ud800"  # half of a character: no file, and no SQLite, can have it

# what is asked for         the error, and what it says
REFERENCES: dict[Any, tuple[type[HoldfastError], str]] = {
    "nonsense": (NotFound, "there is no checkpoint 'nonsense'. list() shows the checkpoints."),
    "takn": (NotFound, "there is no checkpoint 'takn'. Did you mean taken?"),
    "latets": (NotFound, "there is no checkpoint 'latets'. Did you mean latest?"),
    "": (NotFound, "there is no checkpoint ''"),
    "a": (Conflict, "'a' is ambiguous: a1-"),
    "a2": (NotFound, "there is no checkpoint 'a2' any more. It was deleted or pruned"),
    "a1-zzzzzzzz": (NotFound, "there is no checkpoint 'a1-zzzzzzzz'. That number belongs to a1-"),
    "a9": (NotFound, "there is no checkpoint 'a9'. list()"),
    "b9": (NotFound, "there is no checkpoint 'b9'. list()"),
    "latest~2": (NotFound, "there is no checkpoint 'latest~2'. The oldest save is latest~1."),
    f"latest~{10**40}": (NotFound, "there is no checkpoint 'latest~1000"),
    f"latest~{'9' * 5000}": (NotFound, "there is no checkpoint 'latest~9999"),
    "latest~-1": (NotFound, "there is no checkpoint 'latest~-1'"),
    "x" * 1_000_000: (NotFound, "there is no checkpoint 'xxx"),
    "a\x1b[2J\n": (NotFound, r"there is no checkpoint 'a\x1b[2J\n'"),
    "a\0b": (NotFound, r"there is no checkpoint 'a\x00b'"),
    HALF: (NotFound, r"there is no checkpoint '\ud800'"),
    None: (Refused, "a checkpoint reference is text or a checkpoint, not NoneType"),
    b"a1": (Refused, "a checkpoint reference is text or a checkpoint, not bytes"),
    1: (Refused, "a checkpoint reference is text or a checkpoint, not int"),
}


@pytest.fixture
def some(project: Project) -> Workspace:
    """A workspace with two checkpoints, one of which has a name; the one between them was deleted."""
    ws = project.open()
    for name in ("taken", None, None):
        project.write("a", os.urandom(8))
        ws.save("message", name=name)
    ws.delete("a2")
    return ws


def uses_of_a_reference(ws: Workspace, ref: Any, area: Path) -> dict[str, Callable[[], object]]:
    return {
        "get": lambda: ws.get(ref),
        "diff": lambda: ws.diff(ref),
        "diff to": lambda: ws.diff("latest", ref or "") if ref is not None else ws.get(ref),
        "preview": lambda: ws.preview(ref),
        "restore": lambda: ws.restore(ref),
        "delete": lambda: ws.delete(ref),
        "pin": lambda: ws.pin(ref),
        "export": lambda: ws.export(ref, area / "out"),
        "bisect from": lambda: ws.bisect(ref, "latest", lambda *_: True),
        "bisect to": lambda: ws.bisect("taken", ref, lambda *_: True),
        "list before": lambda: ws.list(before=ref) if ref is not None else ws.get(ref),
    }


def test_a_checkpoint_stands_for_its_id_everywhere(project: Project, some: Workspace) -> None:
    first, last = some.get("a1"), some.get("latest")
    assert some.get(first) == first
    assert some.diff(first, last).modified_files == ["a"] and not some.diff(last)
    assert some.list(before=last) == [first]
    assert some.pin(first).pinned and not some.pin(first, pinned=False).pinned
    assert some.preview(first).replaced == ["a"]
    assert some.export(first, project.area / "out").checkpoint == first.id
    assert some.bisect(first, last, lambda _, each: each.id == first.id).first_bad == last
    with some.hold(first) as held:
        assert held == first
    assert some.restore(first).checkpoint == first.id
    assert some.blame("a", first).path == "a"
    assert some.delete(last).id == last.id


@pytest.mark.parametrize("ref", REFERENCES, ids=lambda ref: repr(ref)[:20])
def test_unknown_reference_is_an_error_everywhere(project: Project, some: Workspace, ref: Any) -> None:
    kind, says = REFERENCES[ref]
    before = [each.id for each in some.list(safety=True)]
    for use, call in uses_of_a_reference(some, ref, project.area).items():
        if use == "list before" and ref in ("a1-zzzzzzzz", "a2", "a9"):
            continue  # an id is a place in the list also when it is gone
        with pytest.raises(kind) as caught:
            call()
        assert str(caught.value).startswith(says), use
        assert caught.value.hint and len(str(caught.value)) < 300
    assert [each.id for each in some.list(safety=True)] == before
    assert not (project.area / "out").exists()


def test_where_nothing_is_saved_that_is_said(ws: Workspace) -> None:
    with pytest.raises(NotFound, match="Nothing is saved yet"):
        ws.get("latest")


VALUES: dict[str, tuple[Callable[[Workspace], object], str]] = {
    "a path of half a character": (lambda ws: ws.restore("latest", [HALF]), r"a path '\ud800' cannot be a path"),
    "a path with NUL": (lambda ws: ws.diff("latest", None, ["a\0"]), r"a path 'a\x00' cannot be a path"),
    "a path that is a number": (lambda ws: ws.preview("latest", [5]), "a path is of type int"),  # type: ignore[list-item]
    "paths that are one": (lambda ws: ws.restore("latest", "a"), "paths is a single path, not a list"),
    "paths that are one Path": (lambda ws: ws.restore("latest", Path("a")), "paths is a single path, not a list"),  # type: ignore[arg-type]
    "an empty path": (lambda ws: ws.restore("latest", [""]), "a path is empty"),
    "why of NUL": (lambda ws: ws.why("\0"), r"the path '\x00' cannot be a path"),
    "why of nothing": (lambda ws: ws.why(""), "the path is empty"),
    "purge of half a character": (lambda ws: ws.purge(HALF), r"a path '\ud800' cannot be a path"),
    "export to nowhere": (lambda ws: ws.export("latest", ""), "the folder to write to is empty"),
    "export to NUL": (lambda ws: ws.export("latest", "\0"), "the folder to write to '\\x00' cannot be a path"),
    "search for nothing": (lambda ws: ws.search(""), "there is no text to search for"),
    "search for bytes": (lambda ws: ws.search(b"x"), "there is no text to search for"),  # type: ignore[arg-type]
    "search for half a character": (lambda ws: ws.search(HALF), r"'\ud800' contains a lone surrogate"),
    "search for no expression": (lambda ws: ws.search("(", regex=True), "'(' is not a valid regular expression"),
    "search for less than none": (lambda ws: ws.search("x", limit=-1), "limit is -1"),
    "a list of less than none": (lambda ws: ws.list(-1), "limit is -1"),
    "a list of words": (lambda ws: ws.list("5"), "limit is '5'"),  # type: ignore[arg-type]
    "a session that is no text": (lambda ws: ws.list(session=5), "session is not text"),  # type: ignore[arg-type]
    "usage of less than none": (lambda ws: ws.usage(paths=-1), "paths is -1"),
    "a message that is no text": (lambda ws: ws.save(5), "message is not text"),  # type: ignore[arg-type]
    "a name of two lines": (lambda ws: ws.save(name="a\nb"), r"'a\nb' cannot name a checkpoint"),
    "a name of half a character": (lambda ws: ws.save(name=HALF), r"'\ud800' cannot name a checkpoint"),
    "a name like an id": (lambda ws: ws.save(name="a1"), "'a1' cannot name a checkpoint"),
    "metadata that is no JSON": (lambda ws: ws.save(metadata={"k": {1, 2}}), "metadata['k'] (set)"),  # type: ignore[dict-item]
    "a state named by a path": (lambda ws: ws.save(state={"../x": 1}), "'../x' cannot name a state"),
    "a step that is a text": (lambda ws: ws.save(step="1"), "step is '1'"),  # type: ignore[arg-type]
    "a policy of less than none": (lambda ws: ws.prune(Policy(keep_last=-1)), "keep_last is -1"),
    "a policy of every nothing": (lambda ws: ws.prune(Policy(keep_every=0)), "keep_every is 0"),
}


@pytest.mark.parametrize("what", VALUES)
def test_invalid_value_is_refused_and_changes_nothing(some: Workspace, what: str) -> None:
    call, says = VALUES[what]
    before = [each.id for each in some.list(safety=True)]
    with pytest.raises(Refused) as caught:
        call(some)
    assert caught.value.message.startswith(says)
    assert caught.value.hint
    assert [each.id for each in some.list(safety=True)] == before


OPENINGS: dict[str, tuple[dict[str, Any], str]] = {
    "nowhere": ({"path": ""}, "the workspace is empty"),
    "NUL": ({"path": "a\0"}, r"the workspace 'a\x00' cannot be a path"),
    "half a character": ({"path": HALF}, r"the workspace '\ud800' cannot be a path"),
    "a number": ({"path": 5}, "the workspace is of type int"),
    "a store nowhere": ({"store": ""}, "the store is empty"),
    "patterns that are one": ({"exclude_patterns": "*.log"}, "exclude_patterns is a single str"),
    "a pattern of two lines": ({"exclude_patterns": ["a\nb"]}, r"exclude_patterns has 'a\nb', which is not a pattern"),
    "a pattern of half a character": ({"exclude_patterns": [HALF]}, r"exclude_patterns has '\ud800'"),
    "a pattern that is no text": ({"exclude_patterns": [5]}, "exclude_patterns has 5, which is not a pattern"),
    "less than no bytes": ({"ignored_file_max_bytes": -1}, "ignored_file_max_bytes is -1"),
    "bytes in words": ({"ignored_total_max_bytes": "1 MiB"}, "ignored_total_max_bytes is '1 MiB'"),
}


@pytest.mark.parametrize("what", OPENINGS)
def test_invalid_opening_is_refused_and_creates_no_store(project: Project, what: str) -> None:
    options, says = OPENINGS[what]
    options = {"path": project.root, "store": project.store, "home": project.home, "environ": {}} | options
    with pytest.raises(Refused) as caught:
        Workspace(**options)
    assert caught.value.message.startswith(says) and caught.value.hint
    assert not project.store.exists()


TEXTS = {
    "lines": "one\ntwo\r\n\n",
    "a bar": "a | b || c",
    "terminal codes": "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "NUL": "a\0b",
    "half a character": f"a{HALF}b",
    "bytes that are no text": "caf\udce9",
    "right to left": "abc\u202edef",
    "a megabyte": "x" * (1 << 20),
    "nothing": "",
}


@pytest.mark.parametrize("what", TEXTS)
def test_any_text_is_kept_as_message_session_actor_metadata(project: Project, what: str) -> None:
    text = TEXTS[what]
    ws = project.open()
    metadata = {"key": text, text or "empty": 1}
    saved = ws.save(text, session=text, actor=text, metadata=metadata, allow_empty=True)
    for found in (saved, project.open().get(saved.id), *project.open().list(session=text)):
        assert (found.message, found.session, found.actor, dict(found.metadata)) == (text, text, text, metadata)
    (project.store / "holdfast" / "catalog.db").unlink()
    assert project.open().get("latest").message == text


def test_numbers_beyond_all_bounds_mean_all_or_none(some: Workspace) -> None:
    assert len(some.list(10**30)) == 2
    assert some.search("a text that is nowhere", limit=10**30) == []
    assert len(some.usage(paths=10**30).paths) == 1
    assert some.prune(Policy(keep_last=10**30)).removed == []
    assert some.save(step=10**30, allow_empty=True).step == 10**30


def test_policy_that_would_delete_all_keeps_what_is_needed(project: Project, some: Workspace) -> None:
    project.write("a", b"again")
    some.save("pinned", pinned=True)
    project.write("a", b"and again")
    latest = some.save("latest")
    pruned = some.prune(Policy(keep_last=0, max_bytes=0), dry_run=False)
    assert {each.message for each in some.list()} == {"message", "pinned", "latest"}
    assert (len(pruned.removed), sorted(pruned.kept.values())) == (1, ["current", "named", "pinned"])
    assert some.restore(latest.id).ok


class TestAStore:
    """That is gone, full, cannot be written, is of a newer Holdfast, or of somebody else."""

    def test_store_that_vanishes_while_open_is_unavailable(self, project: Project, some: Workspace) -> None:
        shutil.rmtree(project.store)
        with pytest.raises(Unavailable, match=r"the store .* is gone"):
            some.save()
        for read in (lambda: some.get("latest"), some.list, some.verify, some.usage, lambda: some.diff("latest")):
            with pytest.raises(Unavailable, match=r"the store .* is gone"):
                read()
        assert not project.store.exists()

    def test_that_is_full_says_so_and_can_be_pruned_all_the_same(self, project: Project, some: Workspace) -> None:
        project.write("b", b"more")
        with use_disk(FailingDisk(at=1, error=errno.ENOSPC, once=False)):
            with pytest.raises(Unavailable, match=r"No space left on device\. Free some disk space; pruning"):
                some.save()
            assert [each.sequence for each in some.list()] == [3, 1]
            assert some.delete("taken").sequence == 1
        assert [each.sequence for each in some.list()] == [3]
        assert some.save().sequence == 4

    def test_that_cannot_be_written_is_read_all_the_same(self, project: Project, some: Workspace) -> None:
        catalog = project.store / "holdfast" / "catalog.db"
        settled(project)
        (catalog.parent / "catalog.db-journal").mkdir()  # as where nothing can be made: the catalog cannot be opened
        assert [each.sequence for each in project.open().list()] == [3, 1]
        assert project.open().get("taken").name == "taken"

    def test_of_a_newer_holdfast_is_refused(self, project: Project, some: Workspace) -> None:
        about = project.store / "holdfast" / "store.json"
        newer = {"format": 2, "this": "a Holdfast store of format 2"}
        about.write_text(json.dumps(json.loads(about.read_text()) | newer))
        with pytest.raises(Refused, match=r"was written by a newer Holdfast\. Upgrade"):
            project.open()

    def test_of_another_workspace_is_refused(self, project: Project, some: Workspace) -> None:
        other = project.area / "other"
        other.mkdir()
        with pytest.raises(Refused, match=r"contains the checkpoints of .*project, not of .*other"):
            Workspace(other, store=project.store, home=project.home, environ={})


def settled(project: Project) -> None:
    """Wait until refs and catalog are known to agree."""
    agreed = project.store / "holdfast" / "catalog.db-agreed"
    wait_for(lambda: project.open().list() and agreed.exists())


class TestTheService:
    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"workspace_dir": ""}, "workspace_dir is empty"),
            ({"workspace_dir": "a\0"}, "workspace_dir 'a"),
            ({"storage_dir": ""}, "storage_dir is empty"),
            ({"exclude_patterns": "*.log"}, "exclude_patterns is a single str"),
            ({"max_checkpoints": 0}, "max_checkpoints is 0"),
            ({"max_checkpoints": "many"}, "max_checkpoints is 'many'"),
            ({"auto_checkpoint": "yes"}, "auto_checkpoint is 'yes'"),
        ],
    )
    def test_refuses_what_makes_no_sense_when_it_is_made(
        self, project: Project, options: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(Refused) as caught:
            CheckpointService(**({"workspace_dir": project.root} | options))
        assert caught.value.message.startswith(says) and caught.value.hint

    def test_answers_as_the_workspace_does(self, project: Project) -> None:
        async def ask() -> list[str]:
            said = []
            service = CheckpointService(project.root, project.store, CheckpointConfig(), home=project.home, environ={})
            async with service:
                saved = await service.save("one", step=1)
                for call in (
                    service.get("nonsense"),
                    service.restore(step=7),
                    service.restore("a", step=1),
                    service.rewind(9),
                    service.rewind(-1),
                    service.delete(saved.id[:-1] + "_"),
                    service.save(5),  # type: ignore[arg-type]
                    service.save("", state={"../x": 1}),
                    service.list(-1),
                    service.list(before="nonsense"),
                ):
                    with pytest.raises(HoldfastError) as caught:
                        await call
                    assert caught.value.hint, caught.value
                    said.append(type(caught.value).__name__)
            return said

        missing, refused = "NotFound", "Refused"
        assert asyncio.run(ask()) == [missing, missing, refused, missing, refused, missing, *[refused] * 3, missing]


def test_a_save_that_cannot_be_named_costs_no_disk(project: Project, ws: Workspace) -> None:
    for number in range(2):
        project.write("file", b"%d" % number)
        with use_disk(counting := CountingDisk()):
            ws.save()
    packs = project.store / "objects" / "pack"
    before = sorted(os.listdir(packs))
    project.write("file", b"3")
    at = next(call.number for call in counting.calls if "new-ref" in call.about)
    with use_disk(disk := FailingDisk(at=at)), pytest.raises(Unavailable):
        ws.save()
    assert disk.failed is not None and "new-ref" in disk.failed.about
    assert sorted(os.listdir(packs)) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give a file away")
def test_who_ran_it_with_sudo_is_told_how_to_have_the_store_back(project: Project, ws: Workspace) -> None:
    project.write("file")
    ws.save()
    index = next((project.store / "objects" / "pack").glob("*.idx"))
    index.chmod(0o600)
    os.chown(index, 65534, -1)
    with pytest.raises(Unavailable) as caught:
        unprivileged(lambda: project.open().verify())
    assert f"Take it over: sudo chown -R 0 {project.store} Nothing was saved" in caught.value.hint


def test_a_umask_that_takes_everything_takes_no_checkpoint(project: Project) -> None:
    project.write("folder/file", b"one")

    def work() -> None:
        saved = project.open().save()
        shutil.rmtree(project.root / "folder")
        assert project.open().restore(saved.id).ok

    before = os.umask(0o777)
    try:
        unprivileged(work)
    finally:
        os.umask(before)
    assert (project.root / "folder" / "file").read_bytes() == b"one"
    assert [path for path in project.store.rglob("*") if path.lstat().st_mode & 0o600 != 0o600] == []
    assert unprivileged(lambda: project.open().verify()).ok


def test_who_has_no_home_is_told_so(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 54_321)  # no user that the system knows by name
    for make in (Workspace, SyncCheckpointManager):
        with pytest.raises(Unavailable, match="your home folder is unknown") as caught:
            make(project.root, store=project.store, environ={})
        assert "HOME" in caught.value.hint
    assert Workspace(project.root, store=project.store, home=project.home, environ={}).list() == []
