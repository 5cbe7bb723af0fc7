"""The reference of the command line, made of what `--help` says: `python -m holdfast.cli.reference > docs/cli.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from holdfast.cli import streams
from holdfast.cli.group import COMMANDS, group
from holdfast.cli.location_command import LocationCommand
from holdfast.location import FOLDER, KINDS

_WIDTH = 100
_HEAD = """\
# Commands

What `--help` says of each command. What holds for all of them is in [the command line](command-line.md). This page is
made by `python -m holdfast.cli.reference`.
"""


def reference() -> str:
    """The page, in Markdown."""
    root = _context(group, "holdfast", None)
    parts = [_HEAD, _section("holdfast", group, root)]
    for name in COMMANDS:
        command = group.get_command(root, name)
        if command is not None:
            parts += _sections(f"holdfast {name}", command, _context(command, name, root))
    return "\n".join(parts)


def _sections(title: str, command: click.Command, context: click.Context) -> Iterator[str]:
    """A command, and what is below it."""
    yield _section(title, command, context)
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _sections(f"{title} {name}", each, _context(each, name, context))


def _section(title: str, command: click.Command, context: click.Context) -> str:
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    if isinstance(command, LocationCommand):
        formatter = context.make_formatter()
        for kind in KINDS:
            if kind != FOLDER:
                command.format_kind(kind, context, formatter)
        lines += [line.rstrip() for line in formatter.getvalue().splitlines()]
    return "\n".join((f"## {title}", "", "```text", *lines, "```", ""))


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    settings: dict[str, Any] = {**command.context_settings, "terminal_width": _WIDTH, "max_content_width": _WIDTH}
    return click.Context(command, info_name=name, parent=parent, **settings)


if __name__ == "__main__":
    streams.answer(reference().rstrip("\n"))
