"""Sources of every kind with one damaged file: one clear error or a report, and no damage done on either side."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
import pytest
import torch
from safetensors.torch import save_file

from holdfast.digest import digest
from holdfast.errors import Damaged, HoldfastError, NotFound, Refused, Unavailable
from unit.importers import graphs, test_claude_code, test_codeweaver, test_llmfy, test_skill
from unit.importers.scenes import bytes_and_times, praisonai, run
from unprivileged import unprivileged

DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "empty": lambda data, chance: b"",
    "half": lambda data, chance: data[: len(data) // 2],
    "flipped": lambda data, chance: _flip(data, chance, 8),
    "scrambled": lambda data, chance: _flip(data, chance, 1 + len(data) // 20),
    "zeros": lambda data, chance: bytes(len(data)),
    "huge": lambda data, chance: data + b"[" * 3_000_000,
    "other JSON": lambda data, chance: b'{"version": 99, "id": ["' + b"\xff" * 9 + b'"]}',
}


def _flip(data: bytes, chance: random.Random, count: int) -> bytes:
    made = bytearray(data)
    for _ in range(count if data else 0):
        made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
    return bytes(made)


class Scene(NamedTuple):
    """What is imported from where to where, and the folder in which a file is damaged."""

    source: Path
    target: str | None
    folder: Path


def _git(folder: Path) -> Scene:
    shadow = praisonai(folder / "in")
    shadow.save("one", {"a.txt": "a"})
    shadow.save("two", {"b.txt": "b"})
    return Scene(shadow.git_dir, None, shadow.git_dir)


def _llmfy(folder: Path) -> Scene:
    path = folder / "in" / "llmfy.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(test_llmfy.LONG)
    test_llmfy.insert(path, *(json.dumps({"log": ["a" * n]}).encode() for n in range(3)))
    return Scene(path, f"sqlite:///{folder}/out/states.db", path.parent)


def _codeweaver(folder: Path) -> Scene:
    path = folder / "in" / "checkpoint_shop-0123abcd.json"
    path.parent.mkdir()
    path.write_text(json.dumps(test_codeweaver.VALUES))
    return Scene(path, f"{folder}/out/checkpoints", path.parent)


def _skill(folder: Path) -> Scene:
    project = folder / "in"
    test_skill.save(project, test_skill.record(1, "0" * 40), features=[{"id": "auth-001", "done": True}])
    return Scene(project, None, project / ".claude")


def _claude(folder: Path) -> Scene:
    project = folder / "project"
    project.mkdir()
    (folder / "in").mkdir()
    made = test_claude_code.Claude(folder / "in", project)
    made.prompt("m1", "fix the bug")
    made.snapshot("m1", {})
    made.delta("m1", "a.py", made.copy("a.py", 1, "one\n"))
    made.prompt("m2", "go on")
    made.snapshot("m2", {"a.py": made.copy("a.py", 2, "two\n")})
    return Scene(made.transcript, None, folder / "in")


def _langgraph(folder: Path) -> Scene:
    path = folder / "in" / "lg.db"
    path.parent.mkdir()
    return Scene(graphs.database(path, threads=("t1",)), f"sqlite:///{folder}/out/states.db", path.parent)


def _training(folder: Path) -> Scene:
    source = folder / "in"
    source.mkdir()
    torch.save({"w": torch.ones(3)}, source / "ckpt-1.pt")
    save_file({"w": torch.ones(3)}, source / "ckpt-2.safetensors")
    (source / "ckpt-3.pkl").write_bytes(pickle.dumps({"epoch": 3}))
    (source / "ckpt-1.meta.json").write_text(json.dumps({"schema_version": "1.0", "metrics": {"val_loss": 0.5}}))
    return Scene(source, f"{folder}/out/run", source)


SCENES = {
    "git": _git,
    "llmfy": _llmfy,
    "langgraph": _langgraph,
    "codeweaver": _codeweaver,
    "skill": _skill,
    "claude": _claude,
    "training": _training,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", SCENES)
def test_one_damaged_file(kind: str, damage: str, tmp_path: Path) -> None:
    chance = random.Random(f"{kind} {damage}")
    whole = _make(kind, tmp_path / "whole")
    count = len(_files(whole.folder))
    assert run(whole.source, whole.target).added
    for number in range(count) if count < 5 else chance.sample(range(count), 2):
        scene = _make(kind, tmp_path / str(number))
        name = _files(scene.folder)[number]
        path = scene.folder / name
        path.chmod(0o644)
        path.write_bytes(DAMAGES[damage](path.read_bytes(), chance))
        before, out = bytes_and_times(scene.folder), _stored(tmp_path, number)
        _import(scene, unchanged=lambda at=number, was=out: _stored(tmp_path, at) == was)
        assert bytes_and_times(scene.folder) == before, f"{name} was changed"


@pytest.mark.parametrize("kind", ["llmfy", "langgraph"])
def test_damaged_page_of_a_table(kind: str, tmp_path: Path) -> None:
    """Nothing notices it before the rows of the page are read."""
    scene = _make(kind, tmp_path / "0")
    table = "llmfy_checkpoint" if kind == "llmfy" else "checkpoints"
    with closing(sqlite3.connect(scene.source)) as db, db:
        root, size = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()[0], 4096
    data = bytearray(scene.source.read_bytes())
    data[(root - 1) * size : root * size] = b"\xff" * size
    scene.source.write_bytes(data)
    before, out = bytes_and_times(scene.folder), _stored(tmp_path, 0)
    with pytest.raises(Damaged, match="is damaged: database disk image is malformed"):
        run(scene.source, scene.target)
    assert (bytes_and_times(scene.folder), _stored(tmp_path, 0)) == (before, out)


def _settings(name: str, value: str) -> Callable[[Scene], object]:
    def change(scene: Scene) -> None:
        path = scene.folder / "config"
        path.write_text(f"{path.read_text()}[{name}]\n{value}\n")

    return change


def _sql(*statements: str) -> Callable[[Scene], None]:
    def change(scene: Scene) -> None:
        with closing(sqlite3.connect(scene.source)) as db, db:
            for each in statements:
                db.execute(each)

    return change


def _newer_checkpoints(scene: Scene) -> None:
    """Give every checkpoint the version 99 of LangGraph's format."""
    with closing(sqlite3.connect(scene.source)) as db, db:
        for own, data in db.execute("SELECT checkpoint_id, checkpoint FROM checkpoints").fetchall():
            body = ormsgpack.unpackb(data, ext_hook=ormsgpack.Ext, option=ormsgpack.OPT_NON_STR_KEYS)
            packed = ormsgpack.packb(body | {"v": 99}, option=ormsgpack.OPT_NON_STR_KEYS)
            db.execute("UPDATE checkpoints SET checkpoint = ? WHERE checkpoint_id = ?", (packed, own))


