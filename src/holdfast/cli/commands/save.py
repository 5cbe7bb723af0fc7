"""`holdfast save`."""

from __future__ import annotations

import os

import click

from holdfast.adapters.agents.ledger import tool_around
from holdfast.cli import documents, given, progress
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command
from holdfast.cli.exits import Exit
from holdfast.cli.saved import show_saved
from holdfast.model import JSON


@command()
@click.argument("text", metavar="[MESSAGE]", required=False)
@click.option("-m", "--message", metavar="MESSAGE", help="The message, as an option instead.")
@click.option("--name", metavar="NAME", help="A name to find it by.")
@click.option("--pin", is_flag=True, help="Keep it when others are pruned.")
@click.option("--session", metavar="ID", help="The session that it belongs to.")
@click.option("--actor", metavar="NAME", help="Who saved it. [default: the agent whose tool this runs in]")
@click.option("--step", type=int, metavar="N", help="The step of the session.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="Metadata, as text; may be repeated.")
@click.option("--state", multiple=True, metavar="NAME=FILE.json", help="State saved with the files (- is stdin).")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out what matches, as in .gitignore.")
@click.option("--allow-empty", is_flag=True, help="Save even if nothing changed.")
@click.option("--rehash", is_flag=True, help="Read every file again, whatever its times say.")
@pass_app
def save(
    app: App,
    *,
    text: str | None,
    message: str | None,
    name: str | None,
    pin: bool,
    session: str | None,
    actor: str | None,
    step: int | None,
    meta: tuple[str, ...],
    state: tuple[str, ...],
    exclude: tuple[str, ...],
    allow_empty: bool,
    rehash: bool,
) -> int:
    """Save a checkpoint of the folder.

    \b
    holdfast save "before the refactoring"
    holdfast save --name good --pin
    holdfast save --state conversation=messages.json --session s1 --step 3
    """
    if text is not None and message is not None:
        raise click.UsageError("the message is given twice")
    message = text or message or ""
    metadata: dict[str, JSON] = dict(given.pairs(meta, "--meta"))
    states = {key: given.json_file(file) for key, file in given.pairs(state, "--state")}
    said = bool(message or session or actor or metadata) or step is not None
    workspace = app.open(create=True, exclude=exclude)
    if actor is None and (around := tool_around(workspace.store, os.getpid())):  # an agent's own tool saves
        running, tool, others = around
        actor, session = tool.actor, session or running.session or None
        known: dict[str, JSON] = {"turn": tool.turn, "perhaps": [*others]}
        metadata = {key: value for key, value in known.items() if value} | metadata
    before = workspace.list(1, safety=True)
    with progress.shown() as shown:
        saved = workspace.save(
            message,
            state=states or None,
            session=session,
            actor=actor,
            step=step,
            metadata=metadata,
            name=name,
            pinned=pin,
            allow_empty=allow_empty,
            rehash=rehash,
            progress=shown,
        )
    new = not before or saved.sequence > before[0].sequence
    if new and (message, session, actor, step) != (saved.message, saved.session, saved.actor, saved.step):
        new = False  # another who saved meanwhile has made it, and it does not carry what was given here
    if app.json:
        app.document({"checkpoint": documents.whole_checkpoint(saved), "new": new})
    else:
        show_saved(saved, new=new, lost=said, latest=None if new else workspace.get("latest"))
    return Exit.DONE if saved.complete else Exit.INCOMPLETE
