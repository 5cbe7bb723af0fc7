"""What the package offers, and how little it costs to import it."""

from __future__ import annotations

import ast
import collections
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

PUBLIC = {
    "Checkpoint",
    "CheckpointDiff",
    "Conflict",
    "Damaged",
    "HoldfastError",
    "NotFound",
    "Plan",
    "Refused",
    "Restored",
    "Unavailable",
    "Uncovered",
    "VerifyReport",
    "Workspace",
    "__version__",
}
"""A name enters here when it enters the documentation."""

HEAVY = {"pygit2", "rich", "click", "sqlite3", "platformdirs"}


def modules_after(code: str) -> set[str]:
    """The names of all modules that some code loads."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stdout))


def test_the_public_names_are_exactly_these() -> None:
    assert set(holdfast.__all__) == PUBLIC
    assert dir(holdfast) == sorted(PUBLIC)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(holdfast, name) is not None


def test_each_error_is_one_of_ours() -> None:
    for name in ("Conflict", "Damaged", "NotFound", "Refused", "Unavailable"):
        assert issubclass(getattr(holdfast, name), holdfast.HoldfastError)


def test_another_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = holdfast.nothing


def test_everything_is_had_by_a_star() -> None:
    names: dict[str, object] = {}
    exec("from holdfast import *", names)
    assert names.keys() >= PUBLIC


def test_the_version_is_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", holdfast.__version__)


def test_the_types_are_for_others_too() -> None:
    assert (Path(holdfast.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize(
    "package", ["", ".flow", ".model", ".project", ".serde", ".shadowgit", ".training", ".workspace"]
)
def test_a_type_checker_knows_a_name_that_is_misspelt(package: str, tmp_path: Path) -> None:
    source = Path(holdfast.__file__).parent.joinpath(*package.split("."), "__init__.py")
    (tmp_path / "theirs.py").write_text(f"from holdfast{package} import Chekpoint\n")
    script = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        "--follow-imports=skip",
        f"--cache-dir={tmp_path / 'cache'}",
    ]
    told = subprocess.run([*script, str(source), str(tmp_path / "theirs.py")], capture_output=True, text=True)
    assert f'Module "holdfast{package}" has no attribute "Chekpoint"' in told.stdout


def test_importing_it_loads_next_to_nothing() -> None:
    ours = {name for name in modules_after("import holdfast") if name.startswith("holdfast")}
    assert ours == {"holdfast"}
    assert not modules_after("import holdfast") & (HEAVY | {"typing", "asyncio"})


def test_a_workspace_is_had_without_the_service() -> None:
    loaded = modules_after("from holdfast import Workspace")
    assert not loaded & {"asyncio", "holdfast.workspace.service.service"}


def test_the_errors_and_nouns_load_none_of_the_machinery() -> None:
    loaded = modules_after("from holdfast import Checkpoint, Refused")
    assert not loaded & HEAVY
    assert not {
        name for name in loaded if name.startswith(("holdfast.workspace", "holdfast.shadowgit", "holdfast.scan"))
    }


def test_workspace_does_not_load_optional_modules(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    loaded = modules_after(
        f"from holdfast import Workspace\n"
        f"ws = Workspace({str(tmp_path / 'project')!r}, store={str(tmp_path / 'store')!r},"
        f" home={str(tmp_path / 'home')!r}, environ={{}})\n"
        f"ws.save('x'); ws.list()"
    )
    assert not loaded & (HEAVY - {"sqlite3"})


def test_class_names_occur_once() -> None:
    """Two classes share a public name only where documents that people have give it to both."""
    documented = {"Checkpoint", "CheckpointManager"}
    package = Path(holdfast.__file__).parent
    places = collections.defaultdict(list)
    for path in package.rglob("*.py"):
        if path.is_relative_to(package / "compat"):  # has the names of other systems
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(package)))
    shared = {name: files for name, files in places.items() if len(files) > 1 and name not in documented}
    assert not shared
