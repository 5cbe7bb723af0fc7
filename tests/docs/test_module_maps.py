"""The map at the top of a package names every file in it, and nothing that is gone."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

_ROW = re.compile(r"^ *([a-z_]\w*/?(?:, [a-z_]\w*/?)*)  ", re.MULTILINE)


@pytest.mark.parametrize(
    "name", ["cli", "flow", "indexing", "scan", "serde", "shadowgit", "testing", "training", "web", "workspace"]
)
def test_the_map_of_a_package_is_its_files(name: str) -> None:
    package = importlib.import_module(f"holdfast.{name}")
    text = package.__doc__ or ""
    folder = Path(str(package.__file__)).parent
    there = {path.stem for path in folder.glob("*.py") if not path.name.startswith("__")}
    there |= {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    rows = {name for row in _ROW.findall(text) for name in row.split(", ")} - {"code"}
    assert rows <= there, f"gone: {rows - there}"
    named = rows | set(re.findall(r"`(\w+)`", text))
    missing = {name for name in there - named if not name.startswith("flow_")}
    assert not missing, f"the docstring of holdfast.{name} does not name {missing}"
