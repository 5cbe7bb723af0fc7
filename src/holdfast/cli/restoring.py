"""What `restore`, `undo` and `redo` tell: the plan before, the result after."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.cli import output, render
from holdfast.cli.documents import short
from holdfast.model import Operation, Plan, Restored


def plan_lines(plan: Plan) -> list[str]:
    """Return what a restore would do, in lines for people."""
    target = short(plan.checkpoint)
    parts = [
        ("bring back", plan.written, ""),
        ("replace", plan.replaced, ""),
        ("remove", plan.removed, ", made since; saved first"),
        ("leave alone", plan.kept, ""),
        ("fail to restore", plan.blocked, ""),
        ("not bring back", plan.missing, ", gone and not held"),
    ]
    lines = [f"Restoring {target} would:" if plan else f"Nothing to restore: everything is as in {target} already."]
    for verb, paths, remark in parts:
        if paths:
            lines.append(f"  {verb} {render.count(len(paths), 'path')}{remark}")
            lines += render.listing(paths)
    if plan.bytes_to_write:
        lines.append(f"  writing {render.size(plan.bytes_to_write)}")
    return lines


def reason(operation: Operation) -> str:
    """Return why a safety checkpoint was made."""
    target = short(operation.target)
    if operation.verb == "found":
        return f"found after an interrupted restore to {target}"
    return f"before {render.escape(operation.verb)} to {target}"


def show_restored(done: Restored, *, verb: str, next_step: str) -> None:
    """Print what was done, then what was not."""
    parts = [f"{len(done.written):,} written", f"{len(done.removed):,} removed"]
    if done.failed:
        parts.append(render.paint(f"{len(done.failed):,} failed", "red"))
    output.answer(f"{verb} {render.paint(short(done.checkpoint), 'cyan')}: {', '.join(parts)}; {next_step}")
    _tell("could not be restored", done.failed)
    _tell("not held by the checkpoint, and gone", done.missing)
    _tell("left alone", done.kept)
    if done.state:
        names = ", ".join(map(render.escape, sorted(done.state)))
        output.note(f"Its state ({names}) is printed by: holdfast show {short(done.checkpoint)} --state NAME")


def _tell(what: str, paths: Mapping[str, str]) -> None:
    if paths:
        output.note(f"{render.count(len(paths), 'path')} {what}:")
        for line in render.listing(paths):
            output.note(line)
