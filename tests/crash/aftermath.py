"""What must be so after an interruption, whatever it was and wherever it struck (P1, P3)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast import Checkpoint, HoldfastError, Workspace, durable
from holdfast.testing.disk_contract import EntryDescription, describe
from holdfast.testing.disk_contract import differences as all_differences
from holdfast.testing.faulty_disks import CountingDisk, DiskCall, every_point
from holdfast.workspace.export import PREFIX

from .operations import LEAKED, STATE, Operation
from .scene import Scene

State = dict[str, EntryDescription]
_SHOWN = 4
_PURGED = 3  # how many checkpoints of that scene have to do with what is purged


def differences(before: State, after: State) -> list[str]:
    """What differs, as far as anybody will read it."""
    found = all_differences(before, after)
    return found if len(found) <= _SHOWN else [*found[:_SHOWN], f"and {len(found) - _SHOWN} more"]


@dataclass(frozen=True)
class Rehearsal:
    """An operation as it goes when nothing is wrong."""

    operation: Operation
    before: State
    after: State
    calls: list[DiskCall]
    refs: dict[str, str]
    """The checkpoints from before it, and their commits."""
    deleted: str
    """The id of the checkpoint that it deletes."""
    exported: State
    """What it exports."""


def rehearse(scene: Scene, operation: Operation) -> Rehearsal:
    """Prepare a scene, do the operation once, and put the scene back."""
    with durable.use_disk(CountingDisk()):
        operation.prepare(scene)
        deleted = scene.open().get(operation.deletes).id if operation.deletes else ""
    scene.keep()
    before, refs = scene.describe(), scene.refs()
    calls = every_point(lambda: operation.act(scene))
    after, exported = scene.describe(), scene.describe_exported()
    scene.reset()
    return Rehearsal(operation, before, after, calls, refs, deleted, exported)


class Aftermath:
    """The questions asked of a scene after an interruption."""

    def __init__(self, scene: Scene, rehearsal: Rehearsal) -> None:
        self._scene = scene
        self._rehearsal = rehearsal
        self._operation = rehearsal.operation

    def check(self, *, must_be: str = "old or new") -> None:
        """Open the workspace anew and ask everything. `must_be` is "old", "new" or "old or new"."""
        had_journal = self._scene.is_interrupted()
        problems: list[str] = []
        with durable.use_disk(CountingDisk()):
            ws = self._scene.open()
            for question in (
                lambda: self._check_recovery(ws, had_journal),
                lambda: self._check_workspace(must_be),
                lambda: self._check_checkpoints(ws, must_be),
                lambda: self._check_exported(ws, must_be),
                lambda: self._check_going_back(ws),
                lambda: self._check_next_calls(ws),
                self._check_purged,
                lambda: self._check_store(ws),
                self._check_leftovers,
            ):
                try:
                    question()
                except (AssertionError, HoldfastError) as error:
                    problems.append(f"{type(error).__name__}: {error}")
        if problems:
            raise AssertionError("; ".join(problems))

    def _check_recovery(self, ws: Workspace, had_journal: bool) -> None:
        assert not self._scene.journal.exists(), "the journal is still open"
        if had_journal:
            assert ws.recovered, "a restore was interrupted, and opening does not say what became of it"
            assert ws.recovered.outcome in ("finished", "rolled back")
            assert not ws.recovered.failed, f"recovery failed for {ws.recovered.failed}"
        else:
            assert ws.recovered is None

    def _check_workspace(self, must_be: str) -> None:
        now = self._scene.describe()
        from_old, from_new = (differences(state, now) for state in (self._rehearsal.before, self._rehearsal.after))
        if must_be == "old":
            assert not from_old, f"the workspace has changed: {from_old}"
        elif must_be == "new":
            assert not from_new, f"the workspace is not as it was to be: {from_new}"
        assert not from_old or not from_new, f"in between: {from_old} from the old, {from_new} from the new"

    def _check_checkpoints(self, ws: Workspace, must_be: str) -> None:
        """Those from before are untouched; a new one is whole."""
        expected = dict(self._rehearsal.refs)
        found = {checkpoint.id: checkpoint for checkpoint in ws.list(None, safety=True)}
        if self._operation.deletes and (must_be == "new" or self._rehearsal.deleted not in found):
            del expected[self._rehearsal.deleted]
            assert self._rehearsal.deleted not in found, "the deleted checkpoint is back"
        if self._operation.purges:
            rewritten = {key: found[key].commit for key in expected if key in found and found[key].purged}
            assert rewritten or must_be != "new", "the purge has returned, and no checkpoint is purged"
            expected |= rewritten
        if self._operation.pins:
            pinned = self._check_pinned(ws, must_be)
            expected[pinned.id] = pinned.commit
        lost = {key: commit for key, commit in expected.items() if key not in found or found[key].commit != commit}
        assert not lost, f"checkpoints from before are lost or changed: {lost}"
        made = [checkpoint for key, checkpoint in found.items() if key not in expected and not checkpoint.operation]
        assert len(made) <= self._operation.saves, f"checkpoints out of nowhere: {made}"
        assert made or not (self._operation.saves and must_be == "new"), "the saved checkpoint is not there"
        for checkpoint in made:
            self._check_made(ws, checkpoint)

    def _check_pinned(self, ws: Workspace, must_be: str) -> Checkpoint:
        """The one that was to be pinned is there: pinned under another commit, or not under the one it had."""
        pinned = ws.get(self._operation.pins)
        is_new = pinned.commit != self._rehearsal.refs[pinned.id]
        assert pinned.pinned == is_new, "the record and the commit are not of one time"
        assert must_be == "old or new" or is_new == (must_be == "new"), f"is not {must_be}"
        return pinned

    def _check_made(self, ws: Workspace, checkpoint: Checkpoint) -> None:
        """A checkpoint that is listed can be restored, state and all."""
        assert checkpoint.complete, f"the new checkpoint lacks {checkpoint.uncovered}"
        assert checkpoint.state == (STATE if "state" in self._operation.name else {})
        victim = self._scene.ws / "edit.txt"
        victim.write_text("overwritten\n")
        result = ws.restore(checkpoint.id)
        assert result.ok, f"the new checkpoint is not restored: {result.failed}"
        self._check_workspace("old")

    def _check_exported(self, ws: Workspace, must_be: str) -> None:
        """An export is whole or not there; what it left beside its place is named by the next one, which works."""
        if not self._operation.exports:
            return
        found = self._scene.describe_exported()
        assert found or must_be != "new", "what was exported is not there"
        assert not (found and must_be == "old"), "something was exported"
        wrong = differences(self._rehearsal.exported, found) if found else []
        assert not wrong, f"half an export looks like a whole one: {wrong}"
        left = sorted(map(str, self._scene.live.glob(f"{PREFIX}*")))
        again = ws.export("first", self._scene.live / "again")
        assert again.ok
        assert again.leftovers == left
        wrong = differences(self._rehearsal.exported, describe(self._scene.live / "again"))
        assert not [each for each in wrong if not each.startswith(".:")], f"the next export differs: {wrong}"

    def _check_going_back(self, ws: Workspace) -> None:
        """What was there before a restore can be had again (P1)."""
        if self._operation.restores and differences(self._rehearsal.before, self._scene.describe()):
            undone = ws.redo() if self._operation.name == "undo" else ws.undo()
            assert undone.ok, undone.failed
            lost = differences(self._rehearsal.before, self._scene.describe())
            assert not lost, f"what was there before cannot be had again: {lost}"

    def _check_next_calls(self, ws: Workspace) -> None:
        """The next save, restore and undo just work."""
        later = self._scene.ws / "later.txt"
        later.write_text("saved later\n")
        saved = self._scene.describe()
        checkpoint = ws.save("later")
        highest = max((_sequence(key) for key in self._rehearsal.refs), default=0)
        assert checkpoint.sequence > highest, "a number was given twice (P10)"
        later.write_text("and changed\n")
        changed = self._scene.describe()
        assert ws.restore(checkpoint.id).ok
        assert not differences(saved, self._scene.describe()), "the next restore went wrong"
        assert ws.undo().ok
        assert not differences(changed, self._scene.describe()), "the next undo went wrong"

    def _check_purged(self) -> None:
        """A purge that took anything out has taken out everything by now."""
        if not self._operation.purges:
            return
        purged = [each.id for each in self._scene.open().list(None, safety=True) if each.purged]
        text = self._scene.objects()
        assert not purged or LEAKED.strip().encode() not in text, f"{purged} are purged, and the content is there"
        if purged:
            assert len(purged) == _PURGED, f"only {purged} are purged"

    def _check_store(self, ws: Workspace) -> None:
        report = ws.verify()
        assert report.ok, f"verify finds {report.problems}"
        complaints = self._scene.fsck()
        assert not complaints, f"git fsck says {complaints}"

    def _check_leftovers(self) -> None:
        left = [str(path.relative_to(self._scene.live)) for path in self._scene.live.rglob("*") if is_left(path)]
        assert not left, f"left behind: {left}"


def _sequence(checkpoint_id: str) -> int:
    return int(checkpoint_id[1:].partition("-")[0])


def is_left(path: Path) -> bool:
    """Whether a file is one that only an operation under way may have."""
    name = path.name
    return (
        name.startswith(("tmp_", ".holdfast-restore-", "journal.", "purge."))
        or name.endswith(".new")
        or name == "thinning"
    )
