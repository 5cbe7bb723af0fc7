"""What `holdfast log` prints, and the words of it that are understood without click, whose loading takes longer.

Only words that can mean one thing are understood here; click reads all others, and says what is wrong with them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.cli.context import App

COMPLETING = "_HOLDFAST_COMPLETE"  # set by a shell that completes a word: click answers
_TEXTS = ("--session", "--before", "--actor", "--type", "--since", "--until", "--grep")
_FLAGS = ("--all", "--flat", "--stat")
_DIGITS_MAX = 9
LIMIT = 20

_Options = dict[str, Any]


def understood(args: Sequence[str]) -> tuple[_Options, _Options] | None:
    """Return the options of the program and of `log` in `[-C PATH] [--json] log [OPTION]…`; None for other words."""
    if "log" not in args or COMPLETING in os.environ:
        return None
    of_program: _Options = {}
    of_command: _Options = {}
    is_named = False
    words = iter(args)
    for word in words:
        if word == "log" and not is_named:
            is_named = True
        elif word == "--json":
            of_program["json"] = True
        elif not (_of_command(word, words, of_command) if is_named else read_program_option(word, words, of_program)):
            return None
    return (of_program, of_command) if is_named else None


def answer(of_program: _Options, of_command: _Options) -> int:
    """List the checkpoints."""
    from holdfast.cli import streams
    from holdfast.cli.context import App  # only here: other commands do not need it yet

    app = App(**of_program)
    try:
        with streams.paged():
            log(app, **of_command)
    finally:
        app.close()
    return 0


def log(
    app: App,
    limit: int = LIMIT,
    *,
    before: str | None = None,
    words: Sequence[str] = (),
    after_dashes: Sequence[str] | None = None,
    **options: Any,
) -> None:
    """List the checkpoints of a location, newest first. With a `limit` of 0, all of them.

    words: in a folder, a range `A..B` and paths.
    """
    from holdfast.cli import streams, values  # as above

    is_folder = app.kind().name == "workspace"
    in_turns = is_folder and not (app.json or options.get("flat"))
    how = {"turns": True} if in_turns else {"grouped": True} if is_folder and app.json else {}
    with app.location(options | how, scans=False) as location:
        if words or after_dashes:
            named = _narrow(app, location, words, after_dashes)
            page = location.list(limit or None, before)
            if not (page.items or before or after_dashes):
                _check_words(app, location, named)
        else:
            page = location.list(limit or None, before)
        if app.json:
            app.items((each.document for each in page.items), page.next, **page.extra)
            return
        if in_turns:
            from holdfast.cli.turns import print_groups

            print_groups(page.groups, every_path=bool(options.get("stat")))
        elif options.get("stat"):
            from holdfast.cli.turns import print_with_changes

            print_with_changes(page)
        else:
            values.table(page.columns, [each.cells for each in page.items])
        values.notes(page.notes)
        if page.next is not None:
            from holdfast.model.documents import short

            again = _options_again(app, location, options, limit)
            again += ["--before", short(page.next) if is_folder else page.next, *words]
            again += ["--", *after_dashes] if after_dashes else []
            streams.note(f"There are more: {app.typed('log', *again)}")


def _options_again(app: App, location: Any, options: dict[str, Any], limit: int) -> list[str]:
    """The words of a command that has the same options as this one."""
    words = [app.url] if app.url else []
    for option in {each.name: each for each in location.options}.values():
        value = options.get(option.name)
        if value is not None and value is not False:
            words += [f"--{option.name}"] if value is True else [f"--{option.name}", value]
    return [*words, "-n", str(limit)] if limit != LIMIT else words


def _narrow(app: App, location: Any, words: Sequence[str], after_dashes: Sequence[str] | None) -> list[str]:
    """Have a folder list only a range, and only what changed some paths; return the paths as they were typed."""
    from holdfast.cli.words import refs_and_paths  # with click, which is loaded where there are words

    refs, paths = refs_and_paths(app, location.workspace, words, after_dashes, most=2)
    location.narrow(refs, app.paths(location.workspace, paths))
    return paths


def _check_words(app: App, location: Any, paths: Sequence[str]) -> None:
    """Raise NotFound for a word that is neither a checkpoint nor a path; for a path that nothing changed, do not."""
    from holdfast.cli.words import unknown_word  # as above
    from holdfast.errors import NotFound

    nothing = NotFound(f"no checkpoint changed {' '.join(paths)}", hint="Check its spelling.")
    if paths and (error := unknown_word(app, location.workspace, paths, nothing)) is not nothing:
        raise error


def read_program_option(word: str, words: Iterator[str], options: _Options) -> bool:
    """Read an option that stands before the command; whether it is one that is known here."""
    if word != "-C":
        return False
    options["directory"] = value = next(words, "")
    return is_plain(value) and not value.startswith("~")  # which a shell leaves to the program where it is quoted


def _of_command(word: str, words: Iterator[str], options: _Options) -> bool:
    """Read an option that stands after `log`; whether it is one that is known here."""
    if word in _FLAGS:
        options[word[2:]] = True
        return True
    value = next(words, "")
    if word in _TEXTS:
        options[word[2:]] = value
        return is_plain(value)
    if word != "-n" or not (value.isascii() and value.isdecimal()) or len(value) > _DIGITS_MAX:
        return False
    options["limit"] = int(value)
    return True


def is_plain(value: str) -> bool:
    """Whether a value is there and cannot be taken for an option."""
    return bool(value) and not value.startswith("-")
