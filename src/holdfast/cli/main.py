"""The program: runs a command and turns whatever happens into an exit code, one sentence and a hint."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.cli import fast_log, streams
from holdfast.cli.exit_codes import Exit, of_error
from holdfast.errors import HoldfastError
from holdfast.escaping import without_password

if TYPE_CHECKING:
    import click


_GLOBAL = {"-C": "PATH", "--directory": "PATH", "--store": "PATH", "--allow-home": "", "--trust-store": ""}
_SAID = {
    "is not a valid integer range": "is not a whole number",
    "is not a valid integer": "is not a whole number",
    "is not a valid float range": "is not a number",
}
_NO_MORE = {
    "save": 'Quote a message of several words: holdfast save "two words"',
    "undo": "To go back to a checkpoint: holdfast restore REF. To undo a turn of an agent: holdfast undo --turn N",
    "redo": "To go to a checkpoint: holdfast restore REF",
}
"""Commands that people give more words than they take, and what these words may mean."""
_MESSAGE_MAX_CHARS = 1000
may_end_at_once = False
"""Whether `log`, `status`, `save` or `restore` ran without click: all is written, and no thread of theirs runs."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. Never raises, never prints a traceback unasked."""
    args = sys.argv[1:] if args is None else list(args)
    try:
        try:
            streams.prepare()
            with streams.own_settings():
                return _run(args)
        finally:
            streams.finish()
    except Exception as error:  # the last line of defence: an unexpected error is still one sentence
        return _interrupted(args) if _is_ctrl_c(error) else _fail(args, *_explain(error))
    except KeyboardInterrupt:
        return _interrupted(args)


def _run(args: Sequence[str]) -> int:
    global may_end_at_once
    if asked := fast_log.understood(args):
        code = fast_log.answer(*asked)
        may_end_at_once = True
        return code
    if not args or "status" in args:
        from holdfast.cli import status_output  # start-up cost: only here

        if status_output.understood(args) and (answered := status_output.answer(args)) is not None:
            may_end_at_once = True
            return answered
    if "save" in args:
        from holdfast.cli import fast_save  # as above

        if (known := fast_save.understood(args)) is not None:
            may_end_at_once = True
            return fast_save.answer(*known)
    if "restore" in args:
        from holdfast.cli import fast_restore  # as above

        if (wanted := fast_restore.understood(args)) is not None:
            may_end_at_once = True
            return fast_restore.answer(*wanted)
    import click  # inside `main`'s protection: loading it is most of the start-up time

    from holdfast.cli.group import group

    try:
        return int(group.main(args, prog_name="holdfast", standalone_mode=False) or 0)
    except click.Abort:
        return _interrupted(args)
    except click.ClickException as error:
        return _fail(args, Exit.USAGE, *_usage(error))


def helper_died(args: Sequence[str]) -> int:
    """Say that the helper ended while it ran a command for this process, and return the exit code."""
    hint = (
        "See what was done with `holdfast log`; an interrupted restore is finished or taken back by the next command."
    )
    return _fail(args, Exit.UNAVAILABLE, "the background helper ended while it ran this command", hint)


def _explain(error: Exception) -> tuple[Exit, str, str, str | None]:
    if os.environ.get("HOLDFAST_DEBUG", "0") not in ("", "0"):
        import traceback  # start-up cost, for debugging only

        traceback.print_exception(error)
    if isinstance(error, HoldfastError):
        from holdfast.cli.remedies import hint_of  # start-up cost, for errors only

        return of_error(error), error.message, hint_of(error), error.remedy.code if error.remedy else None
    if isinstance(error, OSError):
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return Exit.UNAVAILABLE, f"{where}{error.strerror or error}", "Fix that and try again.", None
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Exit.BUG, f"unexpected {what}; this is a bug", "Please report it with what HOLDFAST_DEBUG=1 shows.", None


def _is_ctrl_c(error: BaseException) -> bool:
    """Say whether it comes of Ctrl-C: where it meets Python making a class, 3.11 raises a RuntimeError instead."""
    cause = error.__cause__
    return isinstance(cause, KeyboardInterrupt) or (cause is not None and _is_ctrl_c(cause))


def _usage(error: click.ClickException) -> tuple[str, str]:
    """Turn what click found into a message in the library's own voice, and a hint."""
    import click  # loaded already, or there would be no such error

    context = getattr(error, "ctx", None)
    path = context.command_path if context else "holdfast"
    message = error.format_message().replace("\n\t", " ")
    if not message[1:2].isupper():
        message = message[:1].lower() + message[1:]
    if isinstance(error, click.MissingParameter):
        message = " ".join(message.split())  # it lists the choices in lines
    for theirs, ours in _SAID.items():
        message = message.replace(theirs, ours)
    command = path.partition(" ")[2]
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        *others, last = sorted(error.possibilities)
        near = f"{', '.join(others)} or {last}" if others else last
        message = f"no such option {error.option_name!r}; did you mean {near}?"
    if command in _NO_MORE and message.startswith("got unexpected extra argument"):
        return message, _NO_MORE[command]
    if command and isinstance(error, click.NoSuchOption) and error.option_name in _GLOBAL:
        option = f"{error.option_name} {_GLOBAL[error.option_name]}".rstrip()
        return (
            f"{command} has no option {error.option_name}",
            f"It goes before the command: holdfast {option} {command}",
        )
    return message, f"See: {path} --help"


def _interrupted(args: Sequence[str]) -> int:
    restoring = any(word in ("restore", "undo", "redo") for word in args)
    hint = "If it had begun to change the folder, the next command finishes it or takes it back." if restoring else ""
    if "purge" in args:
        hint = "If it had begun, the next command that writes continues it."
    if "copy" in args:
        hint = "What was copied is complete. Run it again to continue."
    return _fail(args, Exit.INTERRUPTED, "interrupted", hint)


def _fail(args: Sequence[str], code: Exit, message: str, hint: str, remedy: str | None = None) -> int:
    from holdfast.cli import render

    message, hint = (without_password(text) for text in (message.strip().rstrip("."), hint.strip()))
    if len(message) > _MESSAGE_MAX_CHARS:  # what was asked for is repeated in it, and may be anything
        message = message[: _MESSAGE_MAX_CHARS - 1] + "…"
    try:
        if _wants_json(args):
            streams.document({"error": {"kind": code.kind, "message": message, "hint": hint, "remedy": remedy}})
        else:
            streams.note(render.paint("error: ", "red", sys.stderr) + render.escape(message))
            if hint:
                streams.note(render.paint("hint:  ", "dim", sys.stderr) + render.escape(hint))
        streams.flush()
    except HoldfastError:
        pass  # the streams themselves are gone; the exit code still tells
    return code


def _wants_json(args: Sequence[str]) -> bool:
    """Say whether `--json` was asked for, even where the rest could not be parsed."""
    args = list(args)
    return "--json" in (args[: args.index("--")] if "--" in args else args)
