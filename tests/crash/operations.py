"""The operations that are interrupted, each with the workspace that it is interrupted in."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from holdfast import Restored, Workspace
from holdfast.retention import Policy
from holdfast.workspace.imports import OutsideCheckpoint
from holdfast.workspace.requests import SaveRequest

from .scene import Scene, settle_times

STATE = {"conversation": [{"role": "user", "text": f"message {number}"} for number in range(20)], "step": 3}
LATER = datetime(2030, 1, 1, tzinfo=UTC)
LEAK, LEAKED = "leak.txt", "the secret that was to be told to nobody\n"


@dataclass(frozen=True)
class Operation:
    """Something to interrupt: how everything is before it, and what is done."""

    name: str
    prepare: Callable[[Scene], None]
    act: Callable[[Scene], object]
    restores: bool = False
    saves: bool = False
    deletes: str = ""
    """The name of the checkpoint that it deletes."""
    pins: str = ""
    """The name of the checkpoint that it pins, which has another commit then."""
    purges: str = ""
    """The path that it takes out of all checkpoints."""
    exports: bool = False
    """Whether it writes a checkpoint into the folder `out`."""

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


# workspaces


def _first_tree(ws: Path) -> None:
    for name in ("keep.txt", "edit.txt", "gone.txt", "mode.sh", "time.txt", "tag.txt", "file-to-folder", "hard-a"):
        (ws / name).write_text(f"{name} at first\n")
    (ws / "mode.sh").chmod(0o755)
    os.setxattr(ws / "tag.txt", "user.tag", b"first")
    os.link(ws / "hard-a", ws / "hard-b")
    (ws / "link").symlink_to("edit.txt")
    (ws / "link-to-file").symlink_to("keep.txt")
    (ws / "deep" / "deeper").mkdir(parents=True)
    (ws / "deep" / "deeper" / "leaf.txt").write_text("leaf at first\n")
    (ws / "folder-to-file").mkdir()
    (ws / "folder-to-file" / "inner.txt").write_text("inner at first\n")
    (ws / "empty").mkdir(mode=0o750)
    os.mkfifo(ws / "pipe")
    settle_times(ws)


def _edit_everything(ws: Path) -> None:
    (ws / "edit.txt").write_text("edited, and saved nowhere\n")
    (ws / "gone.txt").unlink()
    (ws / "mode.sh").chmod(0o600)
    os.utime(ws / "time.txt", ns=(1_650_000_000_000_000_001,) * 2)
    os.setxattr(ws / "tag.txt", "user.tag", b"second")
    (ws / "file-to-folder").unlink()
    (ws / "file-to-folder").mkdir()
    (ws / "file-to-folder" / "inside.txt").write_text("a file where a file was\n")
    (ws / "hard-b").unlink()
    (ws / "hard-b").write_text("on its own\n")
    (ws / "link").unlink()
    (ws / "link").symlink_to("keep.txt")
    (ws / "link-to-file").unlink()
    (ws / "link-to-file").write_text("no link any more\n")
    shutil.rmtree(ws / "deep")
    shutil.rmtree(ws / "folder-to-file")
    (ws / "folder-to-file").write_text("a file where a folder was\n")
    (ws / "empty").rmdir()
    (ws / "pipe").unlink()
    (ws / "new" / "newer").mkdir(parents=True)
    (ws / "new" / "newer" / "new.txt").write_text("made since, and saved nowhere\n")


def _small_tree(ws: Path) -> None:
    for name in ("keep.txt", "edit.txt", "gone.txt", "mode.sh"):
        (ws / name).write_text(f"{name} at first\n")
    (ws / "deep").mkdir()
    (ws / "deep" / "leaf.txt").write_text("leaf at first\n")
    settle_times(ws)


def _edit_some(ws: Path) -> None:
    (ws / "edit.txt").write_text("edited, and saved nowhere\n")
    (ws / "gone.txt").unlink()
    (ws / "mode.sh").chmod(0o755)
    shutil.rmtree(ws / "deep")
    (ws / "new").mkdir()
    (ws / "new" / "new.txt").write_text("made since, and saved nowhere\n")


def _with_checkpoints(scene: Scene, make: Callable[[Path], None], edit: Callable[[Path], None]) -> None:
    """Two checkpoints, then edits that no checkpoint holds."""
    make(scene.ws)
    ws = scene.open()
    ws.save("first", name="first")
    (scene.ws / "keep.txt").write_text("kept, and changed once\n")
    ws.save("second", name="second", state={"note": "second"})
    edit(scene.ws)


def _everything_edited(scene: Scene) -> None:
    _with_checkpoints(scene, _first_tree, _edit_everything)


def _some_edited(scene: Scene) -> None:
    _with_checkpoints(scene, _small_tree, _edit_some)


def _many_edited(scene: Scene) -> None:
    """More files to write than are synced one by one, in more folders than are synced one by one."""

    def make(ws: Path) -> None:
        _small_tree(ws)
        for number in range(66):
            (ws / f"folder-{number}").mkdir()
            (ws / f"folder-{number}" / "file").write_text(f"{number}\n")
        settle_times(ws)

    def edit(ws: Path) -> None:
        for number in range(66):
            (ws / f"folder-{number}" / "file").unlink()

    _with_checkpoints(scene, make, edit)


def _restored(scene: Scene) -> None:
    """A restore has been made, and the folder was edited after it."""
    _some_edited(scene)
    scene.open().restore("first")
    (scene.ws / "keep.txt").write_text("edited after the restore\n")


def _undone(scene: Scene) -> None:
    _restored(scene)
    scene.open().undo()


def _large(scene: Scene) -> None:
    _some_edited(scene)
    (scene.ws / "large.bin").write_bytes(random.Random(7).randbytes((9 << 20) + 17))


def _several_packs(scene: Scene) -> None:
    _small_tree(scene.ws)
    ws = scene.open()
    for number in range(4):
        (scene.ws / "edit.txt").write_text(f"edit {number}\n")
        ws.save(f"save {number}", name=f"save-{number}")


def _leaked(scene: Scene) -> None:
    """Something to purge: in two checkpoints, in one that a restore made, and repeated in a state."""
    _small_tree(scene.ws)
    ws = scene.open()
    ws.save("first", name="first")
    (scene.ws / "deep" / LEAK).write_text(LEAKED)
    ws.save("second", name="second")
    (scene.ws / "keep.txt").write_text("changed\n")
    ws.restore("first")
    ws.save("third", name="third", state={"conversation": [f"it says {LEAKED}"]})


def _with_twin(scene: Scene) -> None:
    """Another workspace with the same files, some of them of a kind that this store has not."""
    _some_edited(scene)
    (scene.ws / "only there.bin").write_bytes(random.Random(9).randbytes(100_000))
    subprocess.run(["cp", "-a", str(scene.ws), str(scene.live / "twin")], check=True)
    _twin(scene).save("theirs")


def _twin(scene: Scene) -> Workspace:
    return Workspace(scene.live / "twin", store=scene.live / "twin-store", home=scene.home, environ={})


def _left_out(scene: Scene) -> None:
    _some_edited(scene)
    (scene.ws / "node_modules").mkdir()
    (scene.ws / "node_modules" / "list.json").write_text("[1]\n")


def _agent_at_work(scene: Scene) -> None:
    """A window of an agent's, closed, and edits of a user's in the same files and others, saved nowhere."""

    def text(**lines: str) -> str:
        return "".join(lines.get(f"l{number}", f"line {number}") + "\n" for number in range(9))

    _small_tree(scene.ws)
    for name in ("merge.txt", "clash.txt", "to-rename.txt"):
        (scene.ws / name).write_text(text())
    ws = scene.open()
    ws.save("first", name="first")
    _edit_some(scene.ws)
    for name in ("merge.txt", "clash.txt"):
        (scene.ws / name).write_text(text(l1="agent"))
    (scene.ws / "to-rename.txt").rename(scene.ws / "renamed.txt")
    ws.save("agent", actor="agent", name="agent")
    (scene.ws / "merge.txt").write_text(text(l1="agent", l6="user, saved nowhere"))
    (scene.ws / "clash.txt").write_text(text(l1="user over agent, saved nowhere"))
    (scene.ws / "renamed.txt").write_text(text(l3="user, saved nowhere"))
    (scene.ws / "new" / "mine.txt").write_text("user, saved nowhere\n")


def _to_prune(scene: Scene) -> None:
    """Three saves; the first needs most of the bytes."""
    _small_tree(scene.ws)
    ws = scene.open()
    (scene.ws / "large.bin").write_bytes(random.Random(7).randbytes(100_000))
    ws.save("first")
    (scene.ws / "large.bin").unlink()
    ws.save("second")
    (scene.ws / "edit.txt").write_text("edited\n")
    ws.save("third")


def _to_thin(scene: Scene) -> None:
    """Three automatic saves in one pack; the first needs most of the bytes."""
    automatic = {"type": "automatic"}
    _small_tree(scene.ws)
    ws = scene.open()
    (scene.ws / "large.bin").write_bytes(random.Random(7).randbytes(100_000))
    ws.save("first", metadata=automatic)
    (scene.ws / "large.bin").unlink()
    ws.save("second", metadata=automatic)
    (scene.ws / "edit.txt").write_text("edited\n")
    ws.save("third", metadata=automatic)
    ws.merge()


def _to_export(scene: Scene) -> None:
    """An empty folder waits for a checkpoint, with a mode that somebody chose."""
    _some_edited(scene)
    scene.out.mkdir(mode=0o711)


# operations


def _saved(scene: Scene) -> None:
    _some_edited(scene)
    scene.open().save("the folder as it is")


def _add_outside(scene: Scene) -> object:
    """Add a checkpoint of another tool that has the files of the folder, and a state that is not in the store yet."""
    workspace = scene.open()
    base = workspace.get("latest").id
    given = OutsideCheckpoint("tool:1", "elsewhere", SaveRequest("theirs", state=STATE), LATER, {}, base=base)
    return workspace.imports().add(given)


def _revert_some(scene: Scene) -> Restored:
    ws = scene.open(at=LATER)
    found = ws.changes("first")
    return ws.revert(found, found.hunks[::2])


OPERATIONS = [
    Operation("first save", lambda scene: _small_tree(scene.ws), lambda s: s.open().save("x"), saves=True),
    Operation("later save", _some_edited, lambda s: s.open().save("x"), saves=True),
    Operation("save with state", _some_edited, lambda s: s.open().save("x", state=STATE), saves=True),
    Operation("save of a large file", _large, lambda s: s.open().save("x"), saves=True),
    Operation("restore", _everything_edited, lambda s: s.open().restore("first"), restores=True),
    Operation("restore of many", _many_edited, lambda s: s.open().restore("first"), restores=True),
    Operation(
        "restore of some paths",
        _some_edited,
        lambda s: s.open().restore("first", ["edit.txt", "deep", "new"]),
        restores=True,
    ),
    Operation(
        "undo of an agent",
        _agent_at_work,
        lambda s: s.open(at=LATER).restore("first", keep_mine=True),
        restores=True,
    ),
    Operation("revert", _agent_at_work, _revert_some, restores=True),
    Operation("undo", _restored, lambda s: s.open().undo(), restores=True),
    Operation("redo", _undone, lambda s: s.open().redo(), restores=True),
    Operation("import of files and state from another tool", _saved, _add_outside, saves=True),
    Operation("import", _with_twin, lambda s: s.open().import_from(_twin(s), "latest"), saves=True),
    Operation(
        "save of what is left out",
        _left_out,
        lambda s: s.open().save("x", include=["node_modules/list.json"]),
        saves=True,
    ),
    Operation("delete", _some_edited, lambda s: s.open().delete("second"), deletes="second"),
    Operation("purge", _leaked, lambda s: s.open().purge(f"deep/{LEAK}"), purges=f"deep/{LEAK}"),
    Operation("merge", _several_packs, lambda s: s.open().merge()),
    Operation("prune", _to_prune, lambda s: s.open().prune(Policy(keep_last=2), dry_run=False), deletes="latest~2"),
    Operation("thin", _to_thin, lambda s: s.open().thin(Policy(keep_last=2)), deletes="latest~2"),
    Operation("pin", _some_edited, lambda s: s.open().pin("first"), pins="first"),
    Operation("compact", _several_packs, lambda s: s.open().compact()),
    Operation("export", _some_edited, lambda s: s.open().export("first", s.out), exports=True),
    Operation("export into a folder", _to_export, lambda s: s.open().export("first", s.out), exports=True),
]
BY_NAME = {operation.name: operation for operation in OPERATIONS}
SMALL = [each for each in OPERATIONS if each.name not in ("save of a large file", "restore of many")]
"""Those that are cheap enough for every kind of fault; the others are for the main ones."""
