"""What `restore`, `undo` and `redo` have in common: how plans and results look."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from holdfast.cli import progress, render, streams, values
from holdfast.cli.context import App, typed
from holdfast.cli.exit_codes import Exit
from holdfast.errors import HoldfastError, Refused
from holdfast.model import documents
from holdfast.model.documents import short

if TYPE_CHECKING:
    from holdfast.adapters.agents.conversation import RestoredConversation, SavedConversation
    from holdfast.cli.context import App
    from holdfast.model import Checkpoint, Operation, Overlap, Plan, Progress, Restored
    from holdfast.workspace import Workspace


_OUTPUTS_SHOWN = 4


def plan_lines(plan: Plan, folder: Path, stream: TextIO | None = None) -> list[str]:
    """Return what a restore of a folder would do, in lines for people, coloured if the stream has colour."""
    target = short(plan.checkpoint)
    is_shown = not (plan.written or plan.replaced or plan.removed)
    parts = [
        ("bring back", plan.written, "", "green"),
        ("replace", plan.replaced, "", "yellow"),
        ("remove", plan.removed, ", created since; saved first", "red"),
        ("set back the time of", plan.retimed if is_shown else [], "", "yellow"),
        ("leave alone", plan.kept, "", ""),
        ("fail to restore", plan.blocked, "", "red"),
        ("not bring back", plan.missing, ", deleted and in no checkpoint", "red"),
    ]
    where = render.escape(str(folder))
    lines = [f"Restoring {where} to {target} would:"]
    if plan.keep_mine:
        lines = [f"Undoing {whose(plan)} in {where} would:"]
        if not plan and not (plan.blocked or plan.conflicts or plan.kept):
            return [f"Nothing to undo: nothing is left of {whose(plan)}."]
    elif plan.hunks:
        lines = [f"Taking back {render.count(len(plan.hunks), 'change')} since {target} in {where} would:"]
    elif not plan:
        is_all = not (plan.blocked or plan.missing)
        lines = [
            f"Nothing to restore: everything {'is' if is_all else 'that can be restored is'} as in {target} already."
        ]
    for verb, paths, remark, colour in parts:
        if paths:
            line = f"{verb} {render.count(len(paths), 'path')}"
            lines.append(f"  {render.paint(line, colour, stream) if colour else line}{remark}")
            lines += render.listing(paths)
    if plan.conflicts:
        rest = "as they are" if len(plan.conflicts) > 1 else "as it is"
        line = f"leave {render.count(len(plan.conflicts), 'path')} {rest}, changed by others since"
        lines.append(f"  {render.paint(line, 'red', stream)}")
        lines += render.listing(_overlaps(plan.conflicts))
    if plan.doubts and plan:
        lines.append("  undo what may not be the agent's alone")
        lines += render.listing(_doubts(plan))
    if plan.bytes_to_write:
        lines.append(f"  write {render.size(plan.bytes_to_write)} in all")
    return lines


def note_changed(plan: Plan) -> None:
    """List on stderr what a restore did: A for brought back, M for replaced, D for removed."""
    parts = (("A", plan.written), ("M", plan.replaced), ("D", plan.removed))
    rows = sorted((path, letter) for letter, paths in parts for path in paths)
    for path, letter in rows[: render.LIST_MAX]:
        mark = render.paint(letter, values.STATUS_COLOURS[letter], sys.stderr)
        streams.note(f"  {mark} {render.escape(path)}")
    if len(rows) > render.LIST_MAX:
        streams.note(f"  … and {len(rows) - render.LIST_MAX:,} more")


def whose(plan: Plan) -> str:
    """Return which work is undone, in words: a turn, with its prompt, or all of an agent's since a checkpoint."""
    since = short(plan.checkpoint)
    if (turn := plan.turn) is None:
        return f"{render.escape(plan.agent) if plan.agent else 'what agents did'} since {since}"
    which = f"turn {turn.number}" if turn.number is not None else f"the turn since {since}"
    prompt = f" “{render.first_line(turn.prompt)}”" if turn.prompt else ""
    return f"{which} of {render.escape(plan.agent or turn.agent)}{prompt}"


def _doubts(plan: Plan) -> dict[str, str]:
    return {short(each): f"perhaps also by {who}" for each, who in plan.doubts.items()}


def _overlaps(conflicts: Mapping[str, Overlap]) -> dict[str, str]:
    return {path: f"by {each.actor}: {each.why}; {_around(each, path)}" for path, each in conflicts.items()}


def _around(overlap: Overlap, path: str) -> str:
    """The checkpoints before and after what could not be undone, with the name that it has there if that differs."""

    def at(checkpoint: str, name: str | None) -> str:
        return short(checkpoint) if name in (None, path) else f"{short(checkpoint)} as {name}"

    left = f", after it: {at(overlap.after, overlap.path_after)}" if overlap.after else ""
    return f"before it: {at(overlap.before, overlap.path_before)}{left}"


