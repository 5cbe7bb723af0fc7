"""`holdfast where`."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.cli import render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app


@command()
@pass_app
def where(app: App) -> None:
    """Show where the checkpoints are stored."""
    workspace = app.open()
    every = workspace.list(None, safety=True)
    saves = sum(1 for checkpoint in every if checkpoint.operation is None)
    used = bytes_on_disk(workspace.store)
    if app.json:
        place = {"workspace": str(workspace.path), "store": str(workspace.store)}
        app.document(place | {"checkpoints": saves, "safety_checkpoints": len(every) - saves, "bytes": used})
        return
    safety = f", and {len(every) - saves:,} made before restores" if len(every) > saves else ""
    pairs = [
        ("workspace", render.escape(str(workspace.path))),
        ("store", render.escape(str(workspace.store))),
        ("checkpoints", f"{saves:,}{safety}"),
        ("on disk", render.size(used)),
    ]
    streams.answer(render.fields(pairs))


def bytes_on_disk(folder: Path) -> int:
    """Return how much disk a folder takes; files that vanish meanwhile count as empty."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total
