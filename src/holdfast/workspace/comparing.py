"""Comparing two checkpoints, or one with the folder as it is now."""

from __future__ import annotations

from holdfast.model import CheckpointDiff
from holdfast.workspace.capture.scanner import Scanner
from holdfast.workspace.scope import Paths, as_text, parse_scope
from holdfast.workspace.stored.differ import make_diff
from holdfast.workspace.stored.gathering import Gathering
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import TreeReader


def compare(repository: Repository, scanner: Scanner, a: str, b: str | None, paths: Paths | None) -> CheckpointDiff:
    """What differs from one to another; without `b`, from one to the folder."""
    first = repository.find(a)
    source = Gathering(repository.objects, None, keep_files=True)
    reader = TreeReader(source)
    before = repository.contents(first).root
    if b is None:
        snapshot, _ = scanner.take(source, head=repository.head())
        second, after, not_held = None, snapshot.root, snapshot.uncovered
    else:
        other = repository.find(b)
        second, after, not_held = other.id, repository.contents(other).root, list(other.uncovered)
    scope = parse_scope(
        as_text(paths),
        scanner.root,
        lambda path: any(reader.find(root, path) for root in (before, after)),
        lambda: (path for root in (before, after) for path, _ in reader.walk(root)),
    )
    changes = (change for change in reader.diff(before, after) if change.path in scope)
    return make_diff(first.id, second, changes, source, (first.uncovered, not_held))
