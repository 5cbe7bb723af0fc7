"""`holdfast usage`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from holdfast.cli import documents, locations, output, render
from holdfast.cli.app import App, pass_app, typed
from holdfast.cli.command import command
from holdfast.cli.listing import message
from holdfast.model import CheckpointUsage, Usage
from holdfast.retention import Policy, told

_CHECKPOINTS = ("checkpoint", "only it", "with others", "message")
_TYPES = ("type", "checkpoints", "only they", "kept")
_PATHS = ("path", "size", "contents")


@command()
@click.argument("location", required=False)
@click.option(
    "-n", "--limit", type=click.IntRange(min=0), metavar="N", default=10, show_default=True, help="How many of each."
)
@click.option("--session", metavar="ID", help="With a location: only that session.")
@locations.option_tenant
@pass_app
def usage(app: App, /, *, location: str | None, limit: int, **flow: Any) -> None:
    """Show what takes space in the store.

    The largest checkpoints and paths come first. Deleting a checkpoint frees what "only it" needs, not what it shares
    "with others". Every folder of every checkpoint is read: some seconds where there are thousands.

    With a flow LOCATION it shows what each session takes.
    """
    locations.check_location(location)
    if place := locations.asked(app, location, flow, not_here={}):
        from holdfast.cli.flow.usage import usage as usage_location

        usage_location(app, place, limit)
        return
    locations.check_words(None, flow["session"])
    _usage_of_workspace(app, limit)


def _usage_of_workspace(app: App, limit: int) -> None:
    workspace = app.open()
    found = workspace.usage(paths=limit)
    types = _types(found, workspace.kind_rules())
    largest = sorted(found.checkpoints, key=lambda each: (-each.own_bytes, -each.checkpoint.sequence))[:limit]
    if app.json:
        app.document(_document(found, largest) | {"types": types})
        return
    unneeded = f"{render.size(found.unneeded_bytes)}; free it with: {typed('compact')}" if found.unneeded_bytes else ""
    pairs = [
        ("store", render.size(found.total_bytes)),
        ("packs", render.size(found.packs_bytes)),
        ("catalog", f"{render.size(found.catalog_bytes)}, with the scan cache; made again when removed"),
        ("other", render.size(found.other_bytes)),
        ("unneeded", unneeded),
    ]
    output.answer(render.fields(pairs))
    if largest:
        output.answer()
        render.table(_CHECKPOINTS, [_row(each) for each in largest])
    if types:
        output.answer()
        render.table(_TYPES, [_type_row(each) for each in types])
    if found.paths:
        output.answer()
        render.table(_PATHS, [(render.escape(p.path), render.size(p.bytes), f"{p.contents:,}") for p in found.paths])
    if found.more_paths:
        output.note(f"There are {found.more_paths:,} more paths: {typed('usage', '-n', str(2 * max(limit, 1)))}")


def _types(found: Usage, rules: Mapping[str, Policy | None]) -> list[dict[str, Any]]:
    """How many checkpoints there are of each type that has a rule, what they cost one by one, and the rule."""
    types = []
    for kind, rule in rules.items():
        of_kind = [each for each in found.checkpoints if each.checkpoint.metadata.get("type") == kind]
        own = sum(each.own_bytes for each in of_kind)
        types.append({"type": kind, "checkpoints": len(of_kind), "own_bytes": own, "kept": told(rule)})
    return types


def _type_row(entry: dict[str, Any]) -> tuple[str, ...]:
    size = render.size(entry["own_bytes"])
    return render.escape(entry["type"]), f"{entry['checkpoints']:,}", size, render.escape(entry["kept"])


def _row(entry: CheckpointUsage) -> tuple[str, ...]:
    sizes = (render.size(entry.own_bytes), render.size(entry.shared_bytes))
    return (documents.short(entry.checkpoint.id), *sizes, message(entry.checkpoint))


def _document(found: Usage, largest: list[CheckpointUsage]) -> dict[str, Any]:
    checkpoints = [
        {"id": each.checkpoint.id, "own_bytes": each.own_bytes, "shared_bytes": each.shared_bytes} for each in largest
    ]
    return {
        "total_bytes": found.total_bytes,
        "packs_bytes": found.packs_bytes,
        "catalog_bytes": found.catalog_bytes,
        "other_bytes": found.other_bytes,
        "unneeded_bytes": found.unneeded_bytes,
        "checkpoints": checkpoints,
        "more_checkpoints": len(found.checkpoints) - len(largest),
        "paths": [asdict(each) for each in found.paths],
        "more_paths": found.more_paths,
    }
