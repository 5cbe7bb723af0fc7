"""The click command of everything that works on any location: `log`, `show`, `diff`, `verify`, `usage`, `prune`, `rm`,
`pin`.

Which options it has depends on the kind of the location that its words name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.cli.command import AFTER_DASHES, Command, complete_by_name
from holdfast.cli.context import App
from holdfast.errors import HoldfastError, NotFound, Refused
from holdfast.location import FOLDER, KINDS, Capability, LocationKind, Option, is_url, kind_of

_KIND = "holdfast.kind"
_PATHS = ("/", "./", "../", "~/")
_WORDS = {
    Capability.LIST: "log", Capability.GET: "show", Capability.DIFF: "diff", Capability.VERIFY: "verify",
    Capability.USAGE: "usage", Capability.PRUNE: "prune", Capability.DELETE: "rm", Capability.PIN: "pin",
}  # fmt: skip
_MISSING = "missing argument 'REF': no checkpoint is given"
_COUNT = re.compile(r"-[0-9]+")


def location_command(
    capability: Capability, *, refs: tuple[int, int | None], **attributes: Any
) -> Callable[[Callable[..., Any]], LocationCommand]:
    """Make a function a command on locations. It is given `words` and `options`.

    capability: what the location must be able to do. refs: how many references to checkpoints it takes, at least and
    at most; a LOCATION may come before them.
    """
    return click.command(cls=LocationCommand, capability=capability, refs=refs, **attributes)


class LocationCommand(Command):
    """Has the options of the kind of its location."""

    def __init__(
        self,
        *args: Any,
        capability: Capability,
        refs: tuple[int, int | None],
        takes_paths: bool = False,
        takes_count: bool = False,
        **attributes: Any,
    ) -> None:
        """takes_count: `-5` is `-n 5`, as in git."""
        super().__init__(*args, **attributes)
        self._takes_count = takes_count
        self._takes_paths = takes_paths
        self.capability = capability
        self._refs = refs

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its parameters, with the options of the kind before `--json` and `--help`."""
        found = super().get_params(ctx)
        own = [_click_option(each) for each in self.options_of(ctx.meta.get(_KIND) or FOLDER)]
        if ctx.resilient_parsing:
            for each in own:
                complete_by_name(each)
        at = next(at for at, each in enumerate(found) if each.name == "json")
        return [*found[:at], *own, *found[at:]]

    def options_of(self, kind: LocationKind) -> list[Option]:
        """The options that a kind has for this command."""
        return [each for each in kind.load().options if self.capability in each.of]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_KIND] = self._guess(ctx, args)
        if self._takes_count:
            args = self._with_count(ctx, args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise self._explained(ctx, error) from None
        except click.MissingParameter:
            raise click.UsageError(_MISSING, ctx) from None

    def _with_count(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Write `-5` as `-n5`, unless it is the value of an option or comes after `--`."""
        with_value = [name for each in self.get_params(ctx) if _has_value(each) for name in each.opts]
        found = [*args]
        for at, word in enumerate(args[: args.index("--")] if "--" in args else args):
            if _COUNT.fullmatch(word) and (at == 0 or args[at - 1] not in with_value):
                found[at] = f"-n{word[1:]}"
        return found

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Say where the options of other kinds are, which are not listed for a folder."""
        if ctx.meta.get(_KIND) in (None, FOLDER):
            with formatter.indentation():
                formatter.write_paragraph()
                text = "LOCATION is a folder, or a URL such as sqlite:///state.db or s3://bucket/run. Its options:"
                formatter.write_text(f"{text} holdfast {self.name} LOCATION --help")

    def format_kind(self, kind: LocationKind, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that only one kind has, for the reference."""
        if own := [_click_option(each).get_help_record(ctx) for each in self.options_of(kind)]:
            with formatter.section(f"Options for {kind.title}, such as {kind.example}"):
                formatter.write_dl([each for each in own if each])

    def invoke(self, ctx: click.Context) -> Any:
        """Tell the location from the references, and run the command with both."""
        app = ctx.ensure_object(App)
        words: list[str] = []
        for param in self.params:
            if isinstance(param, click.Argument):
                value = ctx.params.pop(param.name or "")
                words += [value] if isinstance(value, str) else value or []
        words = self._locate(ctx, app, words)
        options = {each.name: ctx.params.pop(_python_name(each), None) for each in self.options_of(ctx.meta[_KIND])}
        given = {name: value for name, value in options.items() if value not in (None, False)}
        paths = ctx.meta.get(AFTER_DASHES)
        if paths or (paths is not None and self._takes_paths and ctx.meta[_KIND] == FOLDER):
            given["paths"] = paths  # also an empty list: the dashes say that no word before them is a path
        self._check(ctx, app, given)
        ctx.params |= {"words": words, "options": given}
        return super().invoke(ctx)

    # which words name the location

    def _guess(self, ctx: click.Context, args: Sequence[str]) -> LocationKind:
        """The kind that the words seem to name, before they are parsed."""
        app = ctx.ensure_object(App)
        named = [word for word in args if not word.startswith("-") and self._is_location(app, word)]
        address = named[0] if named else app.directory or "."
        try:
            return kind_of(os.path.expanduser(address) if not is_url(address) else address)
        except HoldfastError:
            return FOLDER

    def _is_location(self, app: App, word: str) -> bool:
        if is_url(word):
            return True
        folder = os.path.expanduser(word)
        if app.directory or not os.path.isdir(folder):
            return False
        if self._takes_paths and _is_inside(app, folder):
            return False  # a path of the workspace that one is in
        return self._refs == (0, 0) or word in (".", "..") or word.startswith(_PATHS)

    def _locate(self, ctx: click.Context, app: App, words: list[str]) -> list[str]:
        """Take the location from the front of the words; what is left are references."""
        first = words[0] if words else ""
        if words and (is_url(first) or self._is_location(app, first)):
            if app.directory:
                raise click.UsageError("the location is named twice: with -C, and after the command", ctx)
            if is_url(first):
                app.url = first
            else:
                app.directory = os.path.expanduser(first)
            words = words[1:]
        elif words and self._refs == (0, 0) and not (self._takes_paths and _is_workspace(app)):
            raise click.UsageError(_no_location(app, first), ctx)
        least, most = self._refs
        is_other = app.url is not None or (self._takes_paths and app.kind() != FOLDER)
        if most is not None and len(words) > most and (is_other or not self._takes_paths):
            raise click.UsageError(f"got unexpected extra argument ({words[most]})", ctx)
        if len(words) < least:
            raise click.UsageError(_MISSING, ctx)
        return words

    # what does not fit together

    def _check(self, ctx: click.Context, app: App, given: dict[str, Any]) -> None:
        kind = app.kind()
        if app.store and kind != FOLDER:
            raise click.UsageError(f"--store is for folders, not for {kind.title}", ctx)
        takes = {each.name for each in self.options_of(kind)} | ({"paths"} if kind == FOLDER else set())
        for name in given.keys() - takes:
            what = "paths after --" if name == "paths" else f"--{name}"
            raise click.UsageError(f"{what} is not for {kind.title}", ctx)
        can = kind.load().capabilities
        if self.capability not in can:
            words = ", ".join(word for capability, word in _WORDS.items() if capability in can)
            raise Refused(f"{self.name} is not possible for {kind.title}", hint=f"Possible are: {words}.")

    def _explained(self, ctx: click.Context, error: click.NoSuchOption) -> click.UsageError:
        """Say which kind of location has an option that this one does not."""
        name = error.option_name.lstrip("-")
        for kind in KINDS:
            try:
                if any(each.name == name for each in self.options_of(kind)):
                    return click.UsageError(f"--{name} is for {kind.title}, such as {kind.example}", ctx)
            except HoldfastError:  # a package that it needs is not installed
                continue
        return error


def _has_value(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and not param.is_flag


def _is_workspace(app: App) -> bool:
    """Whether the command is about a folder that has a store: its words are paths of it then."""
    try:
        return app.kind() == FOLDER and bool(app.open(scans=False))
    except NotFound:
        return False


def _is_inside(app: App, folder: str) -> bool:
    """Whether a folder is no location by itself, and is inside the workspace that one is in."""
    from holdfast.workspace.store_paths import owner_of, store_folder  # start-up cost, for a word that is a folder

    real = Path(os.path.realpath(folder))
    if kind_of(os.fspath(real)) != FOLDER:
        return False
    for place in (real, *real.parents):
        try:
            if owner_of(store_folder(place, store=app.store, environ=os.environ), os.environ) == os.fspath(place):
                return place != real
        except HoldfastError:
            continue
    return False


def _no_location(app: App, word: str) -> str:
    from urllib.parse import quote  # start-up cost, for errors only

    if app.directory:
        return "the location is named twice: with -C, and after the command"
    meant = f"; write sqlite:///{quote(word)}" if os.path.isfile(word) else ", such as runs/exp1 or sqlite:///state.db"
    return f"{word!r} is neither a folder nor a location URL{meant}"


def _python_name(option: Option) -> str:
    return option.name.replace("-", "_")


def _click_option(option: Option) -> click.Option:
    names = [f"--{option.name}", _python_name(option)]
    if not option.metavar:
        return click.Option(names, is_flag=True, help=option.help)
    return click.Option(names, metavar=option.metavar, help=option.help)