def branch_note(plan: Plan) -> list[str]:
    """A line that says that a checkpoint was saved on another branch of the user's git; none if it was not."""
    if plan.branches is None:
        return []
    then, now = (f"branch {render.escape(each)}" if each else "a detached HEAD" for each in plan.branches)
    return [f"{short(plan.checkpoint)} was saved on {then}; you are on {now}. A restore changes files, not your git."]


def carry_out(
    app: App,
    workspace: Workspace,
    plan: Plan,
    act: Callable[[Progress | None], Restored],
    *,
    dry_run: bool,
    kept: SavedConversation | None = None,
) -> int:
    """Do what a plan says (and bring a conversation back that was kept), tell what was done; the exit status.

    Does not ask, since it can be undone. `act` is what does it.
    """
    if dry_run or not (plan or plan.blocked):
        said = None if dry_run else bring_conversation(kept, app)
        if app.json:
            app.document({"plan": documents.plan(plan), "restored": None, **conversation_document(said)})
        else:
            stream = sys.stdout if dry_run else sys.stderr
            lines = [*plan_lines(plan, workspace.path, stream), *branch_note(plan)]
            (streams.answer if dry_run else streams.note)("\n".join(lines))
            show_conversation(said)
        return Exit.INCOMPLETE if plan.conflicts and not dry_run else Exit.DONE
    with progress.shown() as shown:
        done = act(shown)
    return _tell(app, workspace, plan, done, kept)


class _NothingToDo(Exception):
    """A restore would change nothing."""


def restore_at_once(
    app: App,
    workspace: Workspace,
    act: Callable[..., Restored],
    *,
    kept: SavedConversation | None = None,
) -> int:
    """Do what `carry_out` does, and look at the folder once: `act`, which is `Workspace.restore`, makes the plan."""
    plans: list[Plan] = []

    def agree(plan: Plan) -> None:
        plans.append(plan)
        if not (plan or plan.blocked):
            raise _NothingToDo

    try:
        with progress.shown() as shown:
            done = act(plan=agree, progress=shown)
    except _NothingToDo:
        return carry_out(app, workspace, plans[-1], lambda shown: act(progress=shown), dry_run=False, kept=kept)
    return _tell(app, workspace, plans[-1], done, kept)


def _tell(app: App, workspace: Workspace, plan: Plan, done: Restored, kept: SavedConversation | None) -> int:
    said = bring_conversation(kept, app)
    if app.json:
        results = {"plan": documents.plan(plan), "restored": documents.restored(done)}
        app.document({**results, **conversation_document(said)})
    else:
        what = f"Restored {short(done.checkpoint)}"
        if plan.keep_mine:
            what = f"Undid {whose(plan)}"
        elif plan.hunks:
            what = f"Took back {render.count(len(plan.hunks), 'change')} since {short(plan.checkpoint)}"
        streams.notes(branch_note(plan))
        note_changed(plan)
        is_first = workspace.count_restores() <= 1
        show_restored(app, done, what, next_step=f"undo with: {app.typed('undo')}", is_first=is_first)
        if plan.doubts:
            render.note_list(_doubts(plan), "What was undone may not be the agent's alone")
        show_conversation(said)
    return Exit.DONE if done.ok else Exit.INCOMPLETE


def turn_back(app: App, *, back: bool, dry_run: bool, yes: bool, touch: bool) -> int:
    """Undo the last restore (`back`), or redo the last one undone, and say which that was.

    Asks if checkpoints were saved since: what they have would be replaced. Refused, with the choices, if nobody can
    answer.
    """
    workspace = app.open()
    before = workspace.next_undo() if back else workspace.next_redo()
    later = workspace.saves_after(before) if before else 0
    plan: Plan | None = None
    if before and (dry_run or (later and not yes)):
        plan = workspace.preview_undo() if back else workspace.preview_redo()
        lines = _turn_lines(workspace, plan, before, later, back=back)
        if dry_run:
            if app.json:
                app.document({"plan": documents.plan(plan), "restored": None})
            else:
                streams.answer("\n".join(lines))
            return Exit.DONE
        if plan:
            if app.json or not streams.can_ask():
                raise Refused(
                    f"needs confirmation: {lines[0][0].lower()}{lines[0][1:]} {_in_short(plan)}",
                    hint=_turn_choices(back=back),
                )
            streams.notes(lines)
            app.confirm("Undo it?" if back else "Redo it?", yes=False)
    with progress.shown() as shown:
        done = (workspace.undo if back else workspace.redo)(plan, touch=touch, progress=shown)
    if app.json:
        app.document({"restored": documents.restored(done)})
    else:
        verb, other = ("Undid", "redo") if back else ("Redid", "undo")
        show_restored(app, done, f"{verb} the {_turned(workspace, done)}", next_step=f"{other} with: {typed(other)}")
    return Exit.DONE if done.ok else Exit.INCOMPLETE


