"""The words of `holdfast restore` that are understood without click, whose loading takes longer than most restores.

Only words that can mean one thing are understood here; click reads all others, and says what is wrong with them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast.cli import fast_log
from holdfast.errors import NotFound

_YES = ("-y", "--yes")


def understood(args: Sequence[str]) -> tuple[dict[str, Any], str] | None:
    """Return the options of the program and REF, in `[-C PATH] [--json] restore REF [--yes] [--json]`; None for other
    words."""
    if fast_log.COMPLETING in os.environ:
        return None
    of_program: dict[str, Any] = {}
    ref, is_named = "", False
    words = iter(args)
    for word in words:
        if word == "--json":
            of_program["json"] = True
        elif word == "restore" and not is_named:
            is_named = True
        elif not is_named:
            if not fast_log.read_program_option(word, words, of_program):
                return None
        elif fast_log.is_plain(word) and "://" not in word and not ref:  # a URL is no checkpoint: click says so
            ref = word
        elif word not in _YES:
            return None
    return (of_program, ref) if ref else None


def answer(of_program: dict[str, Any], ref: str) -> int:
    """Restore the folder; return the exit code."""
    from holdfast.cli.context import App  # only here: other commands do not need it yet
    from holdfast.cli.restore_output import restore_at_once

    app = App(**of_program)
    try:
        workspace = app.open()
        try:
            target = workspace.get(ref)
        except NotFound:
            from holdfast.cli.commands.restore import hint_for_path  # with click: it says what REF may be

            with hint_for_path(app, workspace, ref, ()):
                raise
        return restore_at_once(app, workspace, partial(workspace.restore, target))
    finally:
        app.close()
