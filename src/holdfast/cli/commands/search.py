"""`holdfast search`."""

from __future__ import annotations

import click

from holdfast.cli import progress, render, streams
from holdfast.cli.command import AFTER_DASHES, Count, command
from holdfast.cli.context import App, pass_app, typed
from holdfast.cli.exit_codes import Exit
from holdfast.errors import NotFound
from holdfast.model import Checkpoint, Match, documents
from holdfast.model.documents import short
from holdfast.workspace.location import message


@command(after_dashes="[-- PATHS...]")
@click.argument("text", required=False)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-E", "--regex", is_flag=True, help="TEXT is a regular expression.")
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore case.")
@click.option(
    "-n",
    "--limit",
    type=Count(min=1),
    metavar="N",
    default=100,
    help="Show at most N matches.",
    show_default=True,
)
@click.option("--skip-damaged", is_flag=True, help="If stored data is damaged, search what is intact.")
@pass_app
@click.pass_context
def search(
    ctx: click.Context,
    app: App,
    *,
    text: str | None,
    paths: tuple[str, ...],
    regex: bool,
    ignore_case: bool,
    limit: int,
    skip_damaged: bool,
) -> int:
    """Find when a text was added and when it was removed.

    Searches every checkpoint, including those saved before restores, and tells whether the folder still has the text.
    Skips binary files. Exits with 1 if nothing is found. Put -- before a TEXT that begins with a dash.

    \b
    holdfast search TODO
    holdfast search "two words" src/
    holdfast search -E 'sk-[a-z0-9]+' src/ '*.env'
    holdfast search -- --verbose
    """
    after = [*ctx.meta.get(AFTER_DASHES, ())]
    if text is None and not after:
        raise click.UsageError("missing argument 'TEXT'", ctx)
    if text is None:
        text, *after = after
    named = [*paths, *after]
    workspace = app.open()
    try:
        with progress.shown() as shown:
            found = workspace.search(
                text,
                regex=regex,
                ignore_case=ignore_case,
                paths=app.paths(workspace, named),
                limit=limit + 1,
                skip_damaged=skip_damaged,
                progress=shown,
            )
    except NotFound as error:
        if not paths:
            raise
        quoted = typed("search", " ".join([text, *paths]))
        raise NotFound(error.message, hint=f"Check its spelling. If it is part of the text: {quoted}") from None
    matches, more = found[:limit], len(found) > limit
    if app.json:
        app.items(map(documents.match, matches), more=more)
        return Exit.DONE if matches else Exit.NO_MATCH
    for each, following in zip(matches, [*found[1:], None], strict=False):
        _print(each, is_last=following is None or following.path != each.path)
    if not matches:
        streams.note(f"No checkpoint contains '{render.escape(text)}'.")
    if more:
        flags = {"-E": regex, "-i": ignore_case, "--skip-damaged": skip_damaged}
        same = [*(flag for flag, is_set in flags.items() if is_set), "-n", str(2 * limit)]
        words = ["--", text, *named] if text.startswith("-") else [text, *(["--", *named] if named else [])]
        streams.note(f"There are more: {typed('search', *same, *words)}")
    return Exit.DONE if matches else Exit.NO_MATCH


def _print(match: Match, *, is_last: bool) -> None:
    """Print when a text came and went; `is_last`: the path has it at no later time, so it says what the folder has."""
    where = f"{render.escape(match.path)}:{match.line}"
    streams.answer(f"{render.paint(where, 'cyan')}: {render.escape(match.excerpt)}")
    if match.first.operation is not None:
        lines = [f"    only in {_who(each)}" for each in {each.id: each for each in (match.first, match.last)}.values()]
    elif match.disappeared_in is None:
        lines = [f"    since   {_who(match.first)}"]
    else:
        lines = [
            f"    since   {_who(match.first)}",
            f"    until   {_who(match.last)}",
            f"    gone in {_who(match.disappeared_in)}",
        ]
    if is_last and match.disappeared_in is not None and match.in_folder:
        lines.append("    again in the folder now")
    if is_last and lines[0].startswith("    since") and match.disappeared_in is None and match.in_folder is False:
        lines.append("    no longer in the folder; not saved yet")
    streams.answer("\n".join(lines))


def _who(checkpoint: Checkpoint) -> str:
    by = render.escape(" ".join(filter(None, (checkpoint.actor, checkpoint.session))))
    words = [short(checkpoint.id), render.local(checkpoint.timestamp), by, render.first_line(message(checkpoint))]
    return "  ".join(filter(None, words))
