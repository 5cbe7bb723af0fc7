"""What `save` tells: the checkpoint, and what it does not hold."""

from __future__ import annotations

from collections import Counter

from holdfast.cli import output, render
from holdfast.cli.app import typed
from holdfast.cli.documents import short
from holdfast.model import Checkpoint, Uncovered

_NAMED_MAX = 3


def show_saved(checkpoint: Checkpoint, *, new: bool, lost: bool = False, latest: Checkpoint | None = None) -> None:
    """Print the id of a saved checkpoint and how much changed; warn of what is missing from it.

    lost: a message, session, actor, step or metadata was given, and no new checkpoint carries it. latest: the
    checkpoint that `latest` means now.
    """
    shown = render.paint(short(checkpoint.id), "cyan")
    if new:
        changed = checkpoint.files_changed
        since = "changed" if checkpoint.parent else "saved"
        output.answer(f"{shown}  {render.count(len(changed), 'file')} {since}")
    else:
        output.answer(f"{shown}  nothing changed: this checkpoint holds the folder already")
        if latest is not None and latest.id != checkpoint.id:
            output.note(f"The folder was restored to it; `latest` is {short(latest.id)}.")
        if lost:
            output.note("The message and other details were not kept; --allow-empty saves a checkpoint anyway.")
    failures = [entry for entry in checkpoint.uncovered if entry.reason.is_failure]
    if failures:
        output.note(f"{render.count(len(failures), 'path')} could not be saved:")
        output.notes(reasons(failures))
    if left_out := sorted({entry.path for entry in checkpoint.uncovered if not entry.reason.is_failure}):
        some = len(left_out) <= _NAMED_MAX
        what = ", ".join(map(render.escape, left_out)) if some else render.count(len(left_out), "path")
        why = f"{'why' if some else 'list with'}: {typed('show', short(checkpoint.id), '--uncovered')}"
        output.note(f"{what} left out by rules; {why}")


def reasons(entries: list[Uncovered], *, cap: int | None = render.LIST_MAX) -> list[str]:
    """Return one line per path that a checkpoint does not hold."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        found.setdefault(entry.path, []).append(because(entry))
    return render.listing({path: "; ".join(why) for path, why in found.items()}, cap=cap)


def because(entry: Uncovered) -> str:
    """Return the reason and its detail."""
    return f"{entry.reason.value}: {entry.detail}" if entry.detail else entry.reason.value


def summary(entries: tuple[Uncovered, ...]) -> str:
    """Return how many paths are not held, per reason."""
    counted = Counter(entry.reason.value for entry in entries)
    return "\n".join(f"{render.count(number, 'path')}: {reason}" for reason, number in counted.most_common())
