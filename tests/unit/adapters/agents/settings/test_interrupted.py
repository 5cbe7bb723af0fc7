"""Installing and uninstalling, interrupted at every write or by somebody else: old settings or new, never less."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import durable
from holdfast.adapters.agents.base import Agent, SettingsPaths, SettingsScope, find_agent
from holdfast.adapters.agents.settings.install import SettingsChange, apply_change, plan_install, plan_uninstall
from holdfast.durable import Disk
from holdfast.errors import Conflict
from holdfast.testing.faulty_disks import ForgetfulDisk, PowerLoss, every_point

MINE = b'{ "odd" :\t1 ,\n} // mine\n'
WORDS = ["/opt/holdfast", "hook", "gemini"]


class Settings:
    """A settings file of a user, and what is done to it."""

    def __init__(self, places: SettingsPaths) -> None:
        self.agent: Agent = find_agent("gemini")
        self.places = places
        self.path = self.agent.settings(places, SettingsScope.USER)
        self.path.parent.mkdir(parents=True)
        self.path.write_bytes(MINE)

    def installing(self) -> SettingsChange:
        return plan_install(self.agent, SettingsScope.USER, self.places, WORDS)

    def uninstalling(self) -> SettingsChange:
        return plan_uninstall(self.agent, SettingsScope.USER, self.places)

    def do(self, change: SettingsChange) -> None:
        apply_change(change, self.places.environ)


def settings(folder: Path, *, installed: bool = False) -> Settings:
    found = Settings(SettingsPaths(folder, {"HOME": str(folder)}, folder / "project"))
    if installed:
        found.do(found.installing())
    return found


@pytest.mark.parametrize("powerless", [False, True], ids=["killed", "power loss"])
@pytest.mark.parametrize("verb", ["installing", "uninstalling"])
def test_interrupted_anywhere_it_is_old_or_new(tmp_path: Path, verb: str, powerless: bool) -> None:
    is_uninstalling = verb == "uninstalling"
    counted = settings(tmp_path / "counted", installed=is_uninstalling)
    change = getattr(counted, verb)()
    points = every_point(lambda: counted.do(change))
    assert len(points) > 5
    for point in points:
        home = tmp_path / str(point.number)
        mine = settings(home, installed=is_uninstalling)
        change = getattr(mine, verb)()
        disk = ForgetfulDisk(home, at=point.number)
        with durable.use_disk(disk), pytest.raises(PowerLoss):
            mine.do(change)
        if powerless:
            disk.lose_power()
        assert mine.path.read_bytes() in (change.before, change.after), point
        mine.do(mine.installing())
        mine.do(mine.uninstalling())
        assert mine.path.read_bytes() == MINE, point


def test_concurrent_edit_is_not_overwritten(tmp_path: Path) -> None:
    mine = settings(tmp_path)

    class Meddling(Disk):
        def rename(self, src: str, dst: str, **more: int | None) -> None:
            super().rename(src, dst, **more)
            mine.path.write_bytes(b'{"theirs": 1}')

    change = mine.installing()
    with durable.use_disk(Meddling()), pytest.raises(Conflict, match="meanwhile"):
        mine.do(change)
    assert mine.path.read_bytes() == b'{"theirs": 1}'


def test_altered_backup_does_not_replace_the_settings(tmp_path: Path) -> None:
    mine = settings(tmp_path)
    change = mine.installing()
    mine.do(change)
    change.backup.write_bytes(b'{"somebody": "else"}')
    mine.do(mine.uninstalling())
    left = mine.path.read_bytes()
    assert b"// mine" in left and b"odd" in left and b"holdfast" not in left
