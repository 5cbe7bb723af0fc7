"""Upkeep: what goes, what stays and why, disk that is really freed, pins, deltas."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Checkpoint, Damaged, NotFound, Refused, Unavailable, Workspace
from holdfast.retention import Policy
from holdfast.testing.disk_contract import describe, differences
from holdfast.workspace.restore.journal import Journal, JournalEntry
from holdfast.workspace.upkeep.prune import UNDO_STEPS


def save(project: Any, ws: Workspace, text: str, **options: Any) -> Checkpoint:
    project.write("file", text.encode())
    return ws.save(text, **options)


def ids(checkpoints: list[Checkpoint]) -> list[str]:
    return [each.id for each in checkpoints]


def packs_bytes(ws: Workspace) -> int:
    return sum(path.stat().st_size for path in (ws.store / "objects" / "pack").iterdir())


@pytest.fixture
def five(project: Any, ws: Workspace) -> list[str]:
    return [save(project, ws, f"text {number}").id for number in range(5)]


class TestDeciding:
    def test_a_dry_run_tells_and_changes_nothing(self, ws: Workspace, five: list[str]) -> None:
        before = packs_bytes(ws)
        plan = ws.prune(Policy(keep_last=2))
        assert ids(plan.removed) == five[:3]
        assert plan.kept == {five[3]: "among the last 2", five[4]: "current"}
        assert plan and not plan.is_done
        assert len(ws.list()) == 5 and packs_bytes(ws) == before

    def test_a_policy_without_a_reason_keeps_all(self, ws: Workspace, five: list[str]) -> None:
        assert not ws.prune(Policy(), dry_run=False)
        assert len(ws.list()) == 5

    def test_a_policy_that_would_take_everything_keeps_the_current(self, ws: Workspace, five: list[str]) -> None:
        assert ids(ws.prune(Policy(keep_last=0), dry_run=False).removed) == five[:4]
        assert ids(ws.list()) == five[4:]

    def test_a_store_without_checkpoints_has_nothing_to_prune(self, ws: Workspace) -> None:
        assert ws.prune(Policy(keep_last=0), dry_run=False).removed == []

    def test_what_is_pinned_or_named_is_never_taken(self, project: Any, ws: Workspace, five: list[str]) -> None:
        named = save(project, ws, "named", name="good")
        pinned = save(project, ws, "pinned", pinned=True)
        save(project, ws, "last")
        kept = ws.prune(Policy(keep_last=0, max_bytes=0)).kept
        assert (kept[named.id], kept[pinned.id]) == ("named", "pinned")

    def test_the_current_one_and_the_latest_are_never_taken(self, project: Any, ws: Workspace, five: list[str]) -> None:
        ws.restore(five[1])
        kept = ws.prune(Policy(keep_last=0)).kept
        assert kept[five[1]] == "current"
        assert kept[five[4]] == "the latest"
        assert five[0] not in kept

    def test_age_is_told_by_the_clock_that_was_handed_in(self, project: Any) -> None:
        now = datetime(2024, 1, 1, tzinfo=UTC)
        ws = project.open(clock=lambda: now)
        old = save(project, ws, "old").id
        now += timedelta(days=40)
        save(project, ws, "young")
        save(project, ws, "younger")
        assert ids(ws.prune(Policy(keep_for=timedelta(days=30))).removed) == [old]

    def test_each_session_keeps_its_last(self, project: Any, ws: Workspace) -> None:
        saved = [save(project, ws, f"{number}", session="ab"[number % 2]) for number in range(6)]
        assert ids(ws.prune(Policy(keep_last_per_session=1)).removed) == ids(saved[:4])

    def test_a_type_in_the_metadata_may_have_a_policy_of_its_own(self, project: Any, ws: Workspace) -> None:
        saved = [save(project, ws, f"{number}", metadata={"type": "ab"[number % 2]}) for number in range(4)]
        save(project, ws, "last", metadata={"type": ["not", "text"]})
        policy = Policy(keep_last=0, by_kind={"a": Policy(keep_last=1), "b": None})
        assert ids(ws.prune(policy).removed) == [saved[0].id]

    def test_a_restore_that_has_not_ended_keeps_what_it_needs(
        self, project: Any, ws: Workspace, five: list[str]
    ) -> None:
        journal = Journal(project.store / "holdfast")
        journal.open(
            JournalEntry("restore", five[0], five[1], None, [], False, ".holdfast-restore-00000000", "x", 1, 1)
        )
        assert ws.prune(Policy(keep_last=1)).kept.keys() == {five[0], five[1], five[4]}

    def test_a_cap_takes_the_oldest_until_the_rest_fits(self, project: Any, ws: Workspace) -> None:
        for number in range(5):
            project.write("large", os.urandom(50_000))
            ws.save(f"{number}")
        saved = ids(ws.list())[::-1]
        plan = ws.prune(Policy(max_bytes=130_000))
        assert ids(plan.removed) == saved[:3]
        assert 150_000 < plan.bytes_freed < 160_000
        assert ids(ws.prune(Policy(max_bytes=1 << 30)).removed) == []
        assert ids(ws.prune(Policy(keep_last=4, max_bytes=180_000)).removed) == saved[:2]

    def test_nothing_goes_that_is_not_in_the_plan_that_was_shown(
        self, project: Any, ws: Workspace, five: list[str]
    ) -> None:
        plan = ws.prune(Policy(keep_last=2))
        later = save(project, ws, "meanwhile")
        done = ws.prune(Policy(keep_last=2), dry_run=False, plan=plan)
        assert ids(done.removed) == five[:3]
        assert done.kept == {five[3]: "not in the plan", five[4]: "among the last 2", later.id: "current"}

    def test_a_cap_that_cannot_be_met_is_told(self, project: Any, ws: Workspace, five: list[str]) -> None:
        project.write("large", os.urandom(100_000))
        ws.save("large", pinned=True)
        project.write("large", b"")
        ws.save("small")
        for dry_run in (True, False):
            done = ws.prune(Policy(max_bytes=50_000), dry_run=dry_run)
            assert 50_000 < done.over_bytes < 60_000
            assert [why for why in done.kept.values() if why == "pinned"] == ["pinned"]
        assert ws.prune(Policy(max_bytes=10_000_000)).over_bytes == 0


class TestHistory:
    def test_what_an_undo_and_a_redo_need_is_never_taken(self, project: Any, ws: Workspace, five: list[str]) -> None:
        first = ws.restore(five[1]).undo_id
        second = ws.restore(five[2]).undo_id
        third = ws.undo().undo_id
        kept = ws.prune(Policy(keep_last=0, max_bytes=0), dry_run=False).kept
        assert {first, second, third, five[1]} <= kept.keys()
        ws.redo()
        assert (project.root / "file").read_text() == "text 2"
        ws.undo()
        ws.undo()
        assert (project.root / "file").read_text() == "text 4"
        with pytest.raises(NotFound):
            ws.undo()

    def test_unneeded_safety_checkpoints_go_by_the_same_rules(
        self, project: Any, ws: Workspace, five: list[str]
    ) -> None:
        first = ws.restore(five[1]).undo_id
        second = ws.undo().undo_id
        third = ws.restore(five[2]).undo_id
        assert ids(ws.prune(Policy(keep_last=0)).removed) == [*five[:2], five[3], first, second]
        assert ids(ws.prune(Policy(keep_last=0, by_kind={"safety": None})).removed) == [*five[:2], five[3]]
        done = ws.prune(Policy(keep_last=2, by_kind={"safety": Policy(keep_last=0)}), dry_run=False)
        assert {first, second} <= set(ids(done.removed))
        assert third in done.kept

    def test_one_that_was_undone_stays_undone(self, project: Any, ws: Workspace, five: list[str]) -> None:
        """A restore and its undo: without the undo, the restore would seem to be one that can be undone."""
        undone = ws.restore(five[1]).undo_id
        undo = ws.undo().undo_id
        done = ws.restore(five[2]).undo_id
        policy = Policy(keep_last=0, by_kind={"safety": Policy(keep_every=int(undone[1:].partition("-")[0]))})
        assert ws.prune(policy, dry_run=False).kept[undo] == "records what was undone"
        stack = ws._repository.undo_stack()
        assert (ids(stack.done), ids(stack.undone)) == ([done], [])

    def test_undone_restore_goes_though_an_earlier_one_stays(
        self, project: Any, ws: Workspace, five: list[str]
    ) -> None:
        first = ws.restore(five[1]).undo_id
        project.write("large", os.urandom(100_000))
        undone = ws.restore(five[2]).undo_id
        undo = ws.undo().undo_id
        (project.root / "large").unlink()
        last = ws.restore(five[3]).undo_id
        done = ws.prune(Policy(max_bytes=50_000), dry_run=False)
        assert undone in ids(done.removed) and undo not in ids(ws._repository.undo_stack().undone)
        assert ids(ws._repository.undo_stack().done) == [first, last]
        assert packs_bytes(ws) < 50_000

    def test_restores_that_nobody_undoes_do_not_gather_for_ever(
        self, project: Any, ws: Workspace, five: list[str]
    ) -> None:
        for number in range(UNDO_STEPS + 5):
            project.write("file", b"before restore %d" % number)
            ws.restore(five[number % 2])
        ws.prune(Policy(keep_last=2), dry_run=False)
        assert len(ws.list(None, safety=True)) - len(ws.list(None)) == UNDO_STEPS
        for number in reversed(range(5, UNDO_STEPS + 5)):
            assert ws.undo().ok
            assert (project.root / "file").read_bytes() == b"before restore %d" % number
        with pytest.raises(NotFound):
            ws.undo()


class TestFreeing:
    def test_the_disk_that_only_they_needed_is_free(self, project: Any, ws: Workspace) -> None:
        for number in range(4):
            project.write("large", os.urandom(300_000))
            save(project, ws, f"{number}")
        told = ws.prune(Policy(keep_last=1)).bytes_freed
        before = packs_bytes(ws)
        done = ws.prune(Policy(keep_last=1), dry_run=False)
        freed = before - packs_bytes(ws)
        assert told == freed - 4 * (12 + 20 + 8 + 1024 + 40), "and the frames of four packs and their indexes"
        assert done.bytes_freed == told, "estimate and result are one measure"
        assert ws.verify().ok

    def test_what_stays_is_whole(self, project: Any, ws: Workspace, five: list[str], git: Callable[..., bytes]) -> None:
        ws.prune(Policy(keep_last=2), dry_run=False)
        for key, text in ((five[3], "text 3"), (five[4], "text 4")):
            assert ws.restore(key).ok
            assert (project.root / "file").read_text() == text
        assert ws.verify().ok
        git(f"--git-dir={ws.store}", "fsck", "--strict")

    def test_a_number_is_not_given_again(self, project: Any, ws: Workspace, five: list[str]) -> None:
        ws.prune(Policy(keep_last=0), dry_run=False)
        ws.delete(five[4])
        assert save(project, ws, "next").sequence == 6

    def test_lazily_it_is_freed_once_there_is_enough(self, project: Any, ws: Workspace) -> None:
        sizes = []
        for number in range(12):
            project.write("large", os.urandom(100_000))
            save(project, ws, f"{number}")
            ws.prune(Policy(keep_last=1), dry_run=False, lazily=True)
            sizes.append(packs_bytes(ws))
        assert len(ws.list()) == 1
        assert max(sizes) > 800_000, "not at once"
        assert min(sizes[8:]) < 200_000, "but before it is too much"

    def test_nothing_is_dropped_while_a_checkpoint_cannot_be_read(self, project: Any, ws: Workspace) -> None:
        (project.root / "folder").mkdir()
        for number in range(3):
            project.write("folder/file", str(number).encode())
            save(project, ws, f"{number}")
        tree = subprocess.run(
            ["git", f"--git-dir={ws.store}", "rev-parse", f"{ws.get('latest').id}:files/folder"],
            check=True,
            capture_output=True,
        )
        pack = next(
            each.path
            for each in ws._repository.objects.packs()
            if each.find(bytes.fromhex(tree.stdout.decode().strip())) is not None
        )
        data = bytearray(pack.read_bytes())
        at = ws._repository.objects._find(bytes.fromhex(tree.stdout.decode().strip())).offset
        data[at + 5] ^= 0xFF
        os.chmod(pack, 0o600)
        pack.write_bytes(data)
        before = packs_bytes(ws)
        with pytest.raises(Damaged):
            project.open().prune(Policy(keep_last=1), dry_run=False)
        assert packs_bytes(ws) == before
        assert len(project.open().list(None)) == 3, "it raised, and checkpoints are gone all the same"

    def test_full_disk_reports_deleted_but_not_freed(
        self, project: Any, ws: Workspace, five: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(ws._repository, "merge", refuse)
        with pytest.raises(Unavailable, match="4 checkpoints were deleted, but"):
            ws.prune(Policy(keep_last=1), dry_run=False)
        assert len(ws.list()) == 1


class TestPinning:
    def test_it_stays_the_same_checkpoint(self, project: Any, ws: Workspace, five: list[str]) -> None:
        before = ws.get(five[1])
        pinned = ws.pin(five[1])
        assert pinned.pinned
        assert (pinned.id, pinned.sequence, pinned.timestamp) == (before.id, before.sequence, before.timestamp)
        for each in (ws, project.open()):
            assert each.get(five[1]) == pinned
            assert each.get(five[1]).commit != before.commit
        assert ws.restore(five[1]).ok
        assert (project.root / "file").read_text() == "text 1"
        assert ws.verify().ok

    def test_it_can_be_taken_back(self, ws: Workspace, five: list[str]) -> None:
        before = ws.get(five[1])
        ws.pin(five[1])
        assert ws.pin(five[1], pinned=False) == before
        assert ws.get(five[1]).commit == before.commit

    def test_nothing_is_written_where_nothing_changes(self, ws: Workspace, five: list[str]) -> None:
        before = packs_bytes(ws)
        assert ws.pin(five[1], pinned=False).id == five[1]
        assert packs_bytes(ws) == before

    def test_another_process_sees_it_at_once(self, project: Any, ws: Workspace, five: list[str]) -> None:
        other = project.open()
        assert not other.get(five[1]).pinned
        ws.pin(five[1])
        assert other.get(five[1]).pinned

    def test_pin_takes_no_number(self, project: Any, ws: Workspace) -> None:
        saved = ws.save("one")
        with pytest.raises(Refused, match="pinned is 1"):
            ws.pin(saved.id, 1)  # type: ignore[arg-type]
        assert ws.get(saved.id) == saved

    def test_no_message_is_an_empty_one(self, project: Any, ws: Workspace) -> None:
        ws.save(None)  # type: ignore[arg-type]
        assert [each.message for each in ws.list()] == [""]

    def test_one_that_is_not_there_is_not_pinned(self, ws: Workspace) -> None:
        with pytest.raises(NotFound):
            ws.pin("a9")


class TestCompacting:
    @pytest.fixture
    def texts(self, project: Any, ws: Workspace) -> list[str]:
        lines = [f"line {number} of something that is long enough to be worth a delta\n" for number in range(500)]
        for number in range(10):
            lines[number * 7] = f"changed in {number}\n"
            project.write("file", "".join(lines).encode())
            ws.save(f"{number}")
        return ids(ws.list())

    def test_git_makes_deltas_and_everything_is_read_as_before(
        self, project: Any, ws: Workspace, texts: list[str], git: Callable[..., bytes]
    ) -> None:
        states = {}
        for key in texts:
            ws.restore(key)
            states[key] = describe(project.root)
        ws.merge()
        merged = packs_bytes(ws)
        done = ws.compact()
        assert done.by_git and not done.note
        assert done.after_bytes < done.before_bytes
        assert packs_bytes(ws) < merged / 2
        for key in texts:
            assert ws.restore(key).ok
            assert not differences(states[key], describe(project.root))
        assert project.open().verify().ok
        git(f"--git-dir={ws.store}", "fsck", "--strict")

    def test_what_nothing_needs_is_dropped(self, project: Any, ws: Workspace, texts: list[str]) -> None:
        project.write("large", os.urandom(500_000))
        ws.delete(ws.save("large").id)
        ws.compact()
        assert packs_bytes(ws) < 100_000

    def test_deltas_outlive_a_prune(self, project: Any, ws: Workspace, texts: list[str]) -> None:
        ws.compact()
        compact = packs_bytes(ws)
        save(project, ws, "one more")
        ws.prune(Policy(keep_last=9), dry_run=False)
        assert packs_bytes(ws) < compact * 1.2
        assert project.open().verify().ok
        for key in texts[:8]:
            assert ws.restore(key).ok

    def test_a_second_time_nothing_is_done(self, ws: Workspace, texts: list[str]) -> None:
        ws.compact()
        packs = [(path.name, path.stat().st_ino) for path in sorted((ws.store / "objects/pack").iterdir())]
        assert ws.compact().by_git
        assert [(path.name, path.stat().st_ino) for path in sorted((ws.store / "objects/pack").iterdir())] == packs

    def test_without_git_packs_are_merged_and_reported(self, project: Any, texts: list[str], tmp_path: Path) -> None:
        done = project.open(environ={"PATH": str(tmp_path)}).compact()
        assert not done.by_git
        assert "git" in done.note
        assert len(list((project.store / "objects/pack").glob("*.pack"))) == 1

    def test_a_git_that_fails_leaves_the_packs_as_they_were(
        self, project: Any, texts: list[str], tmp_path: Path
    ) -> None:
        program = tmp_path / "bin" / "git"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\ntouch objects/pack/tmp_pack_half\necho 'fatal: no' >&2\nexit 128\n")
        program.chmod(0o755)
        before = sorted(os.listdir(project.store / "objects/pack"))
        with pytest.raises(Unavailable, match="fatal: no"):
            project.open(environ={"PATH": str(program.parent)}).compact()
        assert sorted(os.listdir(project.store / "objects/pack")) == before

    def test_a_pack_that_lacks_something_is_not_taken(
        self, project: Any, texts: list[str], tmp_path: Path, git: Callable[..., bytes]
    ) -> None:
        """A git that packs less than the checkpoints need, for whatever reason."""
        program = tmp_path / "bin" / "git"
        program.parent.mkdir()
        program.write_text(
            "#!/bin/sh\n"
            'case "$*" in *pack-objects*) for last; do :; done\n'
            f"git rev-parse {texts[0]} | git pack-objects -q $last; exit;; esac\n"
            'exec git "$@"\n'
        )
        program.chmod(0o755)
        before = sorted(os.listdir(project.store / "objects/pack"))
        with pytest.raises(Damaged, match="left out objects"):
            project.open(environ={"PATH": str(program.parent)}).compact()
        assert sorted(os.listdir(project.store / "objects/pack")) == before

    def test_a_pack_whose_bytes_are_not_sound_is_not_taken(
        self, project: Any, ws: Workspace, texts: list[str], tmp_path: Path, git: Callable[..., bytes]
    ) -> None:
        """A disk that does not keep what git writes."""
        program = tmp_path / "bin" / "git"
        program.parent.mkdir()
        program.write_text(
            "#!/bin/sh\n"
            'git "$@" || exit\n'
            'case "$*" in *pack-objects*) for pack in objects/pack/tmp_compact*.pack; do chmod u+w "$pack"\n'
            'dd if=/dev/zero of="$pack" bs=1 count=40 seek=200 conv=notrunc 2>/dev/null; done;; esac\n'
        )
        program.chmod(0o755)
        before = sorted(os.listdir(project.store / "objects/pack"))
        with pytest.raises(Unavailable, match="could not compact"):
            project.open(environ={"PATH": str(program.parent)}).compact()
        assert sorted(os.listdir(project.store / "objects/pack")) == before
        assert project.open().verify().ok

    def test_the_users_git_settings_have_no_say(self, project: Any, ws: Workspace, texts: list[str]) -> None:
        (project.home / ".gitconfig").write_text("[pack]\n\tpackSizeLimit = 1\n[core]\n\tbare = nonsense\n")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(project.home))
            patch.setenv("GIT_DIR", "/nonexistent")
            patch.setenv("GIT_OBJECT_DIRECTORY", "/nonexistent")
            assert ws.compact().by_git
        assert ws.verify().ok

    def test_git_hears_of_nothing_but_what_is_ours(self, project: Any, texts: list[str], tmp_path: Path) -> None:
        """Nor may it take all memory, or chain deltas for ever."""
        program = tmp_path / "bin" / "git"
        program.parent.mkdir()
        program.write_text(
            "#!/bin/sh\n"
            f'cat /proc/$$/environ >> {tmp_path}/heard; printf "%s\\0" "$PWD" "$@" >> {tmp_path}/told\n'
            'exec git "$@"\n'
        )
        program.chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GIT_ALTERNATE_OBJECT_DIRECTORIES", "/nonexistent")
            assert project.open(environ={"PATH": str(program.parent)}).compact().by_git
        assert set((tmp_path / "heard").read_text().split("\0")) == {
            f"GIT_DIR={project.store}",
            f"PATH={os.defpath}",
            "LC_ALL=C",
            "HOME=/dev/null",
            "GIT_CONFIG_NOSYSTEM=1",
            "GIT_CONFIG_GLOBAL=/dev/null",
            "GIT_ATTR_NOSYSTEM=1",
            "GIT_NO_LAZY_FETCH=1",
            "GIT_ALLOW_PROTOCOL=none",
            "GIT_NO_REPLACE_OBJECTS=1",
            "GIT_OPTIONAL_LOCKS=0",
            "GIT_TERMINAL_PROMPT=0",
            "",
        }
        told = (tmp_path / "told").read_text().split("\0")
        assert {"pack.windowMemory=256m", "--window=50", "--depth=20", "--no-reuse-object"} <= set(told)
        assert str(project.store) in told  # where it runs, too: the folder of who asks may be gone

    def test_a_git_that_is_none_leaves_the_packs_as_they_were(
        self, project: Any, texts: list[str], tmp_path: Path
    ) -> None:
        program = tmp_path / "bin" / "git"
        program.parent.mkdir()
        program.write_bytes(b"\0of another kind of machine")
        program.chmod(0o755)
        before = sorted(os.listdir(project.store / "objects/pack"))
        with pytest.raises(Unavailable, match="cannot be run"):
            project.open(environ={"PATH": str(program.parent)}).compact()
        assert sorted(os.listdir(project.store / "objects/pack")) == before

    def test_one_pack_is_made_that_only_the_user_can_read(self, project: Any, ws: Workspace) -> None:
        for seed in range(4):
            project.write(f"{seed}", random.Random(seed // 2).randbytes(400_000) + b"%d" % seed)  # pairs: deltas pay
        ws.save("one")
        assert ws.compact().by_git
        packs = list((project.store / "objects/pack").iterdir())
        assert sorted(path.suffix for path in packs) == [".idx", ".pack"]
        assert not any(path.stat().st_mode & 0o077 for path in packs), "others can read it"
        assert project.open().verify().ok

    def test_what_git_packs_to_the_very_same_pack_is_kept(self, project: Any, ws: Workspace) -> None:
        """Where there is nothing to make a delta of, it is packed each time."""
        save(project, ws, "the only one")
        for _ in range(2):
            ws.compact()
            assert project.open().verify().ok


class TestDeltas:
    def test_deltas_that_save_nothing_are_not_kept(self, project: Any, ws: Workspace) -> None:
        for number in range(300):
            project.write(f"folder/{number}", os.urandom(60))
        save(project, ws, "one")
        before = packs_bytes(ws)
        done = ws.compact()
        assert not done.by_git and "merged without" in done.note
        assert packs_bytes(ws) <= before
        assert ws.verify().ok and not list((ws.store / "objects" / "pack").glob("tmp_*"))

    def test_deltas_that_save_much_are_kept_and_read_in_any_order(self, project: Any, ws: Workspace) -> None:
        lines = [f"line {number} of a file that hardly changes, {os.urandom(8).hex()}\n" for number in range(200)]
        contents = []
        for number in range(30):
            lines[number] = f"changed {number}\n"
            contents.append("".join(lines).encode())
            project.write("large", contents[-1])
            save(project, ws, str(number), name=f"n{number}")
        before = packs_bytes(ws)
        done = ws.compact()
        assert done.by_git and packs_bytes(ws) < before / 2
        assert ws.verify().ok
        fresh = project.open()
        for number in (0, 29, 15, 3, 28, 0):
            assert fresh.restore(f"n{number}", ["large"]).ok
            assert (project.root / "large").read_bytes() == contents[number]
