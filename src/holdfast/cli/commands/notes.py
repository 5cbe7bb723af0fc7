"""`holdfast notes`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from holdfast.cli import render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.cli.exit_codes import Exit
from holdfast.workspace.location import YOU
from holdfast.workspace.notes.notes import CheckedNote, NoteStatus
from holdfast.workspace.notes.notes_ref import NOTES_REF
from holdfast.workspace.stored.attribution import USER

_COMMIT_CHARS = 10


@command()
@click.argument("commits", nargs=-1, metavar="[COMMIT]...")
@click.option("--check", is_flag=True, help="Compare notes with the checkpoints; write nothing.")
@click.option("--dry-run", is_flag=True, help="Show the notes; write nothing.")
@pass_app
def notes(app: App, *, commits: tuple[str, ...], check: bool, dry_run: bool) -> int:
    """Write who wrote which lines of a commit, as git notes.

    For each line that COMMIT (by default, HEAD; also a range A..B) added: the person, or the agent, its model, session
    and turn; unknown where checkpoints do not tell. It is found by the content of the lines, so it also works after a
    squash, a rebase or an amend. The notes are Agent Trace records in refs/notes/holdfast, and nothing else in your
    repository changes. Read them with git log --notes=holdfast.

    --check exits with 8 if a note is missing, differs, or can no longer be proved.

    \b
    holdfast notes
    holdfast notes main..HEAD
    holdfast notes --check
    """
    if check and dry_run:
        raise click.UsageError("--check writes nothing; leave out --dry-run.")
    workspace = app.open()
    if check:
        return _check(app, workspace.check_notes(commits))
    if dry_run:
        traces = workspace.traces(commits)
        found = [{"commit": each["vcs"]["revision"], "changed": False, "trace": each} for each in traces]
    else:
        written = workspace.write_notes(commits)
        found = [{"commit": each.commit, "changed": each.changed, "trace": each.trace} for each in written]
    if app.json:
        app.items(found, ref=NOTES_REF)
        return Exit.DONE
    for each in found:
        state = "" if dry_run else "  written" if each["changed"] else "  unchanged"
        streams.answer(render.paint(each["commit"][:_COMMIT_CHARS], "yellow") + state)
        for line in _lines(each["trace"]):
            streams.answer(f"  {line}")
    return Exit.DONE


def _lines(trace: dict[str, Any]) -> Iterable[str]:
    """The lines of a record, for people."""
    for file in trace["files"]:
        for each in file["conversations"]:
            ends = [(part["start_line"], part["end_line"]) for part in each["ranges"]]
            where = ",".join(str(start) if start == end else f"{start}-{end}" for start, end in ends)
            yield f"{render.escape(file['path'])}:{where or 'whole file'}  {_who(each)}"
    if not trace["files"]:
        yield "no lines added"


def _who(conversation: dict[str, Any]) -> str:
    own = conversation.get("holdfast", {})
    if own.get("perhaps"):
        names = [YOU if name == USER else str(name) for name in own["perhaps"]]
        return render.escape(f"unknown: {' or '.join(names)}")
    if not own.get("actor"):
        return "unknown"
    if own["actor"] == USER:
        return YOU
    turn = f"turn {own['turn']}" if own.get("turn") else ""
    return render.escape(", ".join(filter(None, (own["actor"], own.get("model"), turn))))


def _check(app: App, found: list[CheckedNote]) -> int:
    if app.json:
        items = [
            {"commit": each.commit, "status": each.status.value, "paths": list(each.paths), "detail": each.detail}
            for each in found
        ]
        app.items(items, ref=NOTES_REF)
    else:
        for each in found:
            more = "; ".join(filter(None, (each.detail, ", ".join(each.paths))))
            text = f"{each.commit[:_COMMIT_CHARS]}  {each.status.value}"
            streams.answer(render.escape(f"{text}: {more}" if more else text))
    return Exit.DONE if all(each.status is NoteStatus.TRUE for each in found) else Exit.INCOMPLETE
