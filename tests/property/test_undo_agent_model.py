"""Undoing one agent among several at work, against a simple model.

The files are lists of slots, with a line between every two that nobody touches. An edit replaces a slot, or empties it;
files come, go and are renamed. The model applies the edits of everybody else alone, in order. Where somebody edited a
slot after the agent (or the agent's file), what the user last wrote must still be there, and the conflict be named.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, note, settings
from hypothesis import strategies as st

from examples import examples
from holdfast import Workspace
from holdfast.mcp.tools import Tools
from holdfast.model import Restored
from holdfast.testing.disk_contract import describe, differences

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


@settings(max_examples=examples(50))
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


# actors that appear late


class Late(NamedTuple):
    """Something that happens while agents come and go; each has a server of its own, and writes when it likes."""

    what: str  # "write" | "save" | "begin": an agent begins, or begins anew, without a look
    who: str


LATE = st.lists(
    st.builds(Late, what=st.sampled_from(["write", "write", "save", "begin"]), who=st.sampled_from([A, B, USER])),
    max_size=16,
)


class Actors:
    """Plays what happens, and notes whose each file is for anybody who only sees the saves."""

    def __init__(self, root: Path, ws: Workspace) -> None:
        self._root, self._ws = root, ws
        self._servers: dict[str, Tools] = {}
        self._looked: set[str] = set()
        self._unsaved: dict[str, str] = {}
        self.certain: dict[str, str] = {}

    def play(self, number: int, each: Late) -> None:
        if each.what == "write":
            self._unsaved[f"{number}"] = each.who
            (self._root / f"{number}").write_text(f"{each.who} {number}\n")
        elif each.who == USER:
            self._ws.save(f"{number}")
            self._take(USER)
        elif each.what == "begin" or each.who not in self._servers:
            self._looked.discard(each.who)
            same = Workspace(self._root, store=self._ws.store, home=self._root.with_name("home"), environ={})
            self._servers[each.who] = Tools(same, actor=each.who)
        else:
            tools = self._servers[each.who]
            tools.call(tools.all["checkpoint_save"], {"message": f"{number}"}, client="")
            self._take(each.who if each.who in self._looked else USER)
            self._looked.add(each.who)

    def _take(self, actor: str) -> None:
        """Of one who saw only saves: what changed in a window is its actor's; two in one window are not told apart."""
        self.certain |= {name: actor for name, who in self._unsaved.items() if who == actor or actor == USER}
        self._unsaved.clear()


@settings(max_examples=examples(60))
@given(happened=LATE)
def test_what_an_actor_finds_when_it_appears_is_never_its_own(happened: list[Late]) -> None:
    with scene() as (root, ws):
        write(root, fresh())
        start = ws.save("start")
        actors = Actors(root, ws)
        for number, each in enumerate(happened):
            actors.play(number, each)
        done = ws.restore(start.id, keep_mine=True, agent=A)
        assert done.ok
        for name, who in actors.certain.items():
            assert (root / name).exists() == (who != A), f"{name} was of {who}"


# files that come, go and move


class Deed(NamedTuple):
    """Somebody does something to a whole file, or to two."""

    actor: str
    what: str  # "make" | "edit" | "delete" | "rename" | "swap" | "onto"
    file: str
    other: str


NAMES = ["a", "b", "d/c", "d/e"]
DEEDS = st.lists(
    st.builds(
        Deed,
        actor=st.sampled_from([A, B, USER]),
        what=st.sampled_from(["make", "edit", "delete", "rename", "swap", "onto"]),
        file=st.sampled_from([*NAMES, "d"]),
        other=st.sampled_from(NAMES),
    ),
    max_size=9,
)


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def do(root: Path, deed: Deed, number: int) -> bool:
    place, other = root / deed.file, root / deed.other
    body = [f"{deed.actor} made {deed.file} {number} {line}\n" for line in range(12)]
    is_pair = place.exists() and other.exists() and place not in (other, *other.parents)
    if deed.what == "make" and not place.exists() and not place.parent.is_file():
        place.parent.mkdir(exist_ok=True)
        place.write_text("".join(body))
    elif deed.what == "edit" and place.is_file():
        place.write_text(f"{deed.actor} {number}\n" + place.read_text())
    elif deed.what == "delete" and place.is_file():
        place.unlink()
    elif deed.what == "rename" and place.exists() and not place.with_name(f"{place.name}2").exists():
        place.rename(place.with_name(f"{place.name}2"))
    elif deed.what == "swap" and is_pair and other not in place.parents:
        swap(place, other)
    elif deed.what == "onto" and is_pair and place.is_file() and other.is_file():
        place.rename(other)
    else:
        return False
    return True


