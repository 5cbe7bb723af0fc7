"""File systems that do not tell `README.md` from `readme.md`, nor é as one character from é as two: nothing is lost,
and what cannot be is reported.

Few machines can mount one. So a library (`fold_names.c`) stands before the calls of one process, and lets names
below one folder find files of another case or normal form, as such a file system does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace

LIBRARY = Path(__file__).with_name("fold_names.c")
CASE = ("README.md", "readme.md")
FORMS = ("cafe\u0301.md", "caf\u00e9.md")  # NFD, NFC
PAIRS = pytest.mark.parametrize(("one", "two"), [CASE, FORMS], ids=["case", "normal forms"])
"""Names that become one, in their order."""
WORK = """
import json, sys
from dataclasses import asdict
from holdfast import Workspace
root, store, *verbs = sys.argv[1:]
ws = Workspace(root, store=store, home=store, environ={})
for verb in verbs:
    done = {"save": lambda: None, "undo": ws.undo, "redo": ws.redo}.get(verb, lambda: ws.restore(verb))()
    if verb == "save":
        ws.save("there")
print(json.dumps({"failed": done.failed, "kept": done.kept} if done else {}))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    made = tmp_path_factory.mktemp("fold") / "fold.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, LIBRARY, "-ldl"], check=True)
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def ws(root: Path) -> Workspace:
    return Workspace(root, store=root.parent / "store", home=root.parent, environ={})


def folding(library: Path, root: Path, *verbs: str) -> dict[str, Any]:
    """Do something where case does not count, and say what was not restored."""
    env = {**os.environ, "LD_PRELOAD": str(library), "FOLD_ROOT": str(root)}
    command = [sys.executable, "-c", WORK, root, root.parent / "store", *verbs]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def files(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


@PAIRS
@pytest.mark.parametrize("text", ["mine", "the agent's"])
def test_a_file_that_changed_its_name_comes_back(
    library: Path, root: Path, ws: Workspace, text: str, one: str, two: str
) -> None:
    (root / one).write_text("mine")
    ws.save("before")
    (root / one).rename(root / two)
    (root / two).write_text(text)
    assert folding(library, root, "latest") == {"failed": {}, "kept": {}}
    assert files(root) == {one: "mine"}
    assert folding(library, root, "undo") == {"failed": {}, "kept": {}}
    assert files(root) == {two: text}
    assert folding(library, root, "redo") == {"failed": {}, "kept": {}}
    assert files(root) == {one: "mine"}


@PAIRS
def test_the_same_is_so_where_names_differ(root: Path, ws: Workspace, one: str, two: str) -> None:
    (root / one).write_text("mine")
    ws.save("before")
    (root / one).rename(root / two)
    assert ws.restore("latest").ok
    assert files(root) == {one: "mine"}
    ws.undo()
    assert files(root) == {two: "mine"}


def test_a_folder_that_changed_its_case_stays_and_is_named(library: Path, root: Path, ws: Workspace) -> None:
    (root / "Docs").mkdir()
    (root / "Docs" / "a.txt").write_text("mine")
    (root / "other").write_text("mine")
    ws.save("before")
    (root / "Docs").rename(root / "docs")
    (root / "docs" / "a.txt").write_text("the agent's")
    (root / "other").write_text("the agent's")
    said = folding(library, root, "latest")
    assert "treats the two names as one" in said["failed"]["Docs"]
    assert files(root) == {"docs/a.txt": "the agent's", "other": "mine"}
    folding(library, root, "undo")
    assert files(root) == {"docs/a.txt": "the agent's", "other": "the agent's"}


def test_an_ignored_file_of_another_case_stays_and_is_named(library: Path, root: Path, ws: Workspace) -> None:
    (root / "Notes").write_text("mine")
    (root / ".gitignore").write_text("notes\n")
    ws.save("before")
    (root / "Notes").unlink()
    (root / "notes").write_text("ignored")
    said = folding(library, root, "latest")
    assert said["failed"]["Notes"] == "notes is there, and this file system treats the two names as one"
    assert files(root)["notes"] == "ignored"


@PAIRS
def test_two_names_that_become_one_are_named(library: Path, root: Path, ws: Workspace, one: str, two: str) -> None:
    (root / one).write_text("one")
    (root / two).write_text("two")
    ws.save("before")
    (root / one).unlink()
    (root / two).unlink()
    said = folding(library, root, "latest")
    assert len(said["failed"]) == 1
    (name,) = said["failed"]
    assert files(root) in ({one: "one"}, {two: "two"})
    assert name not in files(root)
    (root / one).unlink(missing_ok=True)
    (root / two).write_text("changed")
    said = folding(library, root, "latest")
    assert list(said["failed"]) == [one]
    assert files(root) == {two: "two"}


@PAIRS
def test_an_export_of_two_names_that_become_one(library: Path, root: Path, ws: Workspace, one: str, two: str) -> None:
    (root / one).write_text("one")
    (root / two).write_text("two")
    ws.save("before")
    env = {**os.environ, "LD_PRELOAD": str(library), "FOLD_ROOT": str(root.parent)}
    code = (
        "import sys; from holdfast import Workspace\n"
        "ws = Workspace(sys.argv[1], store=sys.argv[2], home=sys.argv[2], environ={})\n"
        "print(*ws.export('latest', sys.argv[3]).failed)"
    )
    given = [root, root.parent / "store", root.parent / "out"]
    ran = subprocess.run([sys.executable, "-c", code, *given], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [two]
    assert files(root.parent / "out") == {one: "one"}
