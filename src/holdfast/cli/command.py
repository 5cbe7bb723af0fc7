"""The click command that every command of Holdfast is: takes `--json` also after its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import streams
from holdfast.cli.context import App
from holdfast.cli.exit_codes import Exit
from holdfast.cli.kinds import of_word

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_OF_FOLDERS = frozenset(["restore", "blame", "notes", "why", "export", "fork", "adopt", "purge", "init", "where"])
"""Those whose words are checkpoints and paths; a text, such as a message, may well be a URL."""


_PAGED = frozenset(
    ["log", "show", "diff", "blame", "notes", "search", "usage", "why", "config", "status", "workspaces", "cat"]
)
"""Those whose answer may be long."""


_NOT_EMPTY = frozenset(["NAME", "PATH", "PLACE", "FILE", "REF"])
"""What an empty variable cannot mean."""


_ELSEWHERE = {
    ("log", "--oneline"): "holdfast log --flat", ("log", "-p"): "holdfast diff A B",
    ("log", "--patch"): "holdfast diff A B",
    ("log", "--author"): "holdfast log --actor ACTOR", ("log", "--after"): "holdfast log --since TIME",
    ("show", "--stat"): "holdfast show", ("show", "-p"): "holdfast diff A B",
    ("diff", "--cached"): "holdfast diff", ("diff", "--staged"): "holdfast diff",
    ("diff", "--name-status"): "holdfast diff --stat",
    ("log", "--graph"): "holdfast log", ("log", "--name-status"): "holdfast log --stat",
    ("save", "-a"): "holdfast save, which saves every file", ("save", "--all"): "holdfast save, which saves every file",
    ("save", "--amend"): "holdfast save, which makes a new checkpoint",
    ("restore", "--source"): "holdfast restore REF PATH", ("restore", "-s"): "holdfast restore REF PATH",
    ("restore", "--staged"): "holdfast restore REF PATH", ("restore", "--worktree"): "holdfast restore REF PATH",
    ("restore", "--hard"): "holdfast restore REF", ("status", "-s"): "holdfast status",
    ("restore", "-n"): "holdfast restore --dry-run", ("save", "-n"): "holdfast status",
    ("log", "-S"): "holdfast search TEXT", ("log", "-G"): "holdfast search -E TEXT",
    ("log", "-L"): "holdfast blame PATH", ("log", "--follow"): "holdfast log PATH",
    ("log", "--max-count"): "holdfast log -n N", ("log", "--reverse"): "holdfast log",
    ("status", "--porcelain"): "holdfast status --json", ("group", "-v"): "holdfast --version",
    ("group", "-V"): "holdfast --version", ("undo", "-n"): "holdfast undo --dry-run",
    ("status", "--short"): "holdfast status", ("blame", "-L"): "holdfast blame PATH",
    ("restore", "--force"): "holdfast restore, which does not ask",
    ("restore", "-f"): "holdfast restore, which does not ask",
    ("rm", "-f"): "holdfast rm --yes", ("rm", "--force"): "holdfast rm --yes", ("rm", "-r"): "holdfast rm",
    ("prune", "-f"): "holdfast prune --yes", ("prune", "--force"): "holdfast prune --yes",
    ("prune", "-n"): "holdfast prune --dry-run", ("purge", "-n"): "holdfast purge --dry-run",
    ("search", "-r"): "holdfast search TEXT", ("search", "-R"): "holdfast search TEXT",
    ("search", "-F"): "holdfast search TEXT", ("search", "-e"): "holdfast search -- TEXT",
    ("search", "-v"): "holdfast search -- -v", ("restore", "-i"): "holdfast restore -p",
}  # fmt: skip
"""Options of git's, and what to type here."""


