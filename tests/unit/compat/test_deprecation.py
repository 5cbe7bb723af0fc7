"""Names of predecessors warn once, at the program's line, and name a replacement that exists."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest

import holdfast.compat
from holdfast.compat.deprecation import deprecate

MODULES = sorted(found.name for found in pkgutil.walk_packages(holdfast.compat.__path__, "holdfast.compat."))


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module `old_names` that deprecates `thing` and `other`, not `kept`."""
    module = ModuleType("old_names")
    module.__dict__.update(thing=1, other=2, kept=3)
    monkeypatch.setitem(sys.modules, "old_names", module)
    deprecate("old_names", {"thing": "holdfast.Workspace", "other": "holdfast.Checkpoint"})
    yield module


def told(statement: str, file: str = "program.py") -> list[tuple[str, str, int]]:
    """What a program of this text is warned of: message, file, line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile(statement, file, "exec"), {"__name__": "program"})
    assert {each.category for each in caught} <= {DeprecationWarning}
    return [(str(each.message), each.filename, each.lineno) for each in caught]


@pytest.mark.usefixtures("old")
def test_a_name_warns_once_at_the_line_that_takes_it() -> None:
    message = "old_names.thing is deprecated; use holdfast.Workspace instead"
    assert told("\nfrom old_names import thing\nassert thing == 1") == [(message, "program.py", 2)]
    assert told("from old_names import thing\nimport old_names\nold_names.thing") == []


@pytest.mark.usefixtures("old")
def test_each_name_warns_for_itself() -> None:
    assert len(told("from old_names import thing")) == 1
    assert len(told("import old_names\n\nold_names.other")) == 1
    assert told("from old_names import kept") == []


@pytest.mark.usefixtures("old")
def test_the_line_is_right_where_warn_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    real = warnings.warn
    monkeypatch.setattr(warnings, "warn", lambda *args, **options: real(*args, **options))
    assert [(file, line) for _, file, line in told("\n\nfrom old_names import thing")] == [("program.py", 3)]


def test_a_package_warns_at_the_program_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old_package").mkdir()
    (tmp_path / "old_package" / "__init__.py").write_text(
        "from holdfast.compat.deprecation import deprecate\nthing = 1\ndeprecate(__name__, {'thing': 'holdfast.X'})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    [(_, file, line)] = told("\n\nfrom old_package import thing")
    assert (file, line) == ("program.py", 3)
    del sys.modules["old_package"]


def test_names_can_be_patched(old: ModuleType) -> None:
    with warnings.catch_warnings(), mock.patch("old_names.thing", 7):
        warnings.simplefilter("ignore")
        assert old.thing == 7
    assert old.thing == 1


@pytest.mark.usefixtures("old")
def test_a_name_that_is_not_there_cannot_be_deprecated() -> None:
    with pytest.raises(AttributeError, match=r"old_names.*: nothing"):
        deprecate("old_names", {"nothing": "holdfast.Workspace"})


@pytest.mark.parametrize("name", MODULES)
def test_every_replacement_exists(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # importing a module takes no name from it
        try:
            module = importlib.import_module(name)
        except holdfast.HoldfastError as error:
            pytest.skip(f"{error}")
    for replacement in module.__dict__.get("_replacements", {}).values():
        path, _, attribute = replacement.partition(" ")[0].rpartition(".")
        assert hasattr(importlib.import_module(path), attribute), replacement


def test_importing_the_library_loads_no_predecessor() -> None:
    script = "import holdfast, holdfast.workspace, holdfast.project, holdfast.indexing, sys; print(list(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "holdfast.compat" not in ran.stdout
