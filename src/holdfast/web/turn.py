"""One turn: the conversation beside what it changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from starlette.requests import Request

from holdfast.errors import HoldfastError, NotFound
from holdfast.model import Changes, Checkpoint, PathChange, documents
from holdfast.web.answers import Answer, query_of, site_of
from holdfast.web.conversation import Conversation, last_turn, read_conversation, with_closing, with_rest
from holdfast.web.diff_view import ROWS_MAX, FileView, view_changes
from holdfast.web.take_back import banner, restore_title
from holdfast.web.timeline import verdict
from holdfast.workspace import Workspace
from holdfast.workspace.location import message
from holdfast.workspace.stored.attribution import USER
from holdfast.workspace.stored.history import Summary, Turn, group_turns, turn_document

CONVERSATION = "conversation"
_NEWER_LOOKED_AT = 300


class Part(NamedTuple):
    """Successive checkpoints of a turn, and what they changed. Between two parts, others saved."""

    base: Checkpoint | None
    tip: Checkpoint
    changes: Changes | None
    """None: without a state to compare with; `paths` has what is known."""
    files: list[FileView]
    paths: list[PathChange]
    reviewed: frozenset[str] = frozenset()
    """The digests of what is marked as reviewed."""


def show(request: Request) -> Answer:
    """A turn, named by its newest checkpoint."""
    place, workspace = site_of(request).places.workspace(request.path_params["key"])
    query = query_of(request)
    found = workspace.get(request.path_params["ref"])
    page = workspace.turns(1, up_to=found.id, safety=found.operation is not None)
    if not page.turns:
        raise NotFound(f"there is no turn that ends with {found.id}")
    turn, summary = page.turns[0], page.summaries[0]
    split = query.get("view") == "split"

    def document() -> dict[str, Any]:
        parts = [part.changes for part in _parts(workspace, turn, split=split) if part.changes is not None]
        changed = [documents.path_change(each) for each in summary.paths]
        about = turn_document(turn) | {"files": summary.files, "changes": changed}
        return about | {"parts": [documents.changes(each) for each in parts]}

    if str(request.scope["path"]).endswith(".json"):
        return Answer("", {}, document)
    values = _values(workspace, turn, summary, page.next, split=split, whole=bool(query.get("whole")))
    values |= {"place": place, "banner": banner(request, workspace, place.key), "ref": found.id, "split": split}
    return Answer("turn.html", values, document)


def _values(
    workspace: Workspace, turn: Turn, summary: Summary, older: str | None, *, split: bool, whole: bool
) -> dict[str, Any]:
    newest = turn.checkpoints[0]
    is_restore = newest.operation is not None
    after = _after(workspace, newest)
    earlier = next(iter(workspace.list(1, before=turn.checkpoints[-1].id)), None) if older else None
    return {
        "turn": turn,
        "summary": summary,
        "newest": newest,
        "oldest": turn.checkpoints[-1],
        "who": "you" if turn.actor == USER else turn.actor,
        "is_agent": turn.actor != USER,
        "is_restore": is_restore,
        "title": restore_title(workspace, newest) if is_restore else turn.prompt or message(newest) or "Saved",
        "parts": _parts(workspace, turn, split=split),
        "conversation": _conversation(workspace, turn, after, whole=whole),
        "older": earlier.id if earlier else None,
        "newer": _newer(after),
        "check": verdict(newest),
        "uncovered": _failures(newest),
    }


def _parts(workspace: Workspace, turn: Turn, *, split: bool) -> list[Part]:
    found = []
    left = ROWS_MAX
    for run in _runs(turn.checkpoints):
        base, tip = workspace.shown_parent(run[-1]), run[0]
        if base is None:
            found.append(Part(None, tip, None, [], workspace.changed_paths(tip)))
            continue
        changes = workspace.changes(base.id, tip.id)
        files = list(view_changes(workspace, changes, split=split, rows_max=left))
        left -= sum(len(hunk.rows) for each in files for hunk in each.hunks)
        found.append(Part(base, tip, changes, files, [], workspace.reviewed(tip.id)))
    return found


def _runs(checkpoints: Sequence[Checkpoint]) -> list[list[Checkpoint]]:
    """The checkpoints of a turn in rows, in each of which one is the parent of the next."""
    runs: list[list[Checkpoint]] = []
    for each in checkpoints:
        if runs and runs[-1][-1].parent == each.id:
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def _conversation(workspace: Workspace, turn: Turn, after: Sequence[Checkpoint], *, whole: bool) -> Conversation | None:
    """The conversation up to the end of the turn, as far as it was saved; None: none."""
    found = _saved_conversation(workspace, turn, after, whole=whole)
    if not turn.closing:
        return found
    found = found or Conversation([], 0)
    return found._replace(messages=with_closing(found.messages, turn.closing))


def _saved_conversation(
    workspace: Workspace, turn: Turn, after: Sequence[Checkpoint], *, whole: bool
) -> Conversation | None:
    if turn.actor == USER and CONVERSATION not in _state_names(turn.checkpoints[0]):
        return None
    for each in turn.checkpoints:
        found = _read(workspace, each)
        if found is None:
            continue
        later = next((one for one in reversed(after) if turn.session and one.session == turn.session), None)
        rest = _read(workspace, later) if later else None
        messages = with_rest(found.messages, rest.messages) if rest else found.messages
        return found._replace(messages=messages) if whole else last_turn(found._replace(messages=messages))
    return None


def _read(workspace: Workspace, checkpoint: Checkpoint) -> Conversation | None:
    """All messages that were saved with a checkpoint."""
    try:
        state = workspace.state(checkpoint.id, CONVERSATION)
    except HoldfastError:
        return None
    return read_conversation(getattr(state, "form", state), str(workspace.path))


def _state_names(checkpoint: Checkpoint) -> list[str]:
    try:
        return sorted(checkpoint.state)
    except HoldfastError:
        return []


def _after(workspace: Workspace, newest: Checkpoint) -> list[Checkpoint]:
    """Checkpoints that follow one, newest first; of many, the first ones."""
    after = [each for each, _, _ in workspace.overview() if each > newest.id][:_NEWER_LOOKED_AT]
    return workspace.list(None, after=newest.id, up_to=after[-1]) if after else []


def _newer(after: Sequence[Checkpoint]) -> str | None:
    """The newest checkpoint of the turn that follows."""
    found = list(group_turns(after))
    return found[-1].checkpoints[0].id if found else None


def _failures(checkpoint: Checkpoint) -> dict[str, str]:
    return documents.uncovered_reasons(each for each in checkpoint.uncovered if each.reason.is_failure)
