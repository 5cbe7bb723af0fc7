"""`holdfast config`."""

from __future__ import annotations

import click

from holdfast.cli import render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app

_TITLES = ("key", "value", "from")


@command()
@click.option("--check", is_flag=True, help="Only check that it is valid.")
@pass_app
def config(app: App, *, check: bool) -> None:
    """Show the configuration, and where each value comes from.

    It is read from holdfast.toml in the workspace, or from [tool.holdfast] in its pyproject.toml.

    \b
    holdfast config
    holdfast config --check
    """
    from holdfast.workspace.config import in_force, read_settings

    folder = app.configured()
    settings = read_settings(folder)
    values = in_force(settings)
    if app.json:
        rows = {key: {"value": value, "from": source} for key, (value, source) in values.items()}
        app.document({"workspace": str(folder), "file": settings.file, "settings": {} if check else rows})
    elif check:
        streams.answer(f"{settings.file} is valid" if settings.file else "No configuration file; the defaults apply")
    else:
        render.table(_TITLES, [(key, _shown(value), source) for key, (value, source) in values.items()])


def _shown(value: object) -> str:
    if isinstance(value, list):
        return render.escape(", ".join(value)) or "-"
    if isinstance(value, bool):
        return str(value).lower()  # as it is written in the file
    return "-" if value is None else render.escape(str(value))
