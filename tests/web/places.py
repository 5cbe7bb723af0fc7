"""A project with a flow store, training runs and an index, as its configuration names them."""

from __future__ import annotations

import math
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.flow import Checkpoint, CheckpointMetadata, open_states

NODES = ("plan", "search", "read", "write", "review")
CONFIGURATION = """\
locations = ["sqlite:///state.db", "runs/base", "runs/wide"]

[index]
include = ["*.md"]

[index.embed.dense]
model = "holdfast-hashed-words"
"""


def make_places(project: Path, environ: dict[str, str]) -> None:
    """Fill a folder."""
    project.mkdir(parents=True, exist_ok=True)
    (project / "holdfast.toml").write_text(CONFIGURATION)
    _flow(f"sqlite:///{project / 'state.db'}")
    _training(project / "runs")
    _index(project, environ)


def _flow(url: str) -> None:
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    with open_states(url) as states:
        for step in range(1, 9):
            parent = f"s{step - 1}" if step > 1 else None
            at = noon + timedelta(seconds=step * step * 3)
            told = CheckpointMetadata(f"s{step}", "support-41", at, NODES[step % 5], step, parent_id=parent)
            messages = [{"role": "user", "content": f"message {each}" * 9} for each in range(step)]
            states.save(Checkpoint(told, {"messages": messages, "done": step > 6, "cost": {"usd": 0.01 * step}}))
        again = CheckpointMetadata("s4-again", "support-41", noon + timedelta(minutes=9), "read", 4, parent_id="s3")
        states.save(Checkpoint(again, {"messages": ["another way"]}))
        states.fork("support-41", "s5", into="support-41-cheaper")
        states.save(Checkpoint(CheckpointMetadata("x", "billing-7", noon, "plan", 1), {"rows": [1, 2, 3]}))


def _training(runs: Path) -> None:
    import torch

    from holdfast.training import save_checkpoint

    for name, rate in (("base", 0.35), ("wide", 0.5)):
        for step in range(100, 1600, 100):
            state = {"embed": torch.ones(400_000), "head": torch.ones(20_000) * step}
            loss = 2.5 * math.exp(-rate * step / 300) + 0.3 + 0.04 * math.sin(step)
            metrics = {"loss": loss, "accuracy": 1 - loss / 3}
            save_checkpoint(runs / name, step, state, metrics=metrics, best_key="loss", rng=False)


def _index(project: Path, environ: dict[str, str]) -> None:
    docs = project / "docs"
    docs.mkdir()
    for name, text in {
        "tides.md": "The tide rises twice a day. Spring tides follow the full moon.",
        "kelp.md": "Kelp holds fast to rock with its holdfast. It grows where the tide is strong.",
        "crabs.md": "Crabs hide under kelp until the tide comes back.",
    }.items():
        (docs / name).write_text(text * 6)
    call = [sys.executable, "-m", "holdfast.cli", "index", "apply", "--yes"]
    subprocess.run(call, cwd=project, env=environ, check=True, capture_output=True)
    (docs / "new.md").write_text("Barnacles feed at high tide.")
