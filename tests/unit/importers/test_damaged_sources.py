"""Sources of every kind with one damaged file: one clear error or a report, and no damage done on either side."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.errors import HoldfastError
from unit.importers import test_claude_code, test_codeweaver, test_llmfy, test_skill
from unit.importers.scenes import bytes_and_times, praisonai, run

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


SCENES = {"git": _git, "llmfy": _llmfy, "codeweaver": _codeweaver, "skill": _skill, "claude": _claude}


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