class Count(click.IntRange):
    """A whole number within limits, which the help does not repeat (click writes `x>=0`)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = int(click.INT.convert(value, param, ctx))
        if self.min is not None and number < self.min:
            self.fail(f"{number} is less than {int(self.min)}", param, ctx)
        if self.max is not None and number > self.max:
            self.fail(f"{number} is more than {int(self.max)}", param, ctx)
        return number

    def _describe_range(self) -> str:
        return ""


class Number(click.FloatRange):
    """A number within limits, which the help does not repeat."""

    def _describe_range(self) -> str:
        return ""


class Command(click.Command):
    """Adds `--json`, and, where its usage names something after `--`, keeps that apart: `ctx.meta[AFTER_DASHES]`."""

    def __init__(self, *args: Any, after_dashes: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._after_dashes = after_dashes
        self.params.append(json_option())
        self.params += output_options(hidden=True)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its parameters; while a shell completes a word, those that complete by their names do so."""
        found = super().get_params(ctx)
        if ctx.resilient_parsing:
            for param in found:
                complete_by_name(param)
        return found

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The words of its usage, with what comes after the dashes."""
        return [*super().collect_usage_pieces(ctx), *filter(None, [self._after_dashes])]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        parse = super().parse_args
        if not self._after_dashes:
            return with_context(ctx, lambda: parse(ctx, args))
        if "--" in args:
            at = args.index("--")
            ctx.meta[AFTER_DASHES] = args[at + 1 :]
            return with_context(ctx, lambda: parse(ctx, args[:at]))
        try:
            return with_context(ctx, lambda: parse(ctx, args))
        except click.UsageError as error:
            raise self._dashes_forgotten(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; a usage error if a name or a place is empty, or if it is for folders and the argument is another
        location."""
        for param in self.params:
            is_named = isinstance(param, click.Option) and param.metavar in _NOT_EMPTY
            if is_named and ctx.params.get(param.name or "") == "":
                raise click.UsageError(f"{param.opts[-1]} is empty", ctx)
        if self.name in _OF_FOLDERS:
            for param in self.params:
                value = ctx.params.get(param.name or "") if isinstance(param, click.Argument) else None
                for word in (value,) if isinstance(value, str) else value or ():
                    if isinstance(word, str) and (known := of_word(word)):
                        raise click.UsageError(f"{known[0]}, and {self.name} is for folders. {known[1]}", ctx)
        if self.name not in _PAGED:
            return super().invoke(ctx)
        with streams.paged():
            return super().invoke(ctx)

    def _dashes_forgotten(self, error: click.UsageError) -> click.UsageError:
        """Say what comes after the dashes, in case they were forgotten."""
        if self._after_dashes.startswith("[") or isinstance(error, click.MissingParameter):
            return error
        return click.UsageError("no command is given; put it after --", error.ctx)


class CommandGroup(click.Group):
    """Prints its help where no command is named, as `holdfast` itself does; lists its commands in their order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            streams.note(ctx.get_help())
            ctx.exit(Exit.USAGE)
        return with_context(ctx, lambda: super(CommandGroup, self).parse_args(ctx, args))


AFTER_DASHES = "holdfast.after_dashes"


def with_context(ctx: click.Context, parse: Callable[[], list[str]]) -> list[str]:
    """Parse; a usage error names this command, also where click does not, and what an option of git's is here."""
    try:
        return parse()
    except click.NoSuchOption as error:
        ours = _ELSEWHERE.get((ctx.command.name or "", error.option_name))
        if ours is not None:
            raise click.UsageError(f"no such option {error.option_name!r}; use: {ours}", ctx) from None
        error.ctx = error.ctx or ctx
        raise
    except click.UsageError as error:
        error.ctx = error.ctx or ctx
        raise


def json_option() -> click.Option:
    """The option `--json` of a command."""
    return click.Option(
        ["--json"], is_flag=True, expose_value=False, callback=_set_json, help="Print one JSON document."
    )


def output_options(*, hidden: bool = False) -> list[click.Parameter]:
    """The options on how output looks, which every command takes, before and after its name."""

    def set_colour(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            streams.settings.colour = value

    def set_pager(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            streams.settings.pager = False

    def set_verbose(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            streams.settings.verbose = True

    flag: dict[str, Any] = {"is_flag": True, "expose_value": False, "hidden": hidden}
    return [
        click.Option(
            ["--color"],
            type=click.Choice(["always", "auto", "never"]),
            expose_value=False,
            hidden=hidden,
            callback=set_colour,
            help="Use colour: always, auto (on a terminal) or never.",
        ),
        click.Option(["--no-pager"], **flag, callback=set_pager, help="Do not show long output in a pager."),
        click.Option(
            ["--verbose"],
            **flag,
            is_eager=True,  # `--version --verbose` says more
            callback=set_verbose,
            help="Repeat notes that are shown only once.",
        ),
    ]


def command(**attributes: Any) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command; its docstring is its help."""
    return click.command(cls=Command, **attributes)


def complete_by_name(param: click.Parameter) -> None:
    from holdfast.cli.completion import complete  # only while a shell completes a word

    by_itself = param.shell_complete

    def shell_complete(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = complete(ctx, param, incomplete)
        return by_itself(ctx, incomplete) if found is None else found

    param.shell_complete = shell_complete  # type: ignore[method-assign]  # click has no hook for all parameters at once


def _set_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(App).json = True
