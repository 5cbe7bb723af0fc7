"""What `holdfast status` prints, and the words of it that are understood without click, whose loading takes longer."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.cli import render, streams
from holdfast.errors import NotFound, Refused

if TYPE_CHECKING:
    from holdfast.adapters.agents.base import SettingsPaths
    from holdfast.adapters.agents.hook_status import HookState, HookStatus
    from holdfast.cli.context import App
    from holdfast.model import Checkpoint, PathChange
    from holdfast.workspace.status import Attention, WorkspaceStatus

_PATHS_SHOWN = 10
_PROBLEM_PATHS_SHOWN = 3
_USER = "user"
_UNDERSTOOD: tuple[list[str], ...] = ([], ["status"], ["status", "--json"], ["--json", "status"])


def understood(args: Sequence[str]) -> bool:
    """Whether these words ask for the status, and for nothing that only click knows."""
    return list(args) in _UNDERSTOOD and "_HOLDFAST_COMPLETE" not in os.environ


def answer(args: Sequence[str]) -> int | None:
    """Print the status. None if no command was named and there is no workspace here: then the help is wanted."""
    from holdfast.cli.context import App  # only here: other commands do not need it yet

    app = App(json="--json" in args)
    try:
        with streams.paged():
            print_status(app)
    except (NotFound, Refused):  # no workspace, or a folder that cannot be one
        if args:
            raise
        return None
    finally:
        app.close()
    return 0


def print_status(app: App) -> None:
    """Print the state of the nearest workspace on one screen."""
    from holdfast.adapters.agents.hook_status import read_hook_status
    from holdfast.workspace.store_paths import home_folder

    workspace = app.open()
    found = workspace.status()
    hooks = read_hook_status(workspace.store, home_folder(), os.environ, lambda: _places(app))
    if app.json:
        app.document(document(found, hooks))
        return
    streams.answer(render.fields(_fields(found, hooks)))
    if found.changes:
        whose = "yours" if hooks.working == _USER else f"by {render.escape(hooks.working)}, which is working"
        since = "then" if _is_hidden(found.head) else _short(found.head)
        what = f"changed since {since}" if found.head is not None else "not saved yet"
        streams.answer(f"\n{render.count(len(found.changes), 'file')} {what}, {whose}:")
        streams.answer("\n".join(_listed(found.changes)))
    for line in _attention(found, hooks):
        streams.answer(line)
    if found.changes:
        against = [_short(found.head)] if found.latest is None or found.head != found.latest else []
        look = f"Look at it with: {app.typed('diff', *against)}; save it" if found.head is not None else "Save it"
        streams.note(f"\n{look} with: {app.typed('save')}")


def _places(app: App) -> tuple[SettingsPaths, Callable[[str], Sequence[str]]]:
    from holdfast.cli.install_output import command_words, places  # start-up cost, only where an agent is used

    return places(app), command_words


def _restored(head: Checkpoint | None) -> str:
    """What the last restore did; the targets of some of them are in no list."""
    operation = head.operation if head is not None else None
    if operation is not None and operation.verb in ("without", "revert"):
        what = "an agent's changes" if operation.verb == "without" else "some changes"
        from holdfast.model.documents import short  # start-up cost, only then

        return f"{what} since {short(operation.target)} were taken back"
    if operation is not None:  # an undo led to what was there before, which is in no list
        from holdfast.workspace.location import reason  # as above

        return f"as {reason(operation)}"
    return f"restored to {_short(head)}"


def _fields(found: WorkspaceStatus, hooks: HookStatus) -> list[tuple[str, str]]:
    latest = "none yet"
    if found.latest is not None:
        what = render.first_line(found.latest.message)
        latest = "  ".join(
            filter(None, (_short(found.latest), render.ago(found.latest.timestamp), _by(found.latest), what))
        )
    is_back = found.head is not None and found.latest is not None and found.head.id != found.latest.id
    now = "" if found.changes else f"unchanged since {_short(found.head)}" if found.head else "empty"
    if is_back:
        now = _restored(found.head) + (", and changed since" if found.changes else ", unchanged since")
    git = ""
    if found.git is not None:
        git = f"branch {found.git.branch}" if found.git.branch else f"detached at {found.git.commit[:12]}"
    used = f"{render.size(found.store_bytes)} for {render.count(found.checkpoints, 'checkpoint')}{_thinned(found)}"
    return [
        ("workspace", render.escape(str(found.workspace))),
        ("git", render.escape(git)),
        ("last save", latest),
        ("folder", now),
        ("check", _check(found)),
        ("hooks", "\n".join(map(_hook, hooks.hooks)) or "none installed"),
        ("disk used", used),
    ]


def _check(found: WorkspaceStatus) -> str:
    """How the last check ended, and which checkpoint passed last."""
    status = found.check
    if status is None or not status.is_allowed:
        return ""
    parts = ["running"] if status.is_running else []
    last = status.last or {}
    if last and not status.is_running:
        from holdfast.model.documents import short  # start-up cost, only then

        passed = last.get("passed")
        word = "green" if passed else "red" if passed is False else "no result"
        why = f" ({render.escape(str(last['reason']))})" if last.get("reason") else ""
        colour = {"green": "green", "red": "red"}.get(word, "yellow")
        parts.append(f"{short(str(last.get('checkpoint', '')))} {render.paint(word, colour)}{why}")
    green = status.last_green
    parts.append(f"last green: {_short(green)}, {render.ago(green.timestamp)}" if green else "none green yet")
    return "; ".join(parts)


def _thinned(found: WorkspaceStatus) -> str:
    """What thinning did last, and in all."""
    done = found.thinned
    if done is None or not done.removed_at:
        return ""
    total = render.count(done.total_removed, "automatic checkpoint")
    when = render.ago(datetime.fromisoformat(done.removed_at))
    return f"; {total} thinned, {render.size(done.total_freed_bytes)} freed, last {when}"


def _short(checkpoint: Checkpoint | None) -> str:
    from holdfast.model.documents import short

    return short(checkpoint.id) if checkpoint else ""


def _is_hidden(checkpoint: Checkpoint | None) -> bool:
    """Whether no list shows it: it was made by a restore, an undo or a redo."""
    return checkpoint is not None and checkpoint.operation is not None


def _by(checkpoint: Checkpoint) -> str:
    return "you" if checkpoint.actor in (None, "", _USER) else render.escape(str(checkpoint.actor))


def _hook(state: HookState) -> str:
    if state.problems:
        return f"{state.agent}: {render.paint('not working', 'red')}"
    fired = "installed, not run here yet"
    if state.fired_at is not None:
        fired = f"last event {render.ago(_moment(state.fired_at))}"
    return f"{state.agent}: {fired}" if state.is_installed else f"{state.agent}: not installed any more, {fired}"


def _moment(seconds: float) -> datetime:
    """A time as it is noted; one beyond the calendar becomes its end."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return (datetime.max if seconds > 0 else datetime.min).replace(tzinfo=UTC)


