"""Nothing is imported that is not declared: each extra works with what it brings, and with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from packages.closure import brought_by, link_into

pytestmark = pytest.mark.extras

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

MODULES = {  # what each extra is for
    "": ["cli.main", "workspace", "project", "flow", "flow.sqlite", "importers", "compat", "testing"],
    "chroma": ["adapters.stores.chroma", "indexing"],
    "claude-agent": ["adapters.claude_agent"],
    "crypto": ["serde.encryption"],
    "faiss": ["adapters.stores.faiss", "indexing"],
    "index": ["adapters.models.wordllama", "adapters.index", "indexing"],
    "indexing": ["indexing", "indexing.vectors"],
    "jax": ["training", "training.frameworks.jax_arrays"],
    "lancedb": ["adapters.stores.lancedb", "indexing"],
    "langgraph": ["adapters.langgraph", "importers.langgraph_values"],
    "lightning": ["adapters.lightning", "training"],
    "mcp": ["mcp.server"],
    "openai-agents": ["adapters.openai_agents"],
    "postgres": ["flow.postgres", "durable.postgres", "indexing.ledger.postgres"],
    "praisonai": ["adapters.praisonai"],
    "pydantic-ai": ["adapters.pydantic_ai"],
    "qdrant": ["adapters.stores.qdrant", "indexing"],
    "redis": ["flow.redis"],
    "s3": ["training.object_client"],
    "sqlite-vec": ["adapters.stores.sqlite_vec", "indexing"],
    "training": ["training", "training.frameworks.torch_tensors", "adapters.dcp"],
    "transformers": ["adapters.transformers", "training"],
    "ui": ["web.server", "web.report", "web.syntax"],
    "zstd": ["serde.envelope"],
}


def test_every_extra_has_its_modules_here() -> None:
    assert set(MODULES) - {""} == set(EXTRAS) - {"all", "dev", "dev-all", "docs"}


@pytest.mark.parametrize("extra", MODULES, ids=lambda extra: extra or "none")
def test_an_extra_needs_only_what_it_brings(extra: str, tmp_path: Path) -> None:
    installed = brought_by("holdfast", frozenset({extra}) if extra else frozenset())
    del installed["holdfast"]  # from the source
    link_into(tmp_path, installed)
    imports = "; ".join(f"import holdfast.{each}" for each in MODULES[extra])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(tmp_path)])}
    done = subprocess.run(
        [sys.executable, "-S", "-c", imports], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_extras_the_command_line_runs(tmp_path: Path) -> None:
    installed = brought_by("holdfast")
    del installed["holdfast"]
    link_into(tmp_path, installed)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(SOURCE), str(tmp_path)]),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("1")
    for words in (["save", "first"], ["log"], ["restore", "latest"], ["undo"], ["doctor"]):
        done = subprocess.run(
            [sys.executable, "-S", "-m", "holdfast", *words],
            env=environment,
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr and done.returncode in ((0, 3) if words == ["undo"] else (0, 1)), (
            words,
            done.stdout,
            done.stderr,
        )
