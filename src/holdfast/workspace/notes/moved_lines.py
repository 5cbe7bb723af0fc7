"""Runs of equal lines in two texts, wherever they are: what was moved, copied or brought back. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

ENOUGH_CHARS = 20
"""A shorter run, in letters and digits, may be equal by chance; git's own limit for moved lines."""
_MOST_PLACES = 16


def match_runs(
    source: Sequence[bytes], target: Sequence[bytes], wanted: Collection[int], *, among: Collection[int] | None = None
) -> dict[int, int]:
    """Return for lines of `target` the equal lines of `source`, as far as they are in a run that is long enough.

    wanted: the lines of `target` that are asked for. among: the lines of `source` that count; None: all. The longest
    run wins, then the first, and no line of `source` counts twice. Equal lines outside of such runs, such as empty
    ones, are not in the result.
    """
    left, free = set(wanted), set(range(len(source)) if among is None else among)
    places: dict[bytes, list[int]] = {}
    for at in sorted(free):
        places.setdefault(source[at], []).append(at)
    found: dict[int, int] = {}
    for line in sorted(left):
        starts = [at for at in places.get(target[line], ()) if at in free] if line in left else []
        if not starts or len(starts) > _MOST_PLACES or not _chars(target[line]):
            continue
        runs = (_run(source, target, line, at, left, free) for at in starts)
        start, at, length = max(runs, key=lambda run: (run[2], -run[1]))
        if sum(_chars(target[start + each]) for each in range(length)) >= ENOUGH_CHARS:
            found.update((start + each, at + each) for each in range(length))
            left.difference_update(range(start, start + length))
            free.difference_update(range(at, at + length))
    return found


def _run(
    source: Sequence[bytes], target: Sequence[bytes], line: int, at: int, left: set[int], free: set[int]
) -> tuple[int, int, int]:
    """Return the start in `target`, the start in `source` and the length of the run around two equal lines."""
    before = 0
    while (
        line - before - 1 in left and at - before - 1 in free and target[line - before - 1] == source[at - before - 1]
    ):
        before += 1
    after = 1
    while line + after in left and at + after in free and target[line + after] == source[at + after]:
        after += 1
    return line - before, at - before, before + after


def _chars(line: bytes) -> int:
    """Return how many letters and digits a line has; a byte that is not ASCII counts as one."""
    return sum(each > 127 or bytes((each,)).isalnum() for each in line)