def _listed(changes: Sequence[PathChange]) -> list[str]:
    from holdfast.cli.turns import named  # start-up cost, only with changes

    lines = [f"  {named(each)}" for each in changes[:_PATHS_SHOWN]]
    if len(changes) > _PATHS_SHOWN:
        lines.append(f"  … and {len(changes) - _PATHS_SHOWN:,} more")
    return lines


def _attention(found: WorkspaceStatus, hooks: HookStatus) -> list[str]:
    lines = [
        (f"{each.message}. {_remedy(each)}" if each.remedy else each.message, each.paths) for each in found.attention
    ]
    lines += [(f"{state.agent}: {problem}", ()) for state in hooks.hooks for problem in state.problems]
    if not lines:
        return []
    shown = ["", render.paint("Needs attention:", "yellow")]
    for message, paths in lines:
        shown.append(f"  {render.escape(message)}")
        shown += render.listing(paths, cap=_PROBLEM_PATHS_SHOWN)
    return shown


def _remedy(attention: Attention) -> str:
    if attention.remedy is None:
        return ""
    from holdfast.cli.remedies import COMMAND_LINE  # start-up cost, only then
    from holdfast.remedies import word_remedy

    return word_remedy(attention.remedy, COMMAND_LINE)


def document(found: WorkspaceStatus, hooks: HookStatus) -> dict[str, Any]:
    """The status as `--json` prints it."""
    from holdfast.model import documents

    return {
        "workspace": str(found.workspace),
        "store": str(found.store),
        "git": {"commit": found.git.commit, "branch": found.git.branch} if found.git else None,
        "latest": documents.checkpoint(found.latest) if found.latest else None,
        "head": documents.checkpoint(found.head) if found.head else None,
        "checkpoints": found.checkpoints,
        "changes": [documents.path_change(each) for each in found.changes],
        "changed_by": hooks.working if found.changes else None,
        "hooks": [
            {
                "agent": each.agent,
                "installed": each.is_installed,
                "fired_at": None if each.fired_at is None else _moment(each.fired_at).isoformat(),
                "problems": list(each.problems),
            }
            for each in hooks.hooks
        ],
        "store_bytes": found.store_bytes,
        "free_bytes": found.free_bytes,
        "check": _check_document(found),
        "thinning": found.thinned._asdict() if found.thinned else None,
        "attention": [
            *(
                {"code": each.code, "message": each.message, "paths": list(each.paths), "hint": _remedy(each)}
                for each in found.attention
            ),
            *(
                {"code": "hooks", "message": f"{state.agent}: {problem}", "paths": [], "hint": ""}
                for state in hooks.hooks
                for problem in state.problems
            ),
        ],
    }


def _check_document(found: WorkspaceStatus) -> dict[str, Any] | None:
    if (status := found.check) is None:
        return None
    return {
        "command": status.command,
        "allowed": status.is_allowed,
        "running": status.is_running,
        "last": dict(status.last) if status.last else None,
        "last_green": status.last_green.id if status.last_green else None,
    }
