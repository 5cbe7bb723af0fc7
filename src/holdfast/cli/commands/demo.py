"""`holdfast demo`."""

from __future__ import annotations

from holdfast.cli import output
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command
from holdfast.cli.demonstration import run
from holdfast.cli.exits import Exit


@command()
@pass_app
def demo(app: App) -> int:
    """Save, break and restore a small project, and check the result.

    A small project in a temporary folder is saved, broken, restored, and the restore undone and redone.
    Every state is compared with what it has to be, bytes, modes and times; the exit status says whether all were equal.
    """
    story = run(tell=(lambda line: None) if app.json else output.answer)
    if app.json:
        app.document({"ok": story.ok, "steps": story.steps, "comparisons": story.comparisons})
    return Exit.DONE if story.ok else Exit.BUG