def _json_values(name: str, **values: Any) -> Callable[[Scene], object]:
    def change(scene: Scene) -> None:
        for path in [scene.folder / each for each in _files(scene.folder) if each.endswith(name)]:
            path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def _other_records(scene: Scene) -> None:
    """Rename what a snapshot of Claude Code consists of."""
    scene.source.write_text(scene.source.read_text().replace("trackedFileBackups", "files").replace("backup", "copy"))


def _torch_meta(scene: Scene) -> None:
    for path in scene.source.iterdir():
        path.unlink()
    torch.save({"state": {"w": torch.ones(3)}, "meta": {"schema_version": 99}}, scene.source / "ckpt-1.pt")


VERSIONS: dict[str, tuple[str, Callable[[Scene], object], str]] = {
    "git format": ("git", _settings("core", "repositoryformatversion = 99"), "version 99, which is unknown"),
    "git extension": ("git", _settings("extensions", "newhash = true"), "extensions.newhash, which is unknown"),
    "llmfy": ("llmfy", _sql("ALTER TABLE llmfy_checkpoint RENAME COLUMN state TO body"), "other columns"),
    "langgraph table": ("langgraph", _sql("ALTER TABLE writes RENAME COLUMN value TO body"), "no column value"),
    "langgraph checkpoint": ("langgraph", _newer_checkpoints, "v=99 is unknown"),
    "codeweaver": ("codeweaver", _json_values(".json", schema_version=99), "schema_version 99, which is unknown"),
    "codeweaver text": ("codeweaver", _json_values(".json", schema_version="2"), "schema_version '2', which is"),
    "codeweaver checksum": ("codeweaver", _json_values(".json", checksum=digest("other")), "match its checksum"),
    "skill": ("skill", _json_values("metadata.json", schema_version=99), "schema_version 99 is unknown"),
    "claude": ("claude", _other_records, "the name of its copy is invalid"),
    "training index": (
        "training",
        lambda scene: (scene.source / "index.json").write_text('{"schema_version": 99}'),
        "schema_version 99 is unknown",
    ),
    "training file": ("training", _torch_meta, "schema_version 99 is unknown"),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_wrong_version(name: str, tmp_path: Path) -> None:
    kind, change, message = VERSIONS[name]
    scene = _make(kind, tmp_path / "0")
    change(scene)
    before, out = bytes_and_times(scene.folder), _stored(tmp_path, 0)
    with pytest.raises((Refused, Damaged, NotFound), match=re.escape(message)):
        run(scene.source, scene.target)
    assert (bytes_and_times(scene.folder), _stored(tmp_path, 0)) == (before, out)


def test_wrong_version_of_one_training_checkpoint_is_reported(tmp_path: Path) -> None:
    scene = _make("training", tmp_path / "0")
    (scene.source / "ckpt-1.meta.json").write_text('{"schema_version": 99}')
    done = run(scene.source, scene.target)
    assert done.added == 2
    assert [(each.what, "99 is unknown" in each.why) for each in done.not_carried] == [("ckpt-1.pt", True)]


def test_own_checksum_of_codeweaver_checkpoint(tmp_path: Path) -> None:
    scene = _make("codeweaver", tmp_path / "0")
    values = test_codeweaver.VALUES | {"schema_version": 1}
    scene.source.write_text(json.dumps(values | {"checksum": digest("checkpoint", values)}))
    assert run(scene.source, scene.target).added == 1


@pytest.mark.parametrize("kind", SCENES)
def test_no_permission_to_read(kind: str, tmp_path: Path) -> None:
    scene = _make(kind, tmp_path / "0")
    before, out = bytes_and_times(scene.folder), _stored(tmp_path, 0)
    modes = {scene.folder / name: (scene.folder / name).stat().st_mode for name in _files(scene.folder)}
    for path in modes:
        path.chmod(0)
    with pytest.raises((Unavailable, Damaged), match="ermission denied"):
        unprivileged(lambda: run(scene.source, scene.target))
    for path, mode in modes.items():
        path.chmod(mode)
    assert (bytes_and_times(scene.folder), _stored(tmp_path, 0)) == (before, out)


@pytest.mark.parametrize("kind", SCENES)
def test_no_permission_to_enter_the_folder(kind: str, tmp_path: Path) -> None:
    scene = _make(kind, tmp_path / "0")
    before, out = bytes_and_times(scene.folder), _stored(tmp_path, 0)
    scene.folder.chmod(0)
    try:
        with pytest.raises(Unavailable, match="ermission denied"):
            unprivileged(lambda: run(scene.source, scene.target))
    finally:
        scene.folder.chmod(0o755)
    assert (bytes_and_times(scene.folder), _stored(tmp_path, 0)) == (before, out)


@pytest.mark.parametrize("name", ["refs", "refs/heads", "logs", "logs/refs", "info", "info/exclude"])
def test_git_folder_without_permission(name: str, tmp_path: Path) -> None:
    """Each may name commits, or what a restore must keep."""
    scene = _make("git", tmp_path / "0")
    place, out = scene.folder / name, _stored(tmp_path, 0)
    mode = place.stat().st_mode
    place.chmod(0)
    try:
        with pytest.raises(Unavailable, match=f"{name}.*: Permission denied"):
            unprivileged(lambda: run(scene.source))
    finally:
        place.chmod(mode)
    assert _stored(tmp_path, 0) == out


@pytest.mark.parametrize("name", ["ckpt-1.pt", "ckpt-2.safetensors", "ckpt-3.pkl", "ckpt-1.meta.json"])
def test_no_permission_to_read_one_training_file(name: str, tmp_path: Path) -> None:
    scene = _make("training", tmp_path / "0")
    (scene.source / name).chmod(0)
    done = unprivileged(lambda: run(scene.source, scene.target))
    assert [each[:2] for each in done.not_carried] == [(name, "it cannot be read: Permission denied")]


@pytest.mark.parametrize("kind", SCENES)
def test_empty_source(kind: str, tmp_path: Path) -> None:
    """Nothing was ever saved there, or all of it is gone."""
    scene = _make(kind, tmp_path / "0")
    for name in _files(scene.folder):
        (scene.folder / name).chmod(0o644)
        (scene.folder / name).write_bytes(b"")
    before, out = bytes_and_times(scene.folder), _stored(tmp_path, 0)
    with pytest.raises((Refused, Damaged, NotFound)):
        run(scene.source, scene.target)
    assert (bytes_and_times(scene.folder), _stored(tmp_path, 0)) == (before, out)


TARGETS: dict[str, tuple[str, Callable[[Scene], Path | str], str]] = {
    "training into itself": ("training", lambda scene: scene.source, "the source itself"),
    "training into a folder of it": ("training", lambda scene: scene.source / "imported", "is in the source"),
    "training into a file": ("training", lambda scene: scene.source / "ckpt-1.pt", "is in the source"),
    "training into another file": ("training", lambda scene: Path(__file__), "is a file"),
    "codeweaver into a file": ("codeweaver", lambda scene: scene.source, "is a file"),
    "codeweaver into a URL": ("codeweaver", lambda scene: "sqlite:///x.db", "is a URL"),
    "git into itself": ("git", lambda scene: scene.source, "the source itself"),
    "git into a folder of it": ("git", lambda scene: scene.source / "objects", "is in the source"),
    "git into a file": ("git", lambda scene: scene.source / "HEAD", "does not exist"),
    "llmfy into itself": ("llmfy", lambda scene: f"sqlite:///{scene.source}", "database of another program"),
    "langgraph into itself": ("langgraph", lambda scene: f"sqlite:///{scene.source}", "database of another program"),
    "llmfy into a folder": ("llmfy", lambda scene: scene.folder, "is not a flow store"),
    "skill into a file": ("skill", lambda scene: Path(__file__), "does not exist"),
    "claude into a file": ("claude", lambda scene: Path(__file__), "does not exist"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_wrong_target(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, target, message = TARGETS[name]
    scene = _make(kind, tmp_path / "0")
    monkeypatch.chdir(tmp_path / "0" / "out")
    before, out = bytes_and_times(scene.folder), _stored(tmp_path, 0)
    with pytest.raises((Refused, NotFound), match=message):
        run(scene.source, target(scene))
    assert (bytes_and_times(scene.folder), _stored(tmp_path, 0)) == (before, out)


def _make(kind: str, folder: Path) -> Scene:
    (folder / "out").mkdir(parents=True)
    if kind == "git":
        (folder / "in").mkdir()
    return SCENES[kind](folder)


def _files(folder: Path) -> list[str]:
    found = (Path(where, name) for where, _, names in os.walk(folder) for name in names)
    return sorted(str(path.relative_to(folder)) for path in found if "hooks" not in path.parts)


def _stored(tmp_path: Path, number: int) -> dict[str, Any]:
    """What is in the target: a folder, or the refs of stores."""
    stores = {path: each for path, each in bytes_and_times(tmp_path / "state").items() if "/refs/tags/" in path}
    return bytes_and_times(tmp_path / str(number) / "out") | stores


def _import(scene: Scene, unchanged: Callable[[], bool]) -> Any:
    try:
        return run(scene.source, scene.target)
    except HoldfastError as error:
        assert str(error)
        assert "\n" not in error.message
        assert unchanged(), f"{error}, and the target changed"
        return None
