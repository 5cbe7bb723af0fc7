"""The reference sections name every class, method, attribute and default of the documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"

NAMES = {
    "indexing.md": """
        ChangeImpact CheckpointManager CheckpointSettingsFingerprint CheckpointSettingsMap IndexingCheckpoint
        get_checkpoint_settings_map delete is_index_valid_for_config load save embedding_config_type embed_model
        embed_model_family query_model sparse_model vector_store config_hash is_compatible_with current_settings_hash
        is_stale matches_settings symmetric asymmetric NONE COMPATIBLE QUANTIZABLE TRANSFORMABLE BREAKING
    """,
    "service.md": """
        CheckpointService workspace_dir storage_dir initialize save restore diff list get delete Checkpoint id message
        timestamp files_changed metadata CheckpointDiff from_id to_id added_files modified_files deleted_files
        diff_content CheckpointConfig auto_checkpoint max_checkpoints exclude_patterns CheckpointEvent CREATED RESTORED
        DELETED
    """,
    "project.md": """
        CheckpointManager project_dir create_checkpoint name description rollback rollback_to_latest id timestamp
        git_state commit_hash branch dirty_files feature_state current completed snapshot_path context session_number
        token_usage AUTOMATIC MANUAL FEATURE SESSION
    """,
    "training.md": """
        save_checkpoint load_checkpoint out_dir step state metrics best_key keep_last_k weights_only last best.json
        metric value path schema_version CheckpointManager manifest.json
    """,
    "flow.md": """
        CheckpointMetadata checkpoint_id session_id timestamp node_name step Checkpoint metadata state to_dict from_dict
        BaseCheckpointer save load list delete limit clear_all
    """,
}


def _reference(page: str) -> str:
    """The part of a page from its reference on."""
    text = (DOCS / page).read_text("utf-8")
    return text[text.index("\n## Reference") :]


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, names in NAMES.items() for name in names.split()])
def test_every_name_is_in_a_reference(page: str, name: str) -> None:
    assert re.search(rf"`[^`]*(?<![\w.]){re.escape(name)}(?!\w)[^`]*`", _reference(page))


@pytest.mark.parametrize(
    ("page", "default"),
    [
        ("service.md", "`auto_checkpoint: bool` | `True`"),
        ("service.md", "`max_checkpoints: int \\| None` | `100`"),
        ("service.md", "`exclude_patterns: list[str]` | `[]`"),
        ("flow.md", "`load(session_id, checkpoint_id=None)`"),
        ("flow.md", "`list(session_id, limit=10)`"),
        ("flow.md", "`delete(session_id, checkpoint_id=None)`"),
        ("indexing.md", "`is_stale(max_age_hours=24"),
    ],
)
def test_defaults(page: str, default: str) -> None:
    assert default in _reference(page)


@pytest.mark.parametrize("kept", ["| the last 5 |", "| the last 3 |", "| until deleted |"])
def test_retention_of_types(kept: str) -> None:
    assert kept in (DOCS / "project.md").read_text("utf-8")


@pytest.mark.parametrize("page", NAMES)
def test_each_reference_has_an_example(page: str) -> None:
    """Which runs with all others of the page in `tests/docs`."""
    assert "```python" in _reference(page)


@pytest.mark.parametrize(
    "title", ["From CodeWeaver", "From PraisonAI", "From the checkpoint skill", "From codex_ml", "From llmfy"]
)
def test_what_differs_on_purpose_is_told(title: str) -> None:
    section = (DOCS / "migrating.md").read_text("utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert "What differs on purpose" in section