@settings(max_examples=examples(100))
@given(deeds=DEEDS)
def test_no_line_of_others_is_lost_and_none_of_the_agent_unnamed(deeds: list[Deed]) -> None:
    with scene() as (root, ws):
        for number, name in enumerate(NAMES[:3]):
            do(root, Deed(USER, "make", name, ""), 100 + number)
        start, there = ws.save("start"), lines_of(root, USER)
        done_by = set()
        for number, deed in enumerate(deeds):
            if do(root, deed, number):
                note(f"{number} {deed}")
                ws.save(str(number), actor=None if deed.actor == USER else deed.actor)
                done_by.add((deed.actor == A, deed.what))
        before, mine, theirs = describe(root), lines_of(root, USER), lines_of(root, B)
        done = ws.restore(start.id, keep_mine=True, agent=A)
        note(f"{done}")
        assert not done.failed
        assert mine <= lines_of(root, USER), "a line of the user is lost"
        assert theirs <= lines_of(root, B), "a line of the other agent is lost"
        if not done_by & {(False, "delete"), (False, "onto")} and not done.conflicts:
            assert there <= lines_of(root, USER), "what only the agent deleted is not back"
        for path in root.rglob("*"):
            if path.is_file() and any(line.startswith(A) for line in path.read_text().splitlines()):
                name = str(path.relative_to(root))
                assert name in done.conflicts, f"{name} has work of the agent, and nobody says so"
        _check_names(root, ws, done)
        assert ws.undo().ok
        assert differences(before, describe(root)) == []
        assert ws.verify().ok


def _check_names(root: Path, ws: Workspace, done: Restored) -> None:
    """A conflict is named as the folder has it, and can be looked up in both checkpoints."""
    for path, overlap in done.conflicts.items():
        assert os.path.lexists(root / path) or "no folder" in overlap.why, f"there is no {path}"
        for checkpoint, name in ((overlap.before, overlap.path_before), (overlap.after, overlap.path_after)):
            if checkpoint is not None and name is not None:
                held = root.with_name(checkpoint)
                if not held.exists():
                    ws.export(checkpoint, held)
                assert os.path.lexists(held / name), f"{checkpoint} has no {name}"
        assert overlap.path_before or overlap.path_after


def lines_of(root: Path, actor: str) -> set[str]:
    texts = [path.read_text() for path in root.rglob("*") if path.is_file()]
    return {line for text in texts for line in text.splitlines() if line.startswith(actor)}


# files that only change places


class Turn(NamedTuple):
    """Somebody writes into a line of its own, or (the agent) files change places in a circle of one to four."""

    actor: str
    files: list[int]
    is_edit: bool


PLACES = ["one", "two", "d/three", "d/four"]
TURNS = st.lists(
    st.builds(
        Turn,
        actor=st.sampled_from([A, A, B, USER]),
        files=st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True),
        is_edit=st.booleans(),
    ),
    max_size=8,
)
LINE_OF = {A: 1, B: 6, USER: 11}


def turn(root: Path, step: Turn, number: int) -> bool:
    places = [root / PLACES[index] for index in step.files]
    if step.is_edit or step.actor != A:
        for place in places[:1]:
            lines = place.read_text().splitlines()
            lines[LINE_OF[step.actor]] = f"{step.actor} {number}"
            place.write_text("\n".join(lines) + "\n")
        return True
    for one, other in itertools.pairwise(places):
        swap(one, other)
    return len(places) > 1


@settings(max_examples=examples(60))
@given(turns=TURNS)
def test_swapped_files_go_back_with_the_edits_of_others(turns: list[Turn]) -> None:
    with scene() as (root, ws):
        (root / "d").mkdir()
        for name in PLACES:
            (root / name).write_text("".join(f"{name} {line}\n" for line in range(14)))
        start, expected = ws.save("start"), {name: (root / name).read_text().splitlines() for name in PLACES}
        for number, step in enumerate(turns):
            if turn(root, step, number):
                note(f"{number} {step}")
                ws.save(str(number), actor=None if step.actor == USER else step.actor)
            if step.actor != A:
                name = (root / PLACES[step.files[0]]).read_text().partition(" ")[0]
                expected[name][LINE_OF[step.actor]] = f"{step.actor} {number}"
        done = ws.restore(start.id, keep_mine=True, agent=A)
        note(f"{done}")
        assert done.ok
        assert {name: (root / name).read_text().splitlines() for name in PLACES} == expected
