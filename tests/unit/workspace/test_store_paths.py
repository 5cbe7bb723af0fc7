"""Where a workspace may be, and that it has one store however it is reached."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from holdfast import NotFound, Refused, Workspace
from holdfast.workspace.store_paths import check_owner, real_workspace, store_folder, stores_root, write_owner


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "project").mkdir(parents=True)
    return Path(os.path.realpath(tmp_path / "home"))


class TestRefusedPlaces:
    @pytest.mark.parametrize(
        "path", ["/", "/etc", "/usr", "/tmp", "/var", "/home", "/proc", "/proc/self", "/dev", "/dev/shm", "/sys"]
    )
    def test_a_place_of_the_system_is_refused(self, home: Path, path: str) -> None:
        if not os.path.isdir(path):
            pytest.skip(f"there is no {path} here")
        with pytest.raises(Refused) as caught:
            real_workspace(path, home=home, allow_home=False)
        assert caught.value.hint

    def test_a_project_below_the_folder_that_is_in_memory_is_taken(self, home: Path) -> None:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            assert real_workspace(folder, home=home, allow_home=False) == Path(folder)

    @pytest.mark.parametrize("path", ["/bin", "/sbin", "/lib", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib"])
    def test_system_folder_is_refused_also_through_a_link(self, home: Path, path: str) -> None:
        if not os.path.isdir(path):
            pytest.skip(f"there is no {path} here")
        with pytest.raises(Refused):
            real_workspace(path, home=home, allow_home=False)

    @pytest.mark.parametrize("spelling", ["{}", "{}/", "{}/.", "{}/project/..", "/proc/self/root{}"])
    def test_home_is_refused_however_it_is_spelled(self, home: Path, spelling: str) -> None:
        with pytest.raises(Refused, match="home folder"):
            real_workspace(spelling.format(home), home=home, allow_home=False)

    def test_home_is_refused_through_a_link(self, tmp_path: Path, home: Path) -> None:
        (tmp_path / "link").symlink_to(home)
        with pytest.raises(Refused, match="home folder"):
            real_workspace(tmp_path / "link", home=home, allow_home=False)

    def test_home_is_refused_where_home_itself_is_a_link(self, tmp_path: Path, home: Path) -> None:
        (tmp_path / "link").symlink_to(home)
        with pytest.raises(Refused, match="home folder"):
            real_workspace(home, home=tmp_path / "link", allow_home=False)

    def test_parent_of_home_is_refused_even_if_home_is_allowed(self, tmp_path: Path, home: Path) -> None:
        for allow_home in (True, False):
            with pytest.raises(Refused):
                real_workspace(tmp_path, home=home, allow_home=allow_home)

    @pytest.mark.parametrize("name", ["Documents", "Desktop", "Downloads", ".config", ".ssh", ".local"])
    def test_the_large_rooms_of_a_home_are_refused(self, home: Path, name: str) -> None:
        (home / name).mkdir()
        with pytest.raises(Refused, match="personal"):
            real_workspace(home / name, home=home, allow_home=False)

    def test_a_large_room_that_is_a_link_to_another_disk_is_refused(self, tmp_path: Path, home: Path) -> None:
        (tmp_path / "disk").mkdir()
        (home / "Documents").symlink_to(tmp_path / "disk")
        with pytest.raises(Refused):
            real_workspace(home / "Documents", home=home, allow_home=False)

    def test_home_is_taken_when_it_is_meant(self, home: Path) -> None:
        assert real_workspace(home, home=home, allow_home=True) == home

    def test_a_project_in_a_home_is_taken(self, home: Path) -> None:
        (home / "Documents" / "project").mkdir(parents=True)
        for path in (home / "project", home / "Documents" / "project"):
            assert real_workspace(path, home=home, allow_home=False) == path

    def test_what_is_not_there_or_is_no_folder_is_not_found(self, home: Path) -> None:
        (home / "file").touch()
        with pytest.raises(NotFound, match="does not exist"):
            real_workspace(home / "nowhere", home=home, allow_home=False)
        with pytest.raises(NotFound, match="is not a folder"):
            real_workspace(home / "file", home=home, allow_home=False)

    @pytest.mark.parametrize("is_named", [False, True])
    def test_of_a_folder_that_is_gone_it_is_told_how_it_comes_back(self, tmp_path: Path, is_named: bool) -> None:
        project, environ = tmp_path / "a project", {"HOLDFAST_STORE_ROOT": str(tmp_path / "stores")}
        project.mkdir()
        (project / "file").write_bytes(b"kept")
        options: dict[str, Any] = {"home": tmp_path / "home", "environ": environ}
        if is_named:
            options["store"] = tmp_path / "store"
        saved = Workspace(project, **options).save()
        shutil.rmtree(project)
        with pytest.raises(NotFound, match="does not exist") as caught:
            Workspace(project, **options)
        assert f"Open '{project}' with missing_ok=True" in caught.value.hint
        gone = Workspace(project, missing_ok=True, **options)
        assert gone.list() == [saved] and not project.exists()
        with pytest.raises(NotFound):
            gone.restore("a9")
        plan = gone.preview(saved.id)
        assert "file" in plan.written and not project.exists()
        assert gone.restore(saved.id, plan=plan).ok
        assert (project / "file").read_bytes() == b"kept"
        with pytest.raises(NotFound) as caught:
            Workspace(tmp_path / "never was", **options)
        assert caught.value.hint == "Choose an existing project folder."


class TestOneStore:
    @pytest.fixture
    def environ(self, tmp_path: Path) -> dict[str, str]:
        return {"XDG_STATE_HOME": str(tmp_path / "state")}

    @pytest.fixture
    def elsewhere(self, home: Path) -> Iterator[None]:
        with chdir(home):
            yield

    @pytest.mark.usefixtures("elsewhere")
    def test_all_spellings_of_a_path_lead_to_one_store(
        self, tmp_path: Path, home: Path, environ: dict[str, str]
    ) -> None:
        (tmp_path / "link").symlink_to(home / "project")
        (tmp_path / "home-link").symlink_to(home)
        ways: list[Any] = [
            home / "project",
            f"{home}/project/",
            f"{home}//project/./",
            "project",
            "./project/../project",
            tmp_path / "link",
            f"{tmp_path}/link/",
            tmp_path / "home-link" / "project",
        ]
        opened = [Workspace(way, home=home, environ=environ) for way in ways]
        assert {ws.path for ws in opened} == {home / "project"}
        assert len({ws.store for ws in opened}) == 1
        saved = opened[0].save("here")
        assert all(ws.get("latest").id == saved.id for ws in opened)

    def test_folders_of_one_name_have_stores_of_their_own(self, home: Path, environ: dict[str, str]) -> None:
        for folder in ("a", "b"):
            (home / folder / "project").mkdir(parents=True)
        stores = {store_folder(home / folder / "project", store=None, environ=environ) for folder in ("a", "b")}
        assert len(stores) == 2
        assert all(store.name.startswith("project-") for store in stores)

    @pytest.mark.parametrize("name", ["a b", "caf\xe9", "...", "x" * 200, "\udcff", "-rf", "a\nb"])
    def test_store_name_is_plain_for_any_workspace_name(
        self, tmp_path: Path, environ: dict[str, str], name: str
    ) -> None:
        label = store_folder(tmp_path / name, store=None, environ=environ).name
        assert label.isascii()
        assert label == label.strip("-.")
        assert len(label) < 80

    def test_the_root_of_all_stores_can_be_chosen(self, tmp_path: Path, environ: dict[str, str]) -> None:
        chosen = environ | {"HOLDFAST_STORE_ROOT": str(tmp_path / "chosen")}
        assert store_folder(tmp_path / "project", store=None, environ=chosen).parent == tmp_path / "chosen"
        default = store_folder(tmp_path / "project", store=None, environ=environ)
        assert default.is_relative_to(tmp_path / "state" / "holdfast")


class TestStoreInside:
    def test_a_store_in_the_workspace_is_refused(self, tmp_path: Path) -> None:
        for store in (tmp_path, tmp_path / "inner", tmp_path / "a" / ".." / "b"):
            with pytest.raises(Refused, match="inside one another"):
                store_folder(tmp_path, store=store, environ={})

    def test_a_workspace_in_the_store_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="inside one another"):
            store_folder(tmp_path / "store" / "project", store=tmp_path / "store", environ={})

    def test_a_store_that_is_in_the_workspace_by_a_link_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "project" / "inner").mkdir(parents=True)
        (tmp_path / "link").symlink_to(tmp_path / "project" / "inner")
        with pytest.raises(Refused, match="inside one another"):
            store_folder(tmp_path / "project", store=tmp_path / "link" / "store", environ={})

    def test_default_store_inside_the_workspace_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(Refused) as caught:
            store_folder(tmp_path, store=None, environ={"XDG_STATE_HOME": str(tmp_path / "state")})
        assert "HOLDFAST_STORE_ROOT" in caught.value.hint

    def test_a_neighbour_whose_name_begins_alike_is_not_inside(self, tmp_path: Path) -> None:
        assert store_folder(tmp_path / "a", store=tmp_path / "ab", environ={}) == tmp_path / "ab"

    def test_an_empty_folder_that_others_can_enter_is_closed_to_them(self, tmp_path: Path) -> None:
        for name in ("project", "home", "store"):
            (tmp_path / name).mkdir()
        (tmp_path / "store").chmod(0o755)
        Workspace(tmp_path / "project", store=tmp_path / "store", home=tmp_path / "home", environ={})
        assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700


class TestOwner:
    @pytest.fixture
    def folders(self, tmp_path: Path) -> tuple[Path, Path]:
        """A store and the workspace that it is of."""
        store, workspace = tmp_path / "store", tmp_path / "project"
        (store / "holdfast").mkdir(parents=True)
        workspace.mkdir()
        write_owner(store, workspace, {})
        return store, workspace

    def test_it_is_said_whose_store_it_is(self, folders: tuple[Path, Path]) -> None:
        store, workspace = folders
        said = json.loads((store / "holdfast" / "store.json").read_bytes())
        assert said == {"this": "a Holdfast store of format 1", "format": 1, "workspace": str(workspace)}
        check_owner(store, workspace)

    def test_a_store_of_another_workspace_is_refused(self, folders: tuple[Path, Path], tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        with pytest.raises(Refused, match="other"):
            check_owner(folders[0], tmp_path / "other")

    def test_a_workspace_that_was_moved_takes_its_store_along(self, folders: tuple[Path, Path], tmp_path: Path) -> None:
        store, workspace = folders
        workspace.rename(tmp_path / "moved")
        check_owner(store, tmp_path / "moved")
        write_owner(store, tmp_path / "moved", {})
        workspace.mkdir()
        with pytest.raises(Refused):
            check_owner(store, workspace)

    def test_a_moved_workspace_is_restored_where_it_is(self, tmp_path: Path) -> None:
        for name in ("project", "home"):
            (tmp_path / name).mkdir()
        (tmp_path / "project" / "file").write_bytes(b"old")
        options: dict[str, Any] = {"store": tmp_path / "store", "home": tmp_path / "home", "environ": {}}
        saved = Workspace(tmp_path / "project", **options).save()
        (tmp_path / "project").rename(tmp_path / "moved")
        (tmp_path / "moved" / "file").write_bytes(b"new")
        moved = Workspace(tmp_path / "moved", **options)
        assert moved.restore(saved.id).ok
        assert (tmp_path / "moved" / "file").read_bytes() == b"old"

    def test_a_store_of_a_newer_format_is_refused_and_not_touched(self, folders: tuple[Path, Path]) -> None:
        store, workspace = folders
        path = store / "holdfast" / "store.json"
        path.write_text(json.dumps({"format": 2, "workspace": str(workspace), "more": True}))
        before = path.read_bytes()
        with pytest.raises(Refused, match="newer"):
            check_owner(store, workspace)
        with pytest.raises(Refused, match="newer"):
            Workspace(workspace, store=store, home=workspace.parent / "home", environ={})
        assert path.read_bytes() == before
        assert not (store / "HEAD").exists()

    @pytest.mark.parametrize(
        "garbage", [b"", b"garbage", b"[]", b"{}", b'{"format": "x", "workspace": 1}', b"\xff\xfe", b"null"]
    )
    def test_damaged_owner_file_does_not_block_the_checkpoints(
        self, project: Any, ws: Workspace, garbage: bytes
    ) -> None:
        project.write("file")
        saved = ws.save()
        (project.store / "holdfast" / "store.json").write_bytes(garbage)
        assert project.open().get("latest").id == saved.id

    def test_a_name_that_is_no_text_is_written_down_and_recognised(self, tmp_path: Path) -> None:
        workspace = tmp_path / "\udcff"
        workspace.mkdir()
        (tmp_path / "store" / "holdfast").mkdir(parents=True)
        write_owner(tmp_path / "store", workspace, {})
        check_owner(tmp_path / "store", workspace)
        before = (tmp_path / "store" / "holdfast" / "store.json").stat()
        write_owner(tmp_path / "store", workspace, {})
        assert (tmp_path / "store" / "holdfast" / "store.json").stat().st_ino == before.st_ino


@pytest.mark.parametrize("missing", [(), ("_sha2", "_sha256")])
def test_the_store_of_a_folder_has_the_name_that_it_always_had(
    missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)
    found = store_folder(Path("/nowhere/My project"), store=None, environ={"HOLDFAST_STORE_ROOT": "/nowhere/stores"})
    digest = hashlib.sha256(b"/nowhere/My project").hexdigest()
    assert found == Path(f"/nowhere/stores/My-project-{digest[:24]}")


@pytest.mark.parametrize("home", ["/home/someone", "/home/someone/", "/", "relative", "", None])
@pytest.mark.parametrize("state", [None, "", "relative", "/state"])
def test_default_place_is_that_of_platformdirs(
    monkeypatch: pytest.MonkeyPatch, home: str | None, state: str | None
) -> None:
    from platformdirs import user_state_path

    for name, value in (("HOME", home), ("XDG_STATE_HOME", state)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    assert stores_root({}) == user_state_path("holdfast") / "workspaces"
