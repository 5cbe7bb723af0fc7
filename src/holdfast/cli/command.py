"""The click command that every command of Holdfast is: takes `--json` also after its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from holdfast.cli.app import App


class Command(click.Command):
    """Adds `--json`, and, on request, keeps what follows `--` apart: `ctx.meta[PATHS]`."""

    def __init__(self, *args: Any, paths_after_dashes: bool = False, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._paths_after_dashes = paths_after_dashes
        self.params.append(
            click.Option(
                ["--json"], is_flag=True, expose_value=False, callback=_set_json, help="Print one JSON document."
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self._paths_after_dashes and "--" in args:
            at = args.index("--")
            ctx.meta[PATHS] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


PATHS = "holdfast.paths"


def command(**attributes: Any) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command; its docstring is its help."""
    return click.command(cls=Command, **attributes)


def _set_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(App).json = True
