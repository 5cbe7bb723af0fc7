"""The nouns as JSON values, for every face. Times are ISO 8601 in UTC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.model import (
        Bisected,
        Blame,
        Changes,
        Checkpoint,
        CheckpointDiff,
        Exported,
        FileChange,
        Hunk,
        Match,
        Origin,
        Overlap,
        PathChange,
        PathUsage,
        Plan,
        Problem,
        PurgePlan,
        Recovery,
        Restored,
        Uncovered,
        VerifyReport,
        Why,
    )

    Flat = (
        Changes
        | CheckpointDiff
        | Exported
        | FileChange
        | Hunk
        | Match
        | Origin
        | Overlap
        | PathUsage
        | Plan
        | Problem
        | PurgePlan
        | Recovery
        | Restored
        | VerifyReport
        | Why
    )

_JSON = (dict, list, str, int, float, type(None))


def short(checkpoint_id: str) -> str:
    """Return the short id that people see and type: `a14` for `b14-x7k2mqrs`. Any other text stays as it is."""
    head, dash, _ = checkpoint_id.partition("-")
    return f"a{head[1:]}" if dash and head[1:].isdecimal() else head


def flat(noun: Flat) -> dict[str, Any]:
    """Return the fields of a noun whose values are JSON-like already."""
    if isinstance(noun, tuple):
        return noun._asdict()
    from dataclasses import fields  # start-up cost: `log` needs none

    return {field.name: getattr(noun, field.name) for field in fields(noun)}


def checkpoint(noun: Checkpoint) -> dict[str, Any]:
    """Return what listing a checkpoint shows; nothing is read from the store for it."""
    return {
        "id": noun.id,
        "short_id": short(noun.id),
        "sequence": noun.sequence,
        "name": noun.name,
        "message": noun.message,
        "timestamp": noun.timestamp.astimezone(UTC).isoformat(),
        "session": noun.session,
        "actor": noun.actor,
        "step": noun.step,
        "parent": noun.parent,
        "metadata": dict(noun.metadata),
        "pinned": noun.pinned,
        "check": check_word(noun) or None,
        "complete": noun.complete,
        "quiet": noun.quiet,
        "operation": noun.operation._asdict() if noun.operation else None,
        "purged": list(noun.purged),
        "commit": noun.commit,
        "git": {"commit": noun.git.commit, "branch": noun.git.branch} if noun.git else None,
    }


def check_word(noun: Checkpoint) -> str:
    """Return `green` or `red` for a checkpoint that was checked; else nothing."""
    return "" if noun.is_green is None else "green" if noun.is_green else "red"


def path_change(noun: PathChange) -> dict[str, Any]:
    """Return a changed path; `status` is git's letter for it."""
    old = {"old_path": noun.old} if noun.old else {}
    return {"status": noun.letter, "path": noun.path, **old, "added": noun.lines.added, "removed": noun.lines.removed}


def diff(noun: CheckpointDiff) -> dict[str, Any]:
    """Return everything of a diff."""
    return flat(noun) | {
        "renamed_files": [renamed._asdict() for renamed in noun.renamed_files],
        "line_counts": {path: lines._asdict() for path, lines in noun.line_counts.items()},
    }


def changes(noun: Changes) -> dict[str, Any]:
    """Return what changed, in parts that can be taken back."""

    def hunk(each: Hunk) -> dict[str, Any]:
        return flat(each) | {"id": each.id}

    files = [flat(each) | {"hunks": [hunk(part) for part in each.hunks]} for each in noun.files]
    return flat(noun) | {"files": files}


def plan(noun: Plan) -> dict[str, Any]:
    """Return everything of a plan."""
    conflicts = {path: flat(overlap) for path, overlap in noun.conflicts.items()}
    return flat(noun) | {"conflicts": conflicts, "turn": noun.turn._asdict() if noun.turn else None}


def blame(noun: Blame) -> dict[str, Any]:
    """Return where a file came from; checkpoints stand once, by id."""
    origins = [noun.whole, *(line.origin for line in noun.lines)]
    found = {each.checkpoint.id: each.checkpoint for each in origins if each.checkpoint}
    return {
        "path": noun.path,
        "is_text": noun.is_text,
        "lines": [{"number": number, "text": text} | _origin(origin) for number, text, origin in noun.lines],
        "whole": _origin(noun.whole),
        "checkpoints": {key: checkpoint(each) for key, each in found.items()},
    }


def _origin(noun: Origin) -> dict[str, Any]:
    return flat(noun) | {"checkpoint": noun.checkpoint.id if noun.checkpoint else None}


def match(noun: Match) -> dict[str, Any]:
    """Return where a text was found."""
    gone = noun.disappeared_in
    return flat(noun) | {
        "first": checkpoint(noun.first),
        "last": checkpoint(noun.last),
        "disappeared_in": checkpoint(gone) if gone else None,
    }


def bisected(noun: Bisected) -> dict[str, Any]:
    """Return between which two checkpoints something broke."""
    return {
        "first_bad": checkpoint(noun.first_bad) if noun.first_bad else None,
        "last_good": checkpoint(noun.last_good),
        "unsure": [checkpoint(each) for each in noun.unsure],
        "tried": noun.tried,
        "linked": noun.linked,
        "changed": noun.changed,
        "stale_outputs": noun.stale_outputs,
    }


def report(noun: VerifyReport) -> dict[str, Any]:
    """Return everything that `verify` found."""
    return flat(noun) | {"ok": noun.ok, "problems": [flat(problem) for problem in noun.problems]}


def whole_checkpoint(noun: Checkpoint) -> dict[str, Any]:
    """Return everything of a checkpoint but the values of its state, which has names here."""
    return checkpoint(noun) | {
        "files_changed": noun.files_changed,
        "uncovered": [entry._asdict() for entry in noun.uncovered],
        **_states(noun.state),
    }


def uncovered_reasons(entries: Iterable[Uncovered]) -> dict[str, str]:
    """By path that a checkpoint does not contain: why."""
    found: dict[str, list[str]] = {}
    for each in entries:
        why = f"{each.reason.value}: {each.detail}" if each.detail else each.reason.value
        found.setdefault(each.path, []).append(why)
    return {path: "; ".join(why) for path, why in found.items()}


def restored(noun: Restored) -> dict[str, Any]:
    """Return everything of a restore but the values of the state, which has names here."""
    plain = flat(noun) | {"ok": noun.ok, **_states(noun.state)}
    plain["conflicts"] = {path: flat(overlap) for path, overlap in noun.conflicts.items()}
    del plain["state"]
    return plain


def _states(found: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names of states; those whose JSON has tags for what JSON lacks, by themselves too."""
    tagged = (name for name, value in found.items() if not isinstance(value, _JSON))
    return {"state_names": sorted(found), "tagged_states": sorted(tagged)}
