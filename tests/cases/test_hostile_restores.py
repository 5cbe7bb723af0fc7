"""Restores in hostile surroundings: in folders of others, after a kill, over excluded files, and beside an editor."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import NotFound, Restored, Unavailable
from holdfast.durable import Disk, use_disk
from holdfast.testing.faulty_disks import DiskCall, KillingDisk, die_in_child

from . import repository
from .harness import Case, require_same
from .people import as_root, by_somebody, needs_root

Moment = tuple[str, str]
LEFT = "changed during the restore; left as it is"


class Beside(Disk):
    """The real disk, and somebody who does something once just before or after a call about a name.

    The stage goes by the name `stage`, and a file that is moved into it or out of it by the one it has outside.
    """

    def __init__(
        self,
        *,
        before: dict[Moment, Callable[[], object]] | None = None,
        after: dict[Moment, Callable[[], object]] | None = None,
    ) -> None:
        self.before = before or {}
        self.after = after or {}

    def _call(self, moment: Moment, act: Callable[[], None]) -> None:
        if moment in self.before:
            self.before.pop(moment)()
        act()
        if moment in self.after:
            self.after.pop(moment)()

    def mkdir(self, name: str, **options: Any) -> None:
        short = "stage" if name.startswith(".holdfast-restore-") else name
        self._call(("mkdir", short), lambda: Disk.mkdir(self, name, **options))

    def place(self, src: str, dst: str, **options: Any) -> None:
        name = dst if src.startswith(("new-", "old-")) else src
        self._call(("place", name), lambda: Disk.place(self, src, dst, **options))

    def exchange(self, src: str, dst: str, **options: Any) -> None:
        self._call(("exchange", dst), lambda: Disk.exchange(self, src, dst, **options))

    def set_mtime(self, name: str, mtime_ns: int, *, dir_fd: int) -> None:
        self._call(("set_mtime", name), lambda: Disk.set_mtime(self, name, mtime_ns, dir_fd=dir_fd))


class KilledAtTheFirstSwap(KillingDisk):
    """Kills its process when everything is staged and nothing of the workspace is changed yet."""

    def __init__(self) -> None:
        super().__init__(at=0)

    def _pass(self, call: DiskCall, act: Callable[[], int | None], half: Callable[[], None] | None) -> int | None:
        if call.name in ("place", "exchange"):
            os.kill(os.getpid(), signal.SIGKILL)
        return act()


def restore_beside(case: Case, checkpoint_id: str, disk: Beside) -> Restored:
    """Restore while somebody writes too; what the harness compares would move meanwhile."""
    with case.watched("restore"), use_disk(disk):
        result = case.ws.restore(checkpoint_id)
    assert not disk.before and not disk.after, "the moment never came"
    return result


def is_at_rest(case: Case) -> bool:
    """Whether nothing is left of a restore, in the store or in the workspace."""
    return not list(case.ws.store.glob("holdfast/journal.*")) and not list(case.root.glob(".holdfast-restore-*"))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# folders of others, and closed ones


@needs_root
@by_somebody
def test_restore_in_a_foreign_folder_ends_and_is_not_repeated(case: Case) -> None:
    """Who may write to a folder may not set its time; that is said, and nothing else comes of it."""
    case.git("config", "--global", "--add", "safe.directory", str(case.root))
    with as_root():
        os.chown(case.root, 0, 0)
        case.root.chmod(0o777)
    case.write("a", b"1")
    checkpoint = case.save("one")
    case.write("a", b"2")
    result = case.restore(checkpoint, irreversible="the time of the workspace is not ours to set")
    assert list(result.failed) == ["."]
    assert is_at_rest(case)
    case.write("a", b"an hour of work")
    case.write("fresh.py", b"made since")
    case.reopen()
    assert case.ws.recovered is None and case.ws.recovery_error is None
    work = case.save("my work")
    assert (work.message, case.held(work, "a"), case.read("a")) == ("my work", b"an hour of work", b"an hour of work")
    assert case.read("fresh.py") == b"made since"


@by_somebody
def test_unopenable_folder_does_not_stop_the_others(case: Case) -> None:
    case.write("closed/file", b"1")
    checkpoint = case.save()
    case.path("closed").chmod(0)
    case.later(lambda: case.path("closed").chmod(0o700))
    case.write("README.md", b"edited")
    case.write("made-since", b"new")
    result = case.ws.restore(checkpoint.id)
    assert set(result.failed) == {"closed"}
    assert case.read("README.md") == b"# A project\n\nNot committed.\n"
    assert not case.path("made-since").exists()
    assert is_at_rest(case)


@by_somebody
@pytest.mark.linux
def test_xattr_of_a_file_that_became_read_only_is_restored(case: Case) -> None:
    case.write("file", b"content", mode=0o644)
    os.setxattr(case.path("file"), "user.tag", b"blue")
    checkpoint = case.save()
    os.removexattr(case.path("file"), "user.tag")
    case.path("file").chmod(0o444)
    assert case.restore(checkpoint).ok
    assert os.getxattr(case.path("file"), "user.tag") == b"blue"
    assert mode_of(case.path("file")) == 0o644


RESTORE_LATEST = """
import sys
from holdfast import Workspace
result = Workspace(sys.argv[1], store=sys.argv[2], home=sys.argv[3], environ={}).restore("latest")
sys.exit(repr(result.failed) if result.failed else 0)
"""


@needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="nothing here can take privileges away from root")
def test_closed_folder_is_restored_by_an_unprivileged_root(case: Case) -> None:
    """As in a container: the user is 0, and modes apply to it all the same."""
    case.write("closed/file", b"original")
    case.path("closed").chmod(0o555)
    case.save()
    case.write("closed/file", b"edited")
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    places = [str(case.root), str(case.store_area), str(case.home)]
    ran = subprocess.run(
        [*without, sys.executable, "-c", RESTORE_LATEST, *places],
        env={"PYTHONPATH": str(Path(holdfast.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert case.read("closed/file") == b"original"
    assert mode_of(case.path("closed")) == 0o555


def test_closed_folder_is_closed_before_files_enter_it(case: Case) -> None:
    """A key in it that everybody could read is seen by nobody on the way."""
    case.write("secret/key", b"PRIVATE", mode=0o644)
    case.path("secret").chmod(0o700)
    checkpoint = case.save()
    case.path("secret/key").unlink()
    case.path("secret").chmod(0o755)
    modes: list[int] = []
    look = Beside(after={("place", "key"): lambda: modes.append(mode_of(case.path("secret")))})
    assert restore_beside(case, checkpoint.id, look).ok
    assert modes == [0o700]
    case.undo()
    assert mode_of(case.path("secret")) == 0o755


# what the rules leave out


def test_excluded_file_written_after_a_kill_survives_recovery(case: Case) -> None:
    """No checkpoint holds it, so nothing may take its place."""
    case.write("x.log", b"old")
    checkpoint = case.save("one")
    case.path("x.log").unlink()
    case.write("README.md", b"edited")
    case.write(".holdfastignore", b"*.log\n")
    case.save("two")
    assert die_in_child(KilledAtTheFirstSwap(), lambda: case.open().restore(checkpoint.id))
    case.write("x.log", b"fresh, and the only copy")
    case.reopen()
    recovered = case.ws.recovered
    assert recovered is not None
    assert (recovered.outcome, list(recovered.failed)) == ("finished", ["x.log"])
    assert case.read("x.log") == b"fresh, and the only copy"
    assert case.read("README.md") == b"# A project\n\nNot committed.\n"


def test_restored_folder_with_ignored_files_makes_way_on_undo(case: Case) -> None:
    case.write(".gitignore", b"*.bin\n")
    case.write("b/data.bin", b"ignored, small, held")
    case.write("b/file", b"1")
    checkpoint = case.save()
    shutil.rmtree(case.path("b"))
    case.write("b", b"a file of the user")
    assert case.restore(checkpoint).ok  # undone and redone by the harness, to the byte
    case.undo()
    assert case.read("b") == b"a file of the user"


def test_ignored_file_of_the_user_blocks_an_undo(case: Case) -> None:
    """Only what the restore brought may go."""
    case.write(".gitignore", b"*.bin\n")
    case.write("b/data.bin", b"ignored, small, held")
    checkpoint = case.save()
    shutil.rmtree(case.path("b"))
    case.write("b", b"a file of the user")
    assert case.ws.restore(checkpoint.id).ok
    case.write("b/own.bin", b"made by the user since")
    assert "b" in case.undo().failed
    assert case.read("b/own.bin") == b"made by the user since"


def test_restored_file_that_is_now_ignored_goes_on_undo(case: Case) -> None:
    case.write("k/large.bin", bytes((1 << 20) + 5))
    case.write("k/a", b"1")
    checkpoint = case.save("one")
    shutil.rmtree(case.path("k"))
    case.write(".gitignore", b"k/\n")
    case.save("two")
    before = case.capture()
    assert case.ws.restore(checkpoint.id, ["k"]).ok
    undone = case.undo()
    require_same(before, case.capture(), "I2", f"after the undo ({undone})")
    assert set(undone.removed) == {"k", "k/a", "k/large.bin"}


def test_restored_file_that_is_now_excluded_goes_on_undo(case: Case) -> None:
    """The folder that it was brought into was there before, although no checkpoint holds it now, and stays."""
    case.write("d/setting", b"old")
    checkpoint = case.save("one")
    case.path("d/setting").unlink()
    case.reopen(exclude_patterns=["d/"])
    before = case.capture()
    assert case.ws.restore(checkpoint.id).ok
    assert case.read("d/setting") == b"old"
    undone = case.undo()
    require_same(before, case.capture(), "I2", f"after the undo ({undone})")
    assert undone.removed == ["d/setting"]


def test_excluded_folder_gets_its_mode_and_time_back_on_undo(case: Case) -> None:
    case.path("d/mine").mkdir(parents=True)
    checkpoint = case.save("one")
    case.reopen(exclude_patterns=["d/"])
    case.path("d/mine").chmod(0o700)
    os.utime(case.path("d/mine"), ns=(10**18, 10**18))
    before = case.capture()
    assert case.ws.restore(checkpoint.id).ok
    assert mode_of(case.path("d/mine")) == 0o755
    undone = case.undo()
    require_same(before, case.capture(), "I2", f"after the undo ({undone})")


def test_excluded_file_of_a_safety_checkpoint_is_in_no_later_one(case: Case) -> None:
    """The safety checkpoint holds it because it was in the way; other checkpoints need not."""
    case.write(".holdfastignore", b"*.key\n")
    case.write("d", b"was a file")
    checkpoint = case.save("one")
    case.path("d").unlink()
    repository.make_nested(case.path("d"), case.home, commit=False)
    case.write("d/secret.key", b"SECRET")
    case.save("two")
    assert list(case.restore(checkpoint).failed) == ["d"]
    case.write("README.md", b"edited")
    later = case.save("three")
    assert "d/secret.key" in [each.path for each in later.uncovered]
    assert case.git_store("ls-tree", "-r", "--name-only", later.id, "--", "files/d/").decode().split() == [
        "files/d/lib.py"
    ]


def test_a_path_that_was_asked_for_and_is_not_held_has_failed(case: Case) -> None:
    case.write(".gitignore", b"*.bin\n")
    case.write("data.bin", b"1" * (2 << 20))
    checkpoint = case.save()
    case.write("data.bin", b"2" * (2 << 20))
    result = case.restore(checkpoint, ["data.bin"])
    assert not result.ok
    assert "not covered by the checkpoint" in result.failed["data.bin"]


def test_a_path_that_is_there_only_through_a_link_is_not_found(case: Case) -> None:
    case.write("real/file", b"1")
    case.path("link").symlink_to("real")
    checkpoint = case.save()
    case.write("real/file", b"2")
    with pytest.raises(NotFound, match="link/file"):
        case.restore(checkpoint, ["link/file"])
    assert case.restore(checkpoint, ["link", "real/file"]).ok


# beside an editor


def test_unsaved_version_is_put_beside_a_newer_one(case: Case) -> None:
    """It was written after the scan, moved to the stage as a file to remove, and its place was taken meanwhile."""
    checkpoint = case.save()
    case.write("new.txt", b"version 1")
    disk = Beside(
        after={
            ("mkdir", "stage"): lambda: case.write("new.txt", b"version 2, never saved"),
            ("place", "new.txt"): lambda: case.write("new.txt", b"version 3, the next automatic save"),
        }
    )
    result = restore_beside(case, checkpoint.id, disk)
    assert result.failed["new.txt"].endswith("kept as new.txt.holdfast-kept-1")
    assert case.read("new.txt") == b"version 3, the next automatic save"
    assert case.read("new.txt.holdfast-kept-1") == b"version 2, never saved"


def test_unsaved_version_is_put_back_if_its_successor_is_gone(case: Case) -> None:
    """An editor that removes a file and writes it anew is met between the two."""
    case.write("a", b"1")
    checkpoint = case.save()
    case.write("a", b"22")
    disk = Beside(
        after={
            ("mkdir", "stage"): lambda: case.write("a", b"version 2, never saved"),
            ("exchange", "a"): lambda: case.path("a").unlink(),
        }
    )
    result = restore_beside(case, checkpoint.id, disk)
    assert result.failed["a"].endswith("kept as a")
    assert case.read("a") == b"version 2, never saved"


@pytest.mark.parametrize("was_there", [True, False], ids=["replaced", "brought back"])
def test_edit_of_a_restored_file_survives_an_interrupt(case: Case, was_there: bool) -> None:
    case.write("a", b"1")
    case.write("b", b"1")
    checkpoint = case.save()
    case.write("b", b"edited")
    if was_there:
        case.write("a", b"edited too")
    else:
        case.path("a").unlink()

    def write_and_break_off() -> None:
        case.write("a", b"written into the restored file")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore_beside(case, checkpoint.id, Beside(before={("exchange", "b"): write_and_break_off}))
    assert case.read("a") == b"written into the restored file"
    assert case.read("b") == b"1", "killed in the middle of a step, it is finished from what is on the disk"
    assert is_at_rest(case)
    case.undo()
    assert case.read("b") == b"edited"
    assert case.path("a").exists() == was_there
    assert not was_there or case.read("a") == b"edited too"


@pytest.mark.parametrize("was_there", [True, False], ids=["replaced", "brought back"])
def test_edit_of_a_restored_file_survives_a_failed_restore(case: Case, was_there: bool) -> None:
    case.write("a", b"1")
    case.write("b", b"1")
    checkpoint = case.save()
    case.write("b", b"edited")
    if was_there:
        case.write("a", b"edited too")
    else:
        case.path("a").unlink()

    def write_and_fail() -> None:
        case.write("a", b"written into the restored file")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(Unavailable, match="rolled back"):
        restore_beside(case, checkpoint.id, Beside(before={("exchange", "b"): write_and_fail}))
    assert case.read("a") == b"written into the restored file"
    assert case.read("b") == b"edited"
    assert is_at_rest(case)


def test_file_edited_before_its_mode_is_set_is_left_alone(case: Case) -> None:
    case.write("a", b"good", mode=0o644)
    checkpoint = case.save()
    case.path("a").chmod(0o777)
    times: list[int] = []

    def edit() -> None:
        times.append(case.write("a", b"EVIL").stat().st_mtime_ns)

    result = restore_beside(case, checkpoint.id, Beside(after={("mkdir", "stage"): edit}))
    assert (result.failed["a"], result.written) == (LEFT, [])
    assert (case.read("a"), mode_of(case.path("a"))) == (b"EVIL", 0o777)
    assert case.path("a").stat().st_mtime_ns == times[0]


def test_file_edited_while_its_mode_is_set_is_not_restored(case: Case) -> None:
    """Size and time are those of the checkpoint in the end; only its bytes tell."""
    case.write("a", b"good", mode=0o644)
    checkpoint = case.save()
    case.path("a").chmod(0o777)
    edit = Beside(before={("set_mtime", "a"): lambda: case.write("a", b"EVIL")})
    result = restore_beside(case, checkpoint.id, edit)
    assert (list(result.failed), result.written) == (["a"], [])
    assert case.read("a") == b"EVIL"


def test_restore_interrupted_at_the_end_stays_done(case: Case) -> None:
    """What is remembered for the next scan is written after the end, so that breaking it off leaves no journal."""
    case.write("a", b"1")
    checkpoint = case.save()
    case.write("a", b"2")
    case.write("b", b"new")  # only what is not replaced is remembered

    class BrokenOff(Disk):
        def create(self, name: str, **options: Any) -> int:
            if "scan.cache" in name:
                raise KeyboardInterrupt
            return super().create(name, **options)

    with case.watched("restore"), use_disk(BrokenOff()), pytest.raises(KeyboardInterrupt):
        case.ws.restore(checkpoint.id, ["a"])
    assert is_at_rest(case)
    case.write("a", b"work that goes on")
    case.reopen()
    assert case.ws.recovered is None
    assert case.read("a") == b"work that goes on"
