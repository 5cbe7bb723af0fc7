"""A damaged copy in the store, while the workspace still has the good one: saving and restoring mend it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.shadowgit import ObjectKind, ObjectStore, object_id
from waiting import settle

Git = Callable[..., bytes]


def flip_a_bit(store: ObjectStore, oid: bytes) -> None:
    """Damage the content of an object, in every pack that has it."""
    for pack in store.packs():
        offset = pack.find(oid)
        if offset is not None:
            with pack.path.open("r+b") as file:
                at = pack.header(offset).start + 20
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 1]))


def is_whole(store: ObjectStore, oid: bytes) -> bool:
    """Whether an object can be read from the store as it is on the disk now."""
    return ObjectStore(store.git_dir).has_sound(oid)


class TestASavedFile:
    GOOD = random.Random(5).randbytes(5000)

    def test_restore_does_not_rely_on_a_damaged_copy(self, project: Any, ws: Workspace) -> None:
        project.write("file", b"another")
        target = ws.save("another")
        project.write("file", self.GOOD)
        settle(project.root)
        ws.save("one")  # from now on the content of the file is known without reading it
        flip_a_bit(ws._repository.objects, object_id(ObjectKind.BLOB, self.GOOD))
        again = project.open()
        assert again.restore(target.id).ok
        assert again.undo().ok
        assert (project.root / "file").read_bytes() == self.GOOD

    @pytest.fixture
    def damaged(self, project: Any, ws: Workspace) -> str:
        """A checkpoint whose only file is damaged in the store."""
        project.write("file", self.GOOD)
        saved = ws.save("one")
        flip_a_bit(ws._repository.objects, object_id(ObjectKind.BLOB, self.GOOD))
        return saved.id

    @pytest.mark.parametrize("how", ["asked to read all", "without its memory"])
    def test_saving_the_same_content_repairs_a_checkpoint(self, project: Any, damaged: str, how: str) -> None:
        ws = project.open()
        assert not ws.verify().ok
        if how == "without its memory":
            (project.store / "holdfast" / "scan.cache").unlink()
        again = ws.save("again", rehash=how == "asked to read all")
        assert again.complete
        project.write("file", b"overwritten")
        assert project.open().restore(again.id).ok
        assert (project.root / "file").read_bytes() == self.GOOD
        assert project.open().restore(damaged).ok

    def test_saving_what_is_sound_again_writes_nothing(self, project: Any, ws: Workspace) -> None:
        project.write("file", self.GOOD)
        saved = ws.save("one")
        before = sorted(path.name for path in (project.store / "objects" / "pack").iterdir())
        assert ws.save("again", rehash=True).id == saved.id
        assert sorted(path.name for path in (project.store / "objects" / "pack").iterdir()) == before


class TestDeltas:
    """Only git makes them, in a store that somebody collected."""

    @pytest.fixture
    def texts(self) -> list[bytes]:
        """Versions of a text, of which git stores all but one as what differs."""
        lines = [b"%x" % random.Random(number).getrandbits(400) for number in range(400)]
        found = []
        for version in range(3):
            lines[100 * version] = b"changed"
            found.append(b"\n".join(lines))
        return found

    @pytest.fixture
    def collected(self, project: Any, ws: Workspace, git: Git, texts: list[bytes]) -> Workspace:
        for text in texts:
            project.write("file", text)
            ws.save()
        git("--git-dir", ws.store, "gc", "--quiet", "--prune=now")
        return project.open()

    @staticmethod
    def delta_and_base(store: ObjectStore, texts: list[bytes]) -> tuple[bytes, bytes]:
        """The text of a delta, and the name of the whole object at the end of its chain."""
        names = {object_id(ObjectKind.BLOB, text): text for text in texts}
        pack = next(pack for pack in store.packs() if pack.find(next(iter(names))) is not None)
        is_delta = {oid: pack.is_delta(pack.header(pack.find(oid) or 0)) for oid in names}
        base = next(oid for oid in names if not is_delta[oid])
        return next(text for oid, text in names.items() if is_delta[oid]), base

    def test_one_whose_base_is_damaged_is_not_sound(self, collected: Workspace, texts: list[bytes]) -> None:
        store = collected._repository.objects
        text, base = self.delta_and_base(store, texts)
        flip_a_bit(store, base)
        assert not is_whole(store, base)
        assert not is_whole(store, object_id(ObjectKind.BLOB, text))

    def test_one_that_is_damaged_itself_is_not_sound_and_its_base_is(
        self, collected: Workspace, texts: list[bytes]
    ) -> None:
        store = collected._repository.objects
        text, base = self.delta_and_base(store, texts)
        flip_a_bit(store, object_id(ObjectKind.BLOB, text))
        assert is_whole(store, base)
        assert not is_whole(store, object_id(ObjectKind.BLOB, text))

    def test_delta_on_a_damaged_base_is_stored_whole(
        self, project: Any, collected: Workspace, texts: list[bytes]
    ) -> None:
        store = collected._repository.objects
        text, base = self.delta_and_base(store, texts)
        flip_a_bit(store, base)
        project.write("file", text)
        project.write("other", b"so that there is something new to save")
        saved = project.open().save("safe", rehash=True)
        project.write("file", b"overwritten")
        assert project.open().restore(saved.id, ["file"]).ok
        assert (project.root / "file").read_bytes() == text

    def test_a_restore_does_not_destroy_the_only_good_copy_of_one(
        self, project: Any, collected: Workspace, texts: list[bytes]
    ) -> None:
        """What is replaced is held by the safety checkpoint as it was (P1)."""
        project.write("file", b"something else")
        target = collected.save("target")
        text, base = self.delta_and_base(collected._repository.objects, texts)
        project.write("file", text)
        flip_a_bit(collected._repository.objects, base)
        again = project.open()
        assert again.restore(target.id).ok
        assert again.undo().ok
        assert (project.root / "file").read_bytes() == text
