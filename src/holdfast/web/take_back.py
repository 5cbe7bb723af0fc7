"""Plans of what would be taken back, and carrying them out. Every plan has a digest: another folder, another plan.

A kill between any two lines leaves what a kill within `Workspace.restore` leaves: the journal, from which the next
opening finishes or rolls back (P3). This module writes nothing itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import Conflict, HoldfastError, NotFound, Refused
from holdfast.model import Changes, Checkpoint, Plan, Restored, documents
from holdfast.model.documents import short
from holdfast.web.answers import (
    Answer,
    Query,
    error_response,
    go,
    json_response,
    query_of,
    respond,
    site_of,
    wants_json,
)
from holdfast.web.diff_view import FileView, view_changes
from holdfast.web.rendering import address, count
from holdfast.web.site import LastAction
from holdfast.workspace import Workspace
from holdfast.workspace.location import message, reason
from holdfast.workspace.pathspec import literal

COMPUTED = ("revert", "without")
"""The verbs of checkpoints that were only made to be restored."""
FIELDS = ("what", "from", "to", "path", "ref", "agent", "back")
"""Of a plan's address and of its form; and `hunk`, any number of times."""


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan, and how to carry it out."""

    plan: Plan
    words: str
    """What it does, in a sentence without its end."""
    act: Callable[[], Restored]


class Banner(NamedTuple):
    """What was done last, and what reverses it."""

    words: str
    done: Restored | None
    undo: str
    """The digest of the plan; empty: nothing to undo."""
    redo: str


def show_plan(request: Request) -> Answer:
    """What taking something back would do; nothing is changed."""
    place, workspace = site_of(request).places.workspace(request.path_params["key"])
    query = query_of(request)
    wanted = _wanted(workspace, query)
    return _plan_answer(workspace, place, query, wanted)


def _plan_answer(
    workspace: Workspace, place: Any, query: Query, wanted: PreparedPlan, *, problem: str = "", status: int = 200
) -> Answer:
    fields = [(name, query.get(name)) for name in FIELDS if query.get(name)]
    fields += [("hunk", each) for each in query.all("hunk")]
    values = {
        "place": place,
        "plan": wanted.plan,
        "words": wanted.words,
        "fields": fields,
        "problem": problem,
        "conflicts": _conflicts(workspace, wanted.plan),
        "back": _back(query, place.key),
    }
    template = "plan_fragment.html" if query.get("fragment") else "plan.html"
    return Answer(template, values, lambda: {"plan": documents.plan(wanted.plan), "restored": None}, status)


def apply(request: Request, form: Query) -> Response:
    """Carry out a plan, if the folder is still as it was when it was shown."""
    site = site_of(request)
    place, workspace = site.places.workspace(request.path_params["key"])
    query = Query(tuple((name, unquote(value, errors="surrogateescape")) for name, value in form.pairs))
    wanted = _wanted(workspace, query)
    if wanted.plan.digest != form.get("digest"):
        problem = "The folder changed since this was shown. Nothing was done; this is what it would do now."
        if wants_json(request):
            return error_response(request, Conflict("the folder changed since the plan was shown", hint="Look again."))
        return respond(request, _plan_answer(workspace, place, query, wanted, problem=problem, status=409))
    return _did(request, place.key, wanted, _back(query, place.key))


def undo(request: Request, form: Query) -> Response:
    """Undo the last restore."""
    return _turn(request, form, is_undo=True)


def redo(request: Request, form: Query) -> Response:
    """Redo what was undone last."""
    return _turn(request, form, is_undo=False)


def review(request: Request, form: Query) -> Response:
    """Mark a file or a hunk of a checkpoint as reviewed, or no longer."""
    place, workspace = site_of(request).places.workspace(request.path_params["key"])
    mark = unquote(form.get("mark"), errors="surrogateescape")
    is_reviewed = form.get("reviewed") == "1"
    marks = workspace.mark_reviewed(form.get("ref"), [mark], is_reviewed=is_reviewed)
    if wants_json(request):
        return json_response({"reviewed": sorted(marks)})
    back = Query((("back", unquote(form.get("back"), errors="surrogateescape")),))
    return go(_back(back, place.key))


def _turn(request: Request, form: Query, *, is_undo: bool) -> Response:
    place, workspace = site_of(request).places.workspace(request.path_params["key"])
    plan = workspace.preview_undo() if is_undo else workspace.preview_redo()
    if plan.digest != form.get("digest"):
        raise Conflict("the folder changed since this was shown", hint="Nothing was done. Load the page again.")
    act = (lambda: workspace.undo(plan)) if is_undo else (lambda: workspace.redo(plan))
    back = Query((("back", unquote(form.get("back"), errors="surrogateescape")),))
    wanted = PreparedPlan(plan, "Undone" if is_undo else "Done again", act)
    return _did(request, place.key, wanted, _back(back, place.key))


def _did(request: Request, key: str, wanted: PreparedPlan, back: str) -> Response:
    site = site_of(request)
    restored = wanted.act()
    with site.lock:
        site.done[key] = LastAction(wanted.words, restored)
    if wants_json(request):
        return json_response({"plan": documents.plan(wanted.plan), "restored": documents.restored(restored)})
    return go(back)


def _back(query: Query, key: str) -> str:
    """The page to return to: one of these pages, or the timeline."""
    given = query.get("back")
    is_ours = given.startswith("/") and not given.startswith("//") and given.isascii() and given.isprintable()
    return given if is_ours and "\\" not in given else address("w", key, "timeline")


# what is wanted


def _wanted(workspace: Workspace, query: Query) -> PreparedPlan:
    what = query.get("what")
    if what in ("hunks", "file", "part"):
        return _revert(workspace, query, what)
    if what == "after":
        checkpoint = workspace.get(query.get("ref"))
        plan = workspace.preview(checkpoint.id)
        words = f"Took back everything after {short(checkpoint.id)}"
        return PreparedPlan(plan, words, lambda: workspace.restore(checkpoint.id, None, plan))
    if what == "path":
        checkpoint, paths = workspace.get(query.get("ref")), [literal(query.get("path"))]
        plan = workspace.preview(checkpoint.id, paths)
        words = f"Restored {query.get('path')} from {short(checkpoint.id)}"
        return PreparedPlan(plan, words, lambda: workspace.restore(checkpoint.id, paths, plan))
    if what == "turn":
        turn = workspace.turn(query.get("ref"))
        plan = workspace.preview_turn(turn)
        words = f"Took back turn {turn.number}" if turn.number else "Took back a turn"
        return PreparedPlan(plan, words, lambda: workspace.undo_turn(turn, plan))
    if what == "agent":
        agent = query.get("agent") or None
        checkpoint = workspace.get(query.get("ref"))
        plan = workspace.preview(checkpoint.id, keep_mine=True, agent=agent)
        words = f"Took back what {agent or 'agents'} did since {short(checkpoint.id)}"
        return PreparedPlan(plan, words, lambda: workspace.restore(checkpoint.id, None, plan))
    raise Refused("it is not clear what to take back", hint="Go back, and choose it again.")


def _revert(workspace: Workspace, query: Query, what: str) -> PreparedPlan:
    path, hunks = query.get("path"), query.all("hunk") or None
    if (what == "hunks") != (hunks is not None) or (what == "part") == bool(path):
        raise Refused("it is not clear what to take back", hint="Go back, and choose it again.")
    changes = workspace.changes(query.get("from"), query.get("to") or None, [literal(path)] if path else None)
    if not changes.hunks:
        raise NotFound("there is nothing to take back", hint="Look at the timeline again.")
    plan = workspace.preview_revert(changes, hunks)
    some = f"{count(len(hunks), 'hunk')} of {path}" if hunks else path or _some_files(changes)
    return PreparedPlan(plan, f"Took back {some}", lambda: workspace.revert(changes, hunks, plan))


def _some_files(changes: Changes) -> str:
    files = sum(each.type != "folder" for each in changes.files)
    return f"the changes of {count(files, 'file')}"


def _conflicts(workspace: Workspace, plan: Plan) -> list[tuple[str, str, list[FileView]]]:
    """Of each conflict: the path, why, and what the agent left beside what is there now."""
    found = []
    for path, overlap in plan.conflicts.items():
        files: list[FileView] = []
        if overlap.after is not None and overlap.path_after == path:
            try:
                changes = workspace.changes(overlap.after, None, [literal(path)])
                files = list(view_changes(workspace, changes, split=True, rows_max=200))
            except HoldfastError:
                files = []
        found.append((path, overlap.why, files))
    return found


# what was done


def banner(request: Request, workspace: Workspace, key: str) -> Banner | None:
    """What was done last, if nothing was saved since; None otherwise."""
    newest = next(iter(workspace.list(1, safety=True)), None)
    if newest is None or newest.operation is None:
        return None
    site = site_of(request)
    with site.lock:
        done = site.done.get(key)
    if done is not None and done.restored.undo_id != newest.id:
        done = None  # somebody else did something since
    words = done.words if done else restore_title(workspace, newest)
    undo, redo = (_digest(workspace.preview_undo), _digest(workspace.preview_redo)) if not site.read_only else ("", "")
    return Banner(words, done.restored if done else None, undo, redo)


def restore_title(workspace: Workspace, checkpoint: Checkpoint) -> str:
    """What was done after a safety checkpoint was saved."""
    operation = checkpoint.operation
    if operation is None:
        return message(checkpoint)
    target = short(operation.target)
    if operation.verb == "restore":
        with contextlib.suppress(HoldfastError):  # deleted since
            made = workspace.get(operation.target).operation
            if made is not None and made.verb in COMPUTED:
                what = "changes" if made.verb == "revert" else "an agent's changes"
                return f"Took back {what} since {short(made.target)}"
    words = {"restore": f"Restored {target}", "undo": "Undid a restore", "redo": "Redid a restore"}
    return words.get(operation.verb) or reason(operation).capitalize()


def _digest(preview: Callable[[], Plan]) -> str:
    try:
        return preview().digest
    except HoldfastError:  # nothing to undo, or it cannot be said now
        return ""
