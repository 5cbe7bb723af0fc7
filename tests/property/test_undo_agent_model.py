"""Undoing one agent among several at work, against a simple model.

The files are lists of slots, with a line between every two that nobody touches. An edit replaces a slot, or empties it;
files come, go and are renamed. The model applies the edits of everybody else alone, in order. Where somebody edited a
slot after the agent (or the agent's file), what the user last wrote must still be there, and the conflict be named.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from holdfast import Workspace
from holdfast.testing.contracts import describe, differences

A, B, USER = "claude-code", "codex", "user"
FILES = ["one", "two", "folder/three"]
SLOTS = 6


class Edit(NamedTuple):
    """Somebody gives a slot of a file a text that nobody else writes; None takes it away."""

    actor: str
    file: str
    slot: int
    text: str | None
    is_saved: bool


EDITS = st.lists(
    st.builds(
        Edit,
        actor=st.sampled_from([A, A, B, USER]),
        file=st.sampled_from(FILES),
        slot=st.integers(0, SLOTS - 1),
        text=st.sampled_from([None, "new", "new", "new"]),
        is_saved=st.sampled_from([True, True, False]),
    ),
    max_size=12,
)

Slots = dict[str, list[str | None]]


def fresh() -> Slots:
    return {file: [f"slot {slot}" for slot in range(SLOTS)] for file in FILES}


def spelled(slots: list[str | None]) -> str:
    return "".join((f"{text}\n" if text is not None else "") + f"-- {slot}\n" for slot, text in enumerate(slots))


@contextmanager
def scene() -> Iterator[tuple[Path, Workspace]]:
    area = Path(os.path.realpath(tempfile.mkdtemp(prefix="holdfast-agents-")))
    try:
        (area / "project" / "folder").mkdir(parents=True)
        (area / "home").mkdir()
        yield area / "project", Workspace(area / "project", store=area / "store", home=area / "home", environ={})
    finally:
        shutil.rmtree(area)


def write(root: Path, slots: Slots) -> None:
    for file, found in slots.items():
        if not (root / file).exists() or (root / file).read_text() != spelled(found):
            (root / file).write_text(spelled(found))


def numbered(edits: list[Edit]) -> list[Edit]:
    """Edits with texts that are all different, without those that change nothing."""
    found, now = [], fresh()
    for number, edit in enumerate(edits):
        edit = edit._replace(text=edit.text and f"{edit.actor} {number}")
        if now[edit.file][edit.slot] != edit.text:
            now[edit.file][edit.slot] = edit.text
            found.append(edit)
    return found


def play(root: Path, ws: Workspace, edits: list[Edit]) -> None:
    """Carry out edits, each window closed by its actor; those that nobody closes are the user's."""
    now, open_window = fresh(), None
    for edit in edits:
        if open_window not in (None, edit.actor):
            ws.save("", actor=None if open_window == USER else open_window)
        now[edit.file][edit.slot] = edit.text
        write(root, now)
        open_window = edit.actor
        if edit.is_saved:
            ws.save("", actor=None if edit.actor == USER else edit.actor)
            open_window = None
    if open_window not in (None, USER):
        ws.save("", actor=open_window)


def overlapping(edits: list[Edit]) -> set[str]:
    """The files of which somebody else edited a slot after the agent did."""
    touched: set[tuple[str, int]] = set()
    found = set()
    for edit in edits:
        place = (edit.file, edit.slot)
        if edit.actor == A:
            touched.add(place)
        elif place in touched:
            found.add(edit.file)
    return found


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(edits=EDITS.map(numbered))
def test_what_is_left_is_what_the_others_did(edits: list[Edit]) -> None:
    with scene() as (root, ws):
        write(root, fresh())
        start = ws.save("start")
        play(root, ws, edits)
        before = describe(root)
        texts = {file: (root / file).read_text() for file in FILES}
        done = ws.restore(start.id, keep_mine=True, agent=A)
        note(f"{done}")
        assert not done.failed
        expected, mixed = fresh(), overlapping(edits)
        for edit in edits:
            if edit.actor != A:
                expected[edit.file][edit.slot] = edit.text
        for file in set(FILES) - mixed:
            assert (root / file).read_text() == spelled(expected[file]), file
        assert set(done.conflicts) <= mixed, "a conflict where nobody met anybody"
        for file in mixed:
            _check_mixed(texts[file], (root / file).read_text(), is_named=file in done.conflicts)
        after = describe(root)
        assert ws.undo().ok
        assert differences(before, describe(root)) == [], "the undo of the undo is not exact"
        assert ws.redo().ok
        assert differences(after, describe(root)) == []


def _check_mixed(before: str, after: str, *, is_named: bool) -> None:
    """Every line of others that was there still is, and one of the agent only if it is named."""
    for line in before.splitlines():
        assert line.startswith(A) or line in after.splitlines(), f"{line} is lost"
    left = [line for line in after.splitlines() if line.startswith(A)]
    assert is_named or not left, f"{left} are still there, and nobody says so"


# files that come, go and move


class Deed(NamedTuple):
    """Somebody does something to a whole file."""

    actor: str
    what: str  # "make" | "edit" | "delete" | "rename"
    file: str


NAMES = ["a", "b", "d/c", "d/e"]
DEEDS = st.lists(
    st.builds(
        Deed,
        actor=st.sampled_from([A, B, USER]),
        what=st.sampled_from(["make", "edit", "delete", "rename"]),
        file=st.sampled_from(NAMES),
    ),
    max_size=9,
)


def do(root: Path, deed: Deed, number: int) -> bool:
    place = root / deed.file
    body = [f"{deed.file} {number} {line}\n" for line in range(12)]
    if deed.what == "make" and not place.exists():
        place.parent.mkdir(exist_ok=True)
        place.write_text("".join(body))
    elif deed.what == "edit" and place.exists():
        place.write_text(f"{deed.actor} {number}\n" + place.read_text())
    elif deed.what == "delete" and place.exists():
        place.unlink()
    elif deed.what == "rename" and place.exists() and not place.with_name(f"{place.name}2").exists():
        place.rename(place.with_name(f"{place.name}2"))
    else:
        return False
    return True


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(deeds=DEEDS)
def test_no_line_of_the_user_is_lost_and_none_of_the_agent_is_left_unnamed(deeds: list[Deed]) -> None:
    with scene() as (root, ws):
        for number, name in enumerate(NAMES[:3]):
            do(root, Deed(USER, "make", name), 100 + number)
        start = ws.save("start")
        for number, deed in enumerate(deeds):
            if do(root, deed, number):
                note(f"{number} {deed}")
                ws.save(str(number), actor=None if deed.actor == USER else deed.actor)
        before, mine = describe(root), lines_of(root, USER)
        done = ws.restore(start.id, keep_mine=True, agent=A)
        note(f"{done}")
        assert not done.failed
        assert mine <= lines_of(root, USER), "a line of the user is lost"
        named = set(done.conflicts)
        for path in root.rglob("*"):
            if path.is_file() and any(line.startswith(A) for line in path.read_text().splitlines()):
                assert str(path.relative_to(root)) in named, f"{path} has work of the agent, and nobody says so"
        assert ws.undo().ok
        assert differences(before, describe(root)) == []
        assert ws.verify().ok


def lines_of(root: Path, actor: str) -> set[str]:
    texts = [path.read_text() for path in root.rglob("*") if path.is_file()]
    return {line for text in texts for line in text.splitlines() if line.startswith(actor)}
