"""The words of `holdfast restore` that are understood without click, whose loading takes longer than most restores.

Only words that can mean one thing are understood here; click reads all others, and says what is wrong with them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast.errors import NotFound

_COMPLETING = "_HOLDFAST_COMPLETE"  # set by a shell that completes a word: click answers
_YES = ("-y", "--yes")


def understood(args: Sequence[str]) -> tuple[dict[str, Any], str] | None:
    """Return the options of the program and REF, in `[-C PATH] [--json] restore REF [--yes] [--json]`; None for other
    words."""
    if _COMPLETING in os.environ:
        return None
    of_program: dict[str, Any] = {}
    ref, is_named = "", False
    words = iter(args)
    for word in words:
        if word == "--json":
            of_program["json"] = True
        elif word == "-C" and not is_named:
            of_program["directory"] = value = next(words, "")
            if not value or value.startswith("-"):
                return None
        elif word == "restore" and not is_named:
            is_named = True
        elif is_named and word and not word.startswith("-") and not ref:
            ref = word
        elif not (is_named and word in _YES):
            return None
    return (of_program, ref) if ref else None


def answer(of_program: dict[str, Any], ref: str) -> int | None:
    """Restore the folder; return the exit code. None if there is no such checkpoint or no store: click's command says
    what REF may be instead."""
    from holdfast.cli.context import App  # only here: other commands do not need it yet
    from holdfast.cli.restore_output import restore_at_once

    app = App(**of_program)
    try:
        try:
            workspace = app.open()
            target = workspace.get(ref)
        except NotFound:
            return None
        return restore_at_once(app, workspace, partial(workspace.restore, target))
    finally:
        app.close()
