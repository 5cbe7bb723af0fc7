"""`holdfast workspaces`."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from holdfast.cli import render, streams, values
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.cli.exit_codes import Exit
from holdfast.errors import Conflict, NotFound
from holdfast.location import Column
from holdfast.workspace.stores import KEPT_FOR, StoreInfo, list_stores, remove_gone

_COLUMNS = (
    Column("folder"),
    Column(""),
    Column("checkpoints", "count"),
    Column("size", "bytes"),
    Column("last save", "time"),
    Column("last use", "time"),
)


@command()
@click.argument("named", nargs=-1, metavar="[FOLDER]...")
@click.option("--remove-gone", "removes", is_flag=True, help="Delete the stores of folders that are gone, for good.")
@click.option("--dry-run", is_flag=True, help="With --remove-gone: only show what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_app
def workspaces(app: App, *, named: tuple[str, ...], removes: bool, dry_run: bool, yes: bool) -> int:
    """List every folder that has checkpoints on this computer.

    To restore a folder that is gone: `holdfast -C PATH restore latest`. PATH can be just its name. --remove-gone
    shows what it will delete and asks, since that cannot be undone: a folder may be gone because its disk is not
    mounted. Stores used in the last 14 days stay, unless you name their FOLDER, by its path or its name.

    \b
    holdfast workspaces
    holdfast workspaces --remove-gone
    holdfast workspaces --remove-gone ~/old-project
    """
    found = list_stores(os.environ)
    if removes:
        gone = [each for each in found if each.is_gone]
        now = datetime.now(UTC)
        chosen = _named(gone, named) if named else [each for each in gone if each.is_unused(now)]
        return _remove(app, chosen, len(gone) - len(chosen) if not named else 0, dry_run=dry_run, yes=yes)
    if dry_run or yes or named:
        raise click.UsageError("FOLDER, --dry-run and --yes go with --remove-gone")
    if app.json:
        app.items(map(StoreInfo.document, found), store_bytes=sum(each.store_bytes for each in found))
        return Exit.DONE
    values.table(_COLUMNS, [_row(each) for each in found])
    if not found:
        streams.note("No folder has checkpoints yet.")
    gone = [each for each in found if each.is_gone]
    if found:
        total = render.size(sum(each.store_bytes for each in found))
        streams.note(f"{render.count(len(found), 'folder')}, {total} in all.")
    if gone:
        example = App(gone[0].folder).typed("restore", "latest")
        streams.note(
            f"{len(gone):,} gone. Bring one back: {example}   Delete their stores: holdfast workspaces --remove-gone"
        )
    return Exit.DONE


def _named(gone: list[StoreInfo], named: tuple[str, ...]) -> list[StoreInfo]:
    """The stores of the folders that were named. NotFound if one of these is not the folder of a store, or not gone."""
    found = []
    for word in named:
        these = [each for each in gone if word == each.name or os.path.abspath(word) == each.folder]
        if not these:
            raise NotFound(f"no deleted folder is named {word}", hint="See: holdfast workspaces")
        if len(these) > 1:
            raise Conflict(f"{len(these)} folders that are gone are named {word}", hint="Give the path.")
        found += these
    return list(dict.fromkeys(found))


def _remove(app: App, gone: list[StoreInfo], kept: int, *, dry_run: bool, yes: bool) -> int:
    """Remove stores, after asking. `kept`: how many others are too recent to be removed without being named."""
    total = sum(each.store_bytes for each in gone)
    plan = {"removed": [each.document() for each in gone], "bytes_freed": total, "kept": kept}
    if kept and not app.json:
        again = app.typed("workspaces", "--remove-gone", "FOLDER")
        recent = f"{render.count(kept, 'store')} used in the last {KEPT_FOR.days} days"
        streams.note(f"Kept: {recent}. To delete one, name its folder: {again}")
    if dry_run or not gone:
        if app.json:
            app.document({"plan": plan, "result": None})
        elif gone:
            _show(gone, total, streams.answer)  # of a dry run, the plan is the answer
        else:
            streams.note("Nothing to delete." if kept else "Nothing to delete: every folder is there.")
        return Exit.DONE
    if not app.json:
        _show(gone, total, streams.note)
    app.confirm("Delete these checkpoints for good?", yes=yes)
    done = remove_gone(gone, os.environ)
    if app.json:
        result = {"removed": [each.document() for each in done.removed], "bytes_freed": done.bytes_freed}
        app.document({"plan": plan, "result": result | {"failed": done.failed}})
    else:
        what = render.count(len(done.removed), "store")
        streams.answer(f"Deleted {what}, {render.size(done.bytes_freed)} freed")
        render.note_list(done.failed, "not deleted", noun="store")
    return Exit.INCOMPLETE if done.failed else Exit.DONE


def _show(gone: list[StoreInfo], total: int, tell: Callable[[str], None]) -> None:
    tell(f"Would delete {render.count(len(gone), 'store')} and free {render.size(total)}:")
    for each in gone:
        saves = render.count(each.checkpoints, "checkpoint")
        last = f", last save {values.cell(each.last_save, 'time')}" if each.last_save else ""
        tell(f"    {render.escape(each.folder)}  ({saves}, {render.size(each.store_bytes)}{last})")
    streams.note("This cannot be undone. Mount missing disks first. If a folder was moved, save in its new place.")


def _row(each: StoreInfo) -> tuple[Any, ...]:
    state = "gone" if each.is_gone else f"now {each.moved_to}" if each.moved_to else ""
    return each.folder, state, each.checkpoints, each.store_bytes, each.last_save, each.last_use
