"""Thinning: which automatic checkpoints go, what stays whatever happens meanwhile, and how long the lock is held."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast import Checkpoint, Conflict, Damaged, Refused, Workspace, durable
from holdfast.retention import AUTOMATIC, Policy
from holdfast.testing.faulty_disks import CountingDisk, DiskCall
from holdfast.workspace import background
from holdfast.workspace.upkeep.growth import Thinned, read_report
from holdfast.workspace.upkeep.thinning import MAX_BYTES, MIN_CAP_BYTES, STEP_S, Thinner, _Needed, default_cap

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
NOTHING_KEPT = Policy(keep_for=timedelta(0))


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


class Scene:
    """A workspace with a clock, and ways to save in it."""

    def __init__(self, project: Any) -> None:
        self.project = project
        self.clock = Clock()
        self.ws: Workspace = project.open(clock=self.clock)
        self._random = random.Random(1)

    def save(self, message: str = "", *, after: timedelta = MINUTE, size: int = 100, **options: Any) -> Checkpoint:
        """Save something new, later."""
        self.clock.now += after
        self.project.write("file", self._random.randbytes(size))
        return self.ws.save(message, **options)

    def by_hook(self, turn: str = "", *, after: timedelta = MINUTE, actor: str | None = "claude-code") -> Checkpoint:
        """Save as a hook does."""
        metadata = {"type": "automatic", "agent": "claude-code", "event": "PostToolUse", "turn": turn}
        known = {key: value for key, value in metadata.items() if value}
        return self.save("tool", after=after, actor=actor, session="s", metadata=known)

    def ids(self) -> list[str]:
        return [each.id for each in reversed(self.ws.list(None, safety=True))]

    def thin(self, policy: Policy = AUTOMATIC, *, meanwhile: Callable[[], object] = lambda: None) -> Thinned:
        """Thin; `meanwhile` is called before each step, as another process would come in between."""
        thinner = Thinner(self.ws._repository, self.ws._writing, self.clock, wait=lambda _: meanwhile() and None)
        return thinner.run(policy)

    def check(self) -> None:
        assert self.ws.verify().ok


@pytest.fixture
def scene(project: Any) -> Scene:
    return Scene(project)


def once(work: Callable[[], object]) -> Callable[[], object]:
    """A function that does its work when it is first called."""
    left = [work]
    return lambda: left.pop()() if left else None


class TestWhatGoes:
    def test_automatic_ones_go_and_others_stay(self, scene: Scene) -> None:
        gone = [
            scene.by_hook("turn").id,
            scene.save(metadata={"type": "automatic", "watch": True}).id,
            scene.save(metadata={"before": "edit_file", "protection": True}).id,
        ]
        stay = [
            scene.save("by hand").id,
            scene.save(metadata={"before": "the release", "watch": "yes", "protection": "yes"}).id,  # as `--meta`
            scene.save(metadata={"agent": "me", "type": "session"}).id,
            scene.by_hook("before the last turn").id,
            scene.by_hook("last turn").id,
            scene.save(metadata={"type": "manual"}).id,
            scene.save(metadata={"type": "feature"}).id,
            scene.save(metadata={"type": "automatic", "project": "p"}).id,
            scene.save(metadata={"type": "automatic"}, name="named").id,
            scene.save(metadata={"type": "automatic"}, pinned=True).id,
            scene.save(metadata={"type": "automatic"}).id,
        ]
        assert scene.thin(NOTHING_KEPT).removed == len(gone)
        assert scene.ids() == stay
        scene.check()

    def test_empty_store_has_nothing_to_thin(self, scene: Scene) -> None:
        assert scene.ws.thin().removed == 0

    def test_last_green_stays(self, scene: Scene) -> None:
        older, green, red = (scene.by_hook(turn) for turn in ("t1", "t2", "t3"))
        for each, passed in ((older, True), (green, True), (red, False)):
            scene.ws.mark(each.id, "check", {"passed": passed})
        for turn in ("t4", "t5"):
            scene.by_hook(turn)
        scene.thin(NOTHING_KEPT)
        assert green.id in scene.ids() and scene.ws.get("last-green").id == green.id
        assert older.id not in scene.ids() and red.id not in scene.ids()
        scene.check()

    def test_one_that_turns_green_meanwhile_stays(self, scene: Scene) -> None:
        saved = [scene.by_hook(f"t{number}") for number in range(5)]
        scene.thin(NOTHING_KEPT, meanwhile=once(lambda: scene.ws.mark(saved[1].id, "check", {"passed": True})))
        assert saved[1].id in scene.ids() and saved[0].id not in scene.ids()
        scene.check()

    def test_safety_checkpoints_go_but_the_last_ten_undos(self, scene: Scene) -> None:
        first = scene.save("first")
        for _ in range(15):
            scene.save("more")
            scene.ws.restore(first.id)
        scene.save("last")
        safeties = [each.id for each in scene.ws.list(None, safety=True) if each.operation]
        scene.thin(NOTHING_KEPT)
        left = [each.id for each in scene.ws.list(None, safety=True) if each.operation]
        assert left == safeties[:10]
        scene.ws.restore(first.id)
        assert scene.ws.undo().ok

    def test_last_turn_stays_whole_for_its_undo(self, scene: Scene) -> None:
        for _ in range(3):
            scene.by_hook("first turn")
        before = scene.by_hook("first turn")
        turn = [scene.by_hook("last turn") for _ in range(4)]
        after = [scene.save("by hand", after=6 * HOUR) for _ in range(20)]
        scene.thin()
        assert scene.ids() == [each.id for each in (before, *turn, *after)]
        assert scene.ws.beginning("claude-code").id == before.id
        scene.ws.restore(before.id, keep_mine=True, agent="claude-code")  # not refused: nothing in between is deleted

    def test_configured_retention_keeps(self, scene: Scene) -> None:
        made = [scene.save(metadata={"before": "tool", "protection": True}).id for _ in range(6)]
        scene.ws.thin(NOTHING_KEPT, keep=Policy(keep_last=4))
        assert scene.ids() == made[2:]

    def test_cap_takes_the_oldest_automatic_ones(self, scene: Scene) -> None:
        manual = scene.save("by hand", size=100_000)
        made = [scene.save(metadata={"before": "tool", "protection": True}, size=100_000).id for _ in range(10)]
        done = scene.thin(Policy(keep_for=DAY, max_bytes=500_000))
        assert scene.ids() == [manual.id, *made[-3:]]
        assert done.freed_bytes > 600_000
        assert done.over_bytes == 0
        scene.check()

    def test_cap_that_manual_ones_exceed_is_reported(self, scene: Scene) -> None:
        for _ in range(3):
            scene.save("by hand", size=100_000)
        done = scene.thin(Policy(keep_for=DAY, max_bytes=150_000))
        assert done.removed == 0
        assert 150_000 < done.over_bytes < 160_000
        assert [each.code for each in scene.ws.status().attention] == ["cap"]

    def test_default_cap(self, tmp_path: Path) -> None:
        room = os.statvfs(tmp_path)
        free = room.f_bavail * room.f_frsize // 10
        assert abs(default_cap(tmp_path) - max(MIN_CAP_BYTES, min(MAX_BYTES, free))) <= free // 5


class TestClock:
    @pytest.fixture
    def week(self, scene: Scene) -> Scene:
        """A week of work whose last thinning is done."""
        for number in range(60):
            scene.by_hook(f"turn {number // 4}", after=3 * HOUR)
        scene.thin()
        return scene

    @pytest.mark.parametrize("jump", [timedelta(days=365), timedelta(days=-365), timedelta(days=365 * 50)])
    def test_wrong_clock_deletes_nothing(self, week: Scene, jump: timedelta) -> None:
        before = week.ids()
        week.clock.now += jump
        assert week.thin().removed == 0
        made = [week.by_hook("another").id for _ in range(5)]
        assert week.thin().removed == 0
        week.clock.now -= jump
        made += [week.by_hook("another").id for _ in range(5)]
        assert week.thin().removed == 0
        assert week.ids() == before + made

    def test_pause_deletes_nothing_until_a_day_later(self, week: Scene) -> None:
        before = week.ids()
        week.by_hook("back", after=60 * DAY)
        assert week.thin().removed == 0
        for _ in range(30):
            week.by_hook("back", after=HOUR)
        week.thin()
        assert set(before) & set(week.ids()) == {before[-1]}  # which undoing the last turn needs


@pytest.mark.slow
def test_months_of_use(scene: Scene) -> None:
    """Ten weeks of four turns a day, thinned daily."""
    manual = []
    for day in range(70):
        for number in range(16):
            scene.by_hook(f"{day}.{number // 4}", after=15 * MINUTE)
        manual.append(scene.save("end of the day").id)
        scene.clock.now = START + (day + 1) * DAY
        scene.thin()
    found = scene.ws.list(None)
    by_agent = [each for each in found if each.actor]
    left = {days: sum(scene.clock.now - each.timestamp < days * DAY for each in by_agent) for days in (1, 7, 30, 100)}
    assert left[1] == 16  # all of the last day
    assert left[7] - left[1] == 6 * (4 + 4)  # the last of four turns and of five hours, one of which is the same
    assert left[30] - left[7] == 23 * 4  # the last of four hours; that of the fifth is saved by hand
    assert left[100] == left[30]  # then gone
    assert [each.id for each in reversed(found) if not each.actor] == manual
    scene.check()
    report = scene.ws.status().thinned
    assert report is not None
    assert report.total_removed == 70 * 16 - left[100]
    assert report.error == ""


class TestMeanwhile:
    """What others do between the plan and a step."""

    @pytest.fixture
    def scene(self, scene: Scene) -> Scene:
        """Three automatic saves that would go, and one that would not."""
        for number in range(3):
            scene.save(f"{number}", metadata={"before": "tool", "protection": True})
        scene.save("by hand")
        return scene

    def test_restored_checkpoint_stays(self, scene: Scene) -> None:
        target = scene.ids()[1]
        scene.thin(NOTHING_KEPT, meanwhile=once(lambda: scene.project.open().restore(target)))
        assert target in scene.ids()
        assert scene.ws.undo().ok
        assert scene.ws.redo().ok

    def test_pinned_checkpoint_stays(self, scene: Scene) -> None:
        pinned = scene.ids()[1]
        scene.thin(NOTHING_KEPT, meanwhile=once(lambda: scene.project.open().pin(pinned)))
        assert scene.ids()[:-1] == [pinned]

    def test_held_checkpoint_stays(self, scene: Scene) -> None:
        held, ending = scene.ids()[1], contextlib.ExitStack()
        with ending:
            scene.thin(NOTHING_KEPT, meanwhile=once(lambda: ending.enter_context(scene.project.open().hold(held))))
            assert scene.ids()[:-1] == [held]

    def test_next_latest_stays_if_the_latest_is_deleted(self, scene: Scene) -> None:
        *_, third, last = scene.ids()
        scene.thin(NOTHING_KEPT, meanwhile=once(lambda: scene.project.open().delete(last)))
        assert scene.ids() == [third]

    def test_saves_do_not_disturb(self, scene: Scene) -> None:
        made = scene.ids()[-1:]
        scene.thin(NOTHING_KEPT, meanwhile=lambda: made.append(scene.save("by hand").id))
        assert scene.ids() == made

    def test_content_that_is_saved_again_stays(self, scene: Scene) -> None:
        """P1: a save stores nothing that the store has, also if thinning has just found that nothing needs it."""
        large = random.Random(5).randbytes(50_000)
        scene.project.write("large", large)
        scene.save(metadata={"before": "tool", "protection": True})
        (scene.project.root / "large").unlink()
        scene.save("by hand", size=50_000)
        scene.ws.merge()

        def meanwhile() -> None:
            if len(scene.ids()) == 2 and not (scene.project.root / "large").exists():  # all refs are deleted
                scene.project.write("large", large)
                scene.save("by hand")

        scene.thin(NOTHING_KEPT, meanwhile=meanwhile)
        assert scene.ws.file("latest", "large").read() == large
        scene.check()

    def test_pack_that_is_merged_meanwhile(self, scene: Scene) -> None:
        scene.save("by hand", size=50_000)
        scene.ws.merge()
        scene.thin(NOTHING_KEPT, meanwhile=lambda: scene.project.open().merge())
        scene.check()

    def test_ref_that_is_replaced_twice_is_noticed(self, scene: Scene) -> None:
        """The second time, a file may get the inode that the ref had at first."""
        first, second = scene.save("a"), scene.save("b")
        ref = scene.ws.store / "refs" / "tags" / first.id
        needed = _Needed(scene.ws._repository)
        needed.catch_up()
        assert needed.is_current()
        inode = ref.stat().st_ino
        ref.write_text((ref.parent / second.id).read_text())  # in place: the same inode
        assert ref.stat().st_ino == inode and not needed.is_current()
        needed.catch_up()
        assert needed.is_current()

    def test_only_one_process_thins(self, scene: Scene) -> None:
        other = Thinner(scene.ws._repository, scene.ws._writing, scene.clock, wait=lambda _: None)
        errors = []

        def meanwhile() -> None:
            with pytest.raises(Conflict) as caught:
                other.run(NOTHING_KEPT)
            errors.append(caught.value)

        scene.thin(NOTHING_KEPT, meanwhile=once(meanwhile))
        assert errors


class TestDamage:
    def test_nothing_is_deleted_if_something_is_damaged(self, scene: Scene) -> None:
        scene.save("by hand")
        damaged = next((scene.project.store / "objects" / "pack").glob("*.pack"))
        for _ in range(3):
            scene.save(metadata={"before": "tool", "protection": True})
        scene.save("by hand")
        for pack in (scene.project.store / "objects" / "pack").glob("*.pack"):
            damaged = max(damaged, pack, key=lambda each: each.stat().st_mtime_ns)
        os.chmod(damaged, 0o600)
        data = bytearray(damaged.read_bytes())
        data[20:-20] = bytes(len(data) - 40)
        damaged.write_bytes(data)
        before = sorted((scene.project.store / "refs" / "tags").iterdir())
        with pytest.raises(Damaged):
            scene.project.open().thin(NOTHING_KEPT)
        assert sorted((scene.project.store / "refs" / "tags").iterdir()) == before
        report = read_report(scene.project.store / "holdfast")
        assert report is not None
        assert report.error


def test_no_pack_is_written_or_removed_under_the_lock(scene: Scene) -> None:
    """A step that replaces a pack renames its files."""
    for number in range(60):
        scene.save(f"{number}", metadata={"before": "tool", "protection": True}, size=2000)
    scene.ws.merge()
    steps: list[list[DiskCall]] = []
    writing = scene.ws._writing
    disk = CountingDisk()

    @contextlib.contextmanager
    def counted() -> Iterator[None]:
        begun = len(disk.calls)
        with writing():
            yield
        steps.append(disk.calls[begun:])

    with durable.use_disk(disk):
        Thinner(scene.ws._repository, counted, scene.clock, wait=lambda _: None).run(NOTHING_KEPT)
    assert len(scene.ids()) == 1
    scene.check()
    packs = {call.name for calls in steps for call in calls if ".pack" in call.about or ".idx" in call.about}
    assert packs == {"rename"}
    for calls in steps:
        if any(".pack" in call.about for call in calls):
            assert {call.name for call in calls} <= {"rename", "fsync", "unlink"}
            assert sum(call.name == "rename" for call in calls) <= 2 + 5


def test_sleeps_before_each_lock(scene: Scene) -> None:
    """The scheduler soon interrupts a process that has just worked; while it has the lock, others would wait for it."""
    for number in range(60):
        scene.save(f"{number}", metadata={"before": "tool", "protection": True}, size=2000)
    events: list[str] = []
    repository, writing = scene.ws._repository, scene.ws._writing
    sync, consistently = repository.sync, repository.consistently

    @contextlib.contextmanager
    def locked() -> Iterator[None]:
        events.append("lock")
        with writing():
            yield
        events.append("work")

    def working(call: Callable[..., Any]) -> Callable[..., Any]:
        def work(*given: Any) -> Any:
            events.append("work")
            return call(*given)

        return work

    repository.sync = working(sync)  # type: ignore[method-assign]
    repository.consistently = working(consistently)  # type: ignore[method-assign]
    thinner = Thinner(repository, locked, scene.clock, wait=lambda _: events.append("sleep"))
    thinner._write = lambda _, done: done  # type: ignore[method-assign]  # the report: nobody waits for one file
    assert thinner.run(NOTHING_KEPT).removed == 59
    before = [one for one, other in pairwise(events) if other == "lock"]
    assert len(before) > 2 and set(before[:-1]) == {"sleep"}  # the last one only forgets a number


class TestTime:
    """A step ends when its time is over, however long its deletions take. The clock is not a real one."""

    OPENING_S = 0.002

    def steps(self, scene: Scene, cost_s: Callable[[int], float], *, opening_s: float = OPENING_S) -> list[list[float]]:
        """Thin where deletion number N takes `cost_s(N)`: for each step, when each of its deletions ended."""
        for number in range(61):
            scene.save(f"{number}", metadata={"before": "tool", "protection": True})
        found: list[list[float]] = []
        now = 0.0
        writing, delete_ref = scene.ws._writing, scene.ws._repository.objects.delete_ref
        count = 0

        @contextlib.contextmanager
        def timed() -> Iterator[None]:
            nonlocal now
            with writing():
                now = opening_s
                found.append([])
                yield

        def slow(*names: str) -> None:
            nonlocal now, count
            for name in names:
                delete_ref(name)
                now += cost_s(count)
                count += 1
                found[-1].append(now)

        scene.ws._repository.objects.delete_ref = slow  # type: ignore[method-assign]
        thinner = Thinner(scene.ws._repository, timed, scene.clock, wait=lambda _: None, held_s=lambda: now)
        assert thinner.run(NOTHING_KEPT).removed == 60
        return [ended for ended in found if ended]

    @pytest.mark.parametrize("cost_s", [0.0001, 0.001, 0.003, 0.011])
    def test_ends_in_time(self, scene: Scene, cost_s: float) -> None:
        steps = self.steps(scene, lambda _: cost_s)
        assert max(ended[-1] for ended in steps) <= STEP_S + 0.005
        used_s = max(cost_s, STEP_S - self.OPENING_S - 2 * max(cost_s, 0.005))  # of each step; at least one deletion
        assert len(steps) <= 5 + 60 * cost_s / used_s

    def test_disk_that_becomes_slow(self, scene: Scene) -> None:
        """A batch whose size was chosen for a quick disk is the only one in its step, and the next are smaller."""
        steps = self.steps(scene, lambda number: 0.0002 if number < 30 else 0.02)
        sizes = [len(ended) for ended in steps]
        assert sum(ended[-1] > 0.05 for ended in steps) <= 1
        assert sizes[-1] == 1 and sizes[-10:] == [1] * 10

    def test_disk_that_becomes_fast(self, scene: Scene) -> None:
        steps = self.steps(scene, lambda number: 0.02 if number < 10 else 0.0002)
        assert len(steps) < 18

    def test_opening_that_takes_longer_than_a_step(self, scene: Scene) -> None:
        """One batch, which grows to five milliseconds, is deleted all the same: otherwise it would never end."""
        steps = self.steps(scene, lambda _: 0.001, opening_s=0.06)
        assert [len(ended) for ended in steps[:4]] == [1, 2, 4, 4]
        assert max(len(ended) for ended in steps) <= 5

    def test_deletion_that_takes_longer_than_a_step(self, scene: Scene) -> None:
        assert [len(ended) for ended in self.steps(scene, lambda _: 0.06)] == [1] * 60


class TestConfigured:
    @pytest.fixture
    def scene(self, scene: Scene) -> Scene:
        for _ in range(3):
            scene.save(metadata={"before": "tool", "protection": True})
        for _ in range(40):
            scene.save("by hand", after=DAY)
        return scene

    def run(self, scene: Scene, text: str) -> int:
        (scene.project.root / "holdfast.toml").write_text(text)
        before = len(scene.ids())
        background.thin(str(scene.project.root), store=str(scene.project.store), allow_home=False, trust_store=False)
        return before - len(scene.ids())

    def test_default(self, scene: Scene) -> None:
        assert self.run(scene, "") == 3

    def test_off(self, scene: Scene) -> None:
        assert self.run(scene, "thinning = false\n") == 0

    def test_longer(self, scene: Scene) -> None:
        assert self.run(scene, '[thinning]\nkeep_for = "60d"\n') == 0

    def test_invalid_configuration_deletes_nothing(self, scene: Scene) -> None:
        with pytest.raises(Refused):
            self.run(scene, "thinning = 3\n")
        assert len(scene.ids()) == 43


SAVE = """
import os, sys
from pathlib import Path
from holdfast import Workspace
root, store, home = map(Path, sys.argv[1:4])
ws = Workspace(root, store=store, home=home, environ={})
for turn in range(25):
    (root / "mine").write_bytes(b"%d" % (turn % 4) * 5000)
    ws.save(f"save {turn}")
"""


def test_two_processes(scene: Scene) -> None:
    """One thins while another saves content that comes and goes."""
    for number in range(40):
        scene.project.write("mine", b"%d" % (number % 4) * 5000)
        scene.save(metadata={"before": "tool", "protection": True})
    command = [sys.executable, "-c", SAVE, scene.project.root, scene.project.store, scene.project.home]
    with subprocess.Popen(list(map(str, command))) as saving:
        removed = 0
        while saving.poll() is None:
            removed += scene.project.open().thin(NOTHING_KEPT).removed
    assert saving.returncode == 0
    assert removed >= 39
    scene.check()
    assert len(scene.ids()) == 25 + 40 - removed
