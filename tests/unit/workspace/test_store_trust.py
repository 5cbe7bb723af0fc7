"""A store that somebody else made, or may change or read, is refused before anything in it is read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Refused, Workspace
from holdfast.workspace.store_trust import check_private

SOMEBODY = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody")


@pytest.fixture
def saved(project: Any) -> Path:
    project.write("a")
    project.open().save("one")
    store: Path = project.store
    return store


@pytest.fixture
def above() -> Iterator[Path]:
    """A folder that everybody can enter, as those of pytest cannot be."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(os.path.realpath(folder))


class TestTheStore:
    @pytest.mark.parametrize("mode", [0o755, 0o750, 0o770, 0o707, 0o701])
    def test_one_that_is_open_to_others(self, project: Any, saved: Path, mode: int) -> None:
        saved.chmod(mode)
        with pytest.raises(Refused, match=rf"open to other users \(mode {mode:o}\).*chmod 700"):
            project.open()
        assert project.open(trust_store=True).list()[0].message == "one"
        saved.chmod(0o700)
        assert project.open().list()[0].message == "one"

    @needs_root
    def test_one_that_another_user_made(self, project: Any, saved: Path) -> None:
        for path in (saved, *saved.rglob("*")):
            os.chown(path, SOMEBODY, SOMEBODY)
        with pytest.raises(Refused, match=r"belongs to another user \(user 12345\)"):
            project.open()
        assert project.open(trust_store=True).list()[0].message == "one"

    @needs_root
    def test_nothing_of_it_is_read(self, project: Any, saved: Path) -> None:
        os.chown(saved, SOMEBODY, SOMEBODY)
        (saved / "HEAD").unlink()
        os.mkfifo(saved / "HEAD")  # opening it waits for ever
        shutil.rmtree(saved / "holdfast")
        os.mkfifo(saved / "holdfast")
        with pytest.raises(Refused, match="belongs to another user"):
            project.open()

    @needs_root
    def test_in_the_folder_of_stores_too(self, project: Any) -> None:
        environ = {"HOLDFAST_STORE_ROOT": os.fspath(project.area / "stores")}
        project.write("a")
        store = project.open(store=None, environ=environ).store
        os.chown(store, SOMEBODY, SOMEBODY)
        with pytest.raises(Refused, match="belongs to another user"):
            project.open(store=None, environ=environ)

    def test_an_empty_folder_is_closed_and_used(self, project: Any) -> None:
        project.store.mkdir(mode=0o755)
        project.open()
        assert project.store.stat().st_mode & 0o777 == 0o700

    @needs_root
    def test_an_empty_folder_of_another_user(self, project: Any) -> None:
        project.store.mkdir(mode=0o700)
        os.chown(project.store, SOMEBODY, SOMEBODY)
        with pytest.raises(Refused, match="belongs to another user"):
            project.open()


class TestSudo:
    @needs_root
    def test_root_is_given_the_store_of_who_called_sudo(self, project: Any, saved: Path) -> None:
        os.chown(saved, SOMEBODY, SOMEBODY)
        assert project.open(environ={"SUDO_UID": str(SOMEBODY)}).list()
        for other in ("", "1", "x", str(SOMEBODY + 1)):
            with pytest.raises(Refused):
                project.open(environ={"SUDO_UID": other})

    @needs_root
    def test_a_store_that_went_with_its_folder_is_not_taken(self, project: Any) -> None:
        environ = {"HOLDFAST_STORE_ROOT": os.fspath(project.area / "stores"), "SUDO_UID": str(SOMEBODY)}
        project.write("a")
        store = project.open(store=None, environ=environ).store
        project.open(store=None, environ=environ).save("one")
        moved = project.root.rename(project.area / "moved")
        Workspace(moved, store=store, home=project.home, environ=environ).save("two")
        project.write("new")
        for path in (store, *store.rglob("*")):
            os.chown(path, SOMEBODY, SOMEBODY)
        assert project.open(store=None, environ=environ).store != store
        assert Workspace(moved, home=project.home, environ=environ).store == store

    def test_nobody_but_root_heeds_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tmp_path.chmod(0o700)
        monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
        with pytest.raises(Refused, match="belongs to another user"):
            check_private(tmp_path, {"SUDO_UID": str(tmp_path.stat().st_uid)})


class TestFoldersAbove:
    @pytest.mark.parametrize("mode", [0o777, 0o757])
    def test_one_that_others_may_write_to(self, project: Any, above: Path, mode: int) -> None:
        above.chmod(mode)
        store = above / "store"
        with pytest.raises(Refused, match=rf"can write to {above}"):
            project.open(store=store)
        assert not store.exists()
        above.chmod(mode | 0o1000)
        project.open(store=store)

    @needs_root
    def test_one_that_a_group_may_write_to(self, project: Any, above: Path) -> None:
        os.chown(above, 0, SOMEBODY)
        above.chmod(0o775)
        with pytest.raises(Refused, match="can write to"):
            project.open(store=above / "deep" / "store")
        os.chown(above, 0, 0)
        project.open(store=above / "deep" / "store")

    @needs_root
    def test_one_of_another_user(self, project: Any, above: Path) -> None:
        os.chown(above, SOMEBODY, SOMEBODY)
        with pytest.raises(Refused, match=f"{above}, a folder above the store, belongs to user 12345"):
            Workspace(project.root, store=above / "store", home=project.home, environ={})
        project.open(store=above / "store", trust_store=True)

    def test_one_that_nobody_else_can_get_to(self, project: Any, above: Path) -> None:
        inner = above / "inner"
        inner.mkdir()
        inner.chmod(0o777)
        for mode in (0o755, 0o711, 0o710, 0o701):
            above.chmod(mode)
            with pytest.raises(Refused, match=f"can write to {inner}.*HOLDFAST_STORE_ROOT"):
                project.open(store=inner / "store")
        above.chmod(0o700)  # a home folder, and a umask of 002 in it
        project.open(store=inner / "store")