def _turn_lines(workspace: Workspace, plan: Plan, before: Checkpoint, later: int, *, back: bool) -> list[str]:
    what, verb = ("last", "Undoing") if back else ("undone", "Redoing")
    restore = f"The {what} {_turned(workspace, plan)}"
    since = f"; {render.count(later, 'checkpoint')} {'was' if later == 1 else 'were'} saved since" if later else ""
    rest = plan_lines(plan, workspace.path, sys.stderr)[1:]
    end = f"{verb} it would:" if rest else f"{verb} it would change nothing."
    return [f"{restore} was {render.ago(before.timestamp)}{since}. {end}", *rest]


def _in_short(plan: Plan) -> str:
    parts = [("bring back", plan.written), ("replace", plan.replaced), ("remove", plan.removed)]
    said = [f"{verb} {render.count(len(paths), 'path')}" for verb, paths in parts if paths]
    return ", ".join(said) or "set back times"


def _turn_choices(*, back: bool) -> str:
    verb, other = ("undo", "redo") if back else ("redo", "undo")
    choices = [f"To {verb} it: {typed(verb, '--yes')} (reversed by {typed(other)})"]
    choices.append(f"to list the paths: {typed(verb, '--dry-run')}")
    if back:
        choices.append(f"to go back to the last checkpoint: {typed('restore', 'latest')}")
        choices.append(f"to take back what an agent did: {typed('undo', '--agent')}")
    return "; ".join(choices) + "."


def _turned(workspace: Workspace, done: Restored | Plan) -> str:
    """Return which restore was undone or redone, as far as that is still known."""
    operation = _operation(workspace, done.checkpoint)
    while operation is not None and operation.verb != "restore":
        operation = _operation(workspace, operation.target)
    if operation is None:
        return "restore"
    made = _operation(workspace, operation.target)
    if made is not None and made.verb == "without":  # a tree that was made for it, and is nowhere listed
        return f"undo of an agent's work since {short(made.target)}"
    if made is not None and made.verb == "revert":
        return f"revert of changes since {short(made.target)}"
    return f"restore to {short(operation.target)}"


def _operation(workspace: Workspace, checkpoint_id: str) -> Operation | None:
    try:
        return workspace.get(checkpoint_id).operation
    except HoldfastError:
        return None


def show_restored(app: App, done: Restored, what: str, *, next_step: str, is_first: bool = False) -> None:
    """Print what was done, then what was not. `is_first`: the first restore in a store says where its state is."""
    parts = [f"{len(done.written):,} written", f"{len(done.removed):,} removed"]
    if done.failed:
        parts.append(render.paint(f"{len(done.failed):,} failed", "red"))
    if done.conflicts:
        parts.append(render.paint(render.count(len(done.conflicts), "conflict"), "red"))
    streams.answer(f"{what}: {', '.join(parts)}; {next_step}")
    render.note_list(done.failed, "could not be restored", noun="path")
    render.note_list(done.missing, "missing, and not in the checkpoint either", noun="path")
    render.note_list(done.kept, "left alone", noun="path")
    render.note_list(_overlaps(done.conflicts), "changed by others since, and left as they are", noun="path")
    if done.stale_outputs:
        some = ", ".join(map(render.escape, done.stale_outputs[:_OUTPUTS_SHOWN]))
        more = ", …" if len(done.stale_outputs) > _OUTPUTS_SHOWN else ""
        streams.note(
            f"Possibly outdated, built after what was replaced: {some}{more}. Build again, or restore with --touch."
        )
    if done.state and (is_first or streams.settings.verbose):
        first, *others = sorted(done.state)
        beside = f" (also: {', '.join(map(render.escape, others))})" if others else ""
        streams.note(
            f"Show the saved state with: {app.typed('show', short(done.checkpoint), '--state', first)}{beside}"
        )


def find_conversation(checkpoint: Checkpoint) -> SavedConversation:
    """Find the conversation before anything is changed: without it nothing is restored."""
    from holdfast.adapters.agents.conversation import read_conversation

    return read_conversation(checkpoint.id, checkpoint.state)


def bring_conversation(kept: SavedConversation | None, app: App) -> RestoredConversation | None:
    """Write it as a new conversation, where one was asked for."""
    if kept is None:
        return None
    from uuid import uuid4

    from holdfast.adapters.agents.conversation import restore_conversation
    from holdfast.cli.install_output import places

    return restore_conversation(kept, places(app), new_session=str(uuid4()))


def conversation_document(said: RestoredConversation | None) -> dict[str, Any]:
    """What `--json` has of it."""
    if said is None:
        return {}
    from dataclasses import asdict  # start-up cost: most restores bring no conversation

    return {"conversation": asdict(said)}


def show_conversation(said: RestoredConversation | None) -> None:
    """Tell where it is, and how to go on with it."""
    if said is None:
        return
    if not said.is_new:
        streams.answer("The conversation is unchanged: there are no newer messages.")
    else:
        streams.answer(f"The conversation is in {render.escape(said.path)}; the current one is untouched.")
    if said.resume:
        streams.answer(f"Resume with: {render.escape(said.resume)}")
    else:
        streams.note(f"{said.agent} cannot resume from it; it can only be read.")
