"""Where an optional package is missing, one sentence says so and names the extra that brings it."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from holdfast.errors import Extra, NotInstalled, Unavailable

_PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))

_NEEDS = {
    "import holdfast.adapters.claude_agent": "claude-agent",
    "import holdfast.adapters.dcp": "training",
    "import holdfast.adapters.langgraph": "langgraph",
    "import holdfast.adapters.lightning": "lightning",
    "import holdfast.adapters.models.wordllama": "index",
    "import holdfast.adapters.openai_agents": "openai-agents",
    "import holdfast.adapters.praisonai": "praisonai",
    "import holdfast.adapters.pydantic_ai": "pydantic-ai",
    "import holdfast.adapters.stores.chroma": "chroma",
    "import holdfast.adapters.stores.faiss": "faiss",
    "import holdfast.adapters.stores.lancedb": "lancedb",
    "import holdfast.adapters.stores.qdrant": "qdrant",
    "import holdfast.adapters.stores.sqlite_vec": "sqlite-vec",
    "import holdfast.adapters.transformers": "transformers",
    "from holdfast.flow import open_states; open_states('postgresql://localhost/x')": "postgres",
    "from holdfast.flow import open_states; open_states('redis://localhost')": "redis",
    "from holdfast.indexing.ledger import open_ledger; open_ledger('postgresql://localhost/x')": "postgres",
    "from holdfast.indexing import FlatStore, vectors; vectors.load_numpy()": "indexing",
    "from holdfast.digest import digest_bytes; digest_bytes(b'x')": "indexing",
    "from holdfast.serde import Keys; Keys({'k': bytes(32)}).encrypt(b'x', b'y')": "crypto",
    "from holdfast.training import load_checkpoint; load_checkpoint('s3://bucket/run')": "s3",
    "from holdfast.training import save_checkpoint; save_checkpoint('s3://bucket/run', 1, {})": "s3",
    "from holdfast.cli.commands.mcp import mcp; mcp.main([], obj=object(), standalone_mode=False)": "mcp",
}

_SCRIPT = """
import importlib, json, pkgutil, sys
missing, statements = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(missing))

def told(statement):
    try:
        exec(statement, {})
    except Exception as error:
        return [type(error).__name__, str(error)]

import holdfast.adapters as room
rooms = [f"import {found.name}" for found in pkgutil.walk_packages(room.__path__, "holdfast.adapters.", lambda _: None)]
print(json.dumps({each: told(each) for each in [*statements, *rooms]}))
"""


def optional_packages() -> list[str]:
    """What is installed only with an extra, as the linter of imports knows it."""
    [contract] = [each for each in _PROJECT["tool"]["importlinter"]["contracts"] if "optional" in each["name"]]
    return sorted(set(contract["forbidden_modules"]) - {"msgspec"})


@cache
def answers() -> dict[str, list[str] | None]:
    """What each statement raises in a process that has none of them."""
    given = json.dumps([optional_packages(), list(_NEEDS)])
    ran = subprocess.run([sys.executable, "-c", _SCRIPT, given], capture_output=True, text=True, check=True)
    found: dict[str, list[str] | None] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("statement", _NEEDS)
def test_what_is_missing_is_said_with_the_extra_that_brings_it(statement: str) -> None:
    extra = _NEEDS[statement]
    assert extra in _PROJECT["project"]["optional-dependencies"]
    kind, message = answers()[statement] or ["nothing", ""]
    assert kind == "NotInstalled", message
    assert message.startswith("the package ")
    assert message.endswith(f" is not installed. Install it with: pip install 'holdfast[{extra}]'")


def test_no_adapter_fails_otherwise() -> None:
    others = {name: answer for name, answer in answers().items() if answer and answer[0] != "NotInstalled"}
    assert not others


def test_it_is_an_error_of_ours_and_an_import_error() -> None:
    with pytest.raises(ImportError) as caught, Extra("postgres"):
        import holdfast_has_no_such_package  # type: ignore[import-not-found]  # noqa: F401
    assert isinstance(caught.value, Unavailable)
    again = pickle.loads(pickle.dumps(caught.value))  # from one process to another
    assert (type(again), str(again)) == (NotInstalled, str(caught.value))


def test_broken_package_is_reported_with_its_error() -> None:
    for error in (ImportError("no pq wrapper available"), ModuleNotFoundError("no pq wrapper available")):
        with pytest.raises(NotInstalled, match="cannot be loaded: no pq wrapper available"), Extra("postgres"):
            raise error


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="mine"), Extra("postgres"):
        raise ValueError("mine")
