"""Git directories by any name: found as git finds them, never held as files, never written or removed (P6)."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from holdfast import Checkpoint, Workspace
from holdfast.model import Reason

CONFIG = """\
[user]
    name = Somebody
    email = somebody@example.org
[init]
    defaultBranch = main
[protocol "file"]
    allow = always
"""


class Scene:
    """A workspace with a repository in it, somewhere."""

    def __init__(self, area: Path) -> None:
        self.home, self.root = area / "home", area / "ws"
        self.home.mkdir()
        self.root.mkdir()
        (self.home / ".gitconfig").write_text(CONFIG)
        self.tree = self.root  # a folder with a checkout
        self.data: list[str] = []  # the git directories, by path
        self.options = {"store": area / "store", "home": self.home, "environ": {}}
        self.ws = Workspace(self.root, **self.options)
        self.first = ""

    def git(self, *words: str, cwd: Path | None = None) -> str:
        environ = {"HOME": str(self.home), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
        done = subprocess.run(["git", *words], cwd=cwd or self.tree, env=environ, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit(self, text: str) -> str:
        (self.tree / "app.py").write_text(text)
        self.git("add", "app.py")
        self.git("commit", "-q", "-m", text)
        return self.git("rev-parse", "HEAD").strip()

    def gits(self) -> dict[str, tuple[int, int, str]]:
        """Everything of the git directories: mode, time and content."""
        found = {}
        for top in self.data:
            for folder, _, files in os.walk(self.root / top):
                status = os.stat(folder)
                found[folder] = (status.st_mode, status.st_mtime_ns, "")
                for name in files:
                    path = Path(folder) / name
                    status = path.lstat()
                    text = os.readlink(path) if path.is_symlink() else hashlib.sha1(path.read_bytes()).hexdigest()
                    found[str(path)] = (status.st_mode, status.st_mtime_ns, text)
        assert found
        return found

    def check(self, *commits: str) -> None:
        """No commit is lost, and nothing is damaged."""
        self.git("fsck", "--strict")
        assert set(commits) <= set(self.git("rev-list", "--all", "--reflog").split())


def _hub(scene: Scene) -> None:
    scene.git("init", "-q", "--bare", ".bare", cwd=scene.root)
    scene.write(".git", "gitdir: ./.bare\n")
    _first(scene)
    scene.tree, scene.data = scene.root / "main", [".bare"]


def _first(scene: Scene) -> None:
    tree = scene.git("hash-object", "-t", "tree", "-w", "/dev/null", cwd=scene.root).strip()
    commit = scene.git("commit-tree", "-m", "start", tree, cwd=scene.root).strip()
    scene.git("update-ref", "refs/heads/main", commit, cwd=scene.root)
    scene.git("worktree", "add", "-q", "main", "main", cwd=scene.root)
    scene.git("worktree", "add", "-q", "-b", "side", "side", "main", cwd=scene.root)


def _separate(scene: Scene) -> None:
    scene.git("init", "-q", "--separate-git-dir=data", ".")
    scene.data = ["data"]


def _separate_below(scene: Scene) -> None:
    (scene.root / "lib" / "one").mkdir(parents=True)
    (scene.root / "store").mkdir()
    scene.tree = scene.root / "lib" / "one"
    scene.git("init", "-q", f"--separate-git-dir={scene.root / 'store' / 'one'}", ".")
    scene.data = ["store/one"]


def _linked(scene: Scene) -> None:
    scene.git("init", "-q")
    (scene.root / ".git").rename(scene.root / "kept")
    (scene.root / ".git").symlink_to("kept")
    scene.data = ["kept"]


def _bare(scene: Scene) -> None:
    scene.git("init", "-q", "--bare", "hosted/project.git", cwd=scene.root)
    scene.write("hosted/project.git/custom.cache", "of a tool")
    scene.tree = scene.home / "clone"
    scene.git("clone", "-q", str(scene.root / "hosted/project.git"), str(scene.tree), cwd=scene.home)
    scene.data = ["hosted/project.git"]


def _submodule(scene: Scene) -> None:
    origin = scene.home / "origin"
    origin.mkdir()
    scene.git("init", "-q", cwd=origin)
    scene.git("commit", "-q", "--allow-empty", "-m", "origin", cwd=origin)
    _separate(scene)
    scene.git("submodule", "--quiet", "add", str(origin), "module")
    scene.tree = scene.root / "module"


SHAPES = [_hub, _separate, _separate_below, _linked, _bare, _submodule]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture(params=SHAPES, ids=lambda shape: shape.__name__.strip("_"))
def shaped(request: pytest.FixtureRequest, scene: Scene) -> Scene:
    request.param(scene)
    scene.first = scene.commit("one")
    _push(scene)
    return scene


def _push(scene: Scene) -> None:
    if scene.root not in scene.tree.parents and scene.tree != scene.root:
        scene.git("push", "-q", "origin", "main")


def _left_out(checkpoint: Checkpoint) -> set[str]:
    return {each.path for each in checkpoint.uncovered if each.reason is Reason.GIT_DIRECTORY}


def _holds(scene: Scene, checkpoint: Checkpoint, path: str) -> bool:
    shown = subprocess.run(
        ["git", f"--git-dir={scene.ws.store}", "cat-file", "-e", f"{checkpoint.id}:files/{path}"], capture_output=True
    )
    return shown.returncode == 0


def test_it_is_left_out_once_and_named(shaped: Scene) -> None:
    saved = shaped.ws.save("one")
    assert set(shaped.data) <= _left_out(saved)
    assert not any(_holds(shaped, saved, f"{path}/HEAD") for path in shaped.data)
    assert shaped.ws.save("again").id == saved.id


@pytest.mark.parametrize("watch", [False, True])
def test_restore_undo_and_redo_leave_it_alone(shaped: Scene, watch: bool) -> None:
    if watch:
        shaped.ws.watch()
    saved = shaped.ws.save("one")
    second = shaped.commit("two")
    _push(shaped)
    shaped.git("repack", "-a", "-d", "-q")
    shaped.write("notes.txt", "made since")
    before = shaped.gits()
    for step in (lambda: shaped.ws.restore(saved.id), shaped.ws.undo, shaped.ws.redo):
        done = step()
        assert done.ok, done.failed
        assert shaped.gits() == before
    shaped.check(shaped.first, second)
    assert not (shaped.root / "notes.txt").exists()


def test_undo_agent_leaves_it_alone(shaped: Scene) -> None:
    since = shaped.ws.save("before the agent")
    second = shaped.commit("by the agent")
    _push(shaped)
    shaped.write("agent.txt", "by the agent")
    shaped.ws.save("the agent", actor="claude-code")
    third = shaped.commit("by the user")
    _push(shaped)
    before = shaped.gits()
    done = shaped.ws.restore(since.id, keep_mine=True, agent="claude-code")
    assert "agent.txt" in done.removed
    assert shaped.gits() == before
    shaped.check(shaped.first, second, third)


def test_guard_that_fails_leaves_it_alone(shaped: Scene) -> None:
    with pytest.raises(ValueError), shaped.ws.guard("step"):
        second = shaped.commit("two")
        _push(shaped)
        before = shaped.gits()
        raise ValueError
    assert shaped.gits() == before
    shaped.check(shaped.first, second)


# One that an older checkpoint holds as plain files, or that became one between two looks


def _hide(scene: Scene) -> None:
    """Make it something that git would not recognise, nor name."""
    for path in scene.data:
        (scene.root / path / "HEAD").rename(scene.root / path / "HEAD.off")
    for place in scene.root.rglob(".git"):
        place.rename(place.with_name("git.off"))


def _show(scene: Scene) -> None:
    for path in scene.data:
        (scene.root / path / "HEAD.off").rename(scene.root / path / "HEAD")
    for place in scene.root.rglob("git.off"):
        place.rename(place.with_name(".git"))


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize("scope", [False, True])
def test_an_old_checkpoint_that_holds_it_is_restored_without_it(shaped: Scene, watch: bool, scope: bool) -> None:
    if watch:
        shaped.ws.watch()
    _hide(shaped)
    shaped.write("a.txt", "old")
    old = shaped.ws.save("as plain files")
    top = shaped.data[0]
    assert _holds(shaped, old, f"{top}/objects")
    _show(shaped)
    second = shaped.commit("two")
    _push(shaped)
    shaped.git("gc", "-q", "--prune=now")
    shaped.write("a.txt", "new")
    before = shaped.gits()
    asked = ["a.txt", f"{top}/HEAD.off", f"{top}/objects"] if scope else None
    done = shaped.ws.restore(old.id, asked)
    assert top in {*done.kept, *done.failed}
    assert shaped.gits() == before
    assert (shaped.root / "a.txt").read_text() == "old"
    done = shaped.ws.undo()
    assert shaped.gits() == before
    shaped.check(shaped.first, second)


def test_undo_agent_over_checkpoints_that_hold_it(shaped: Scene) -> None:
    _hide(shaped)
    since = shaped.ws.save("before the agent")
    shaped.write(f"{shaped.data[0]}/refs/heads/agent", f"{shaped.first}\n")
    shaped.write("agent.txt", "by the agent")
    shaped.ws.save("the agent", actor="claude-code")
    _show(shaped)
    (shaped.root / shaped.data[0] / "refs/heads/agent").unlink()
    before = shaped.gits()
    shaped.ws.restore(since.id, keep_mine=True, agent="claude-code")
    assert shaped.gits() == before
    assert not (shaped.root / "agent.txt").exists()
    shaped.check(shaped.first)


@pytest.fixture
def settled(scene: Scene) -> None:
    """Everything is old enough for its times to be trusted by the next look."""
    scene.ws._engine_options["file_clock"] = lambda: time.time_ns() + 10**10


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("watch", [False, True])
def test_one_that_comes_and_goes_is_noticed(scene: Scene, watch: bool) -> None:
    if watch:
        scene.ws.watch()
    scene.write("repo/objects/info/x", "1")
    scene.write("repo/refs/heads/x", "1")
    scene.write("repo/HEAD", "nonsense\n")
    plain = scene.ws.save("plain")
    assert _holds(scene, plain, "repo/HEAD") and not _left_out(plain)
    scene.write("repo/HEAD", "ref: refs/heads/main\n")
    assert _left_out(scene.ws.save("a repository")) == {"repo"}
    scene.write("repo/HEAD", "nonsense again\n")
    again = scene.ws.save("plain again")
    assert _holds(scene, again, "repo/HEAD") and not _left_out(again)
    shutil.rmtree(scene.root / "repo")
    assert scene.ws.save("gone").uncovered == ()


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("ignored", [False, True])
def test_one_that_is_known_costs_no_new_listing(scene: Scene, ignored: bool) -> None:
    scene.git("init", "-q", "--bare", "hosted.git", cwd=scene.root)
    scene.write(".gitignore", "*.git\n" if ignored else "")
    saved = scene.ws.save("one")
    assert "hosted.git" in _left_out(saved)
    assert not scene.ws._engine.scanner.judge(saved).listing.changed


# What counts as one


@pytest.mark.parametrize(
    ("head", "is_one"),
    [
        ("ref: refs/heads/main\n", True),
        ("ref:\trefs/heads/.invalid\n", True),  # of a repository with a reftable
        ("0123456789abcdef0123456789ABCDEF01234567\n", True),
        ("ref: heads/main\n", False),
        ("0123456789\n", False),
        ("", False),
        ("-> refs/heads/main", True),
        ("-> ../elsewhere", False),
        (None, False),
    ],
)
def test_head_decides_as_in_git(scene: Scene, head: str | None, is_one: bool) -> None:
    for name in ("objects", "refs", "reftable"):
        scene.write(f"repo/{name}/x", "1")
    if head is not None and head.startswith("-> "):
        (scene.root / "repo/HEAD").symlink_to(head[3:])
    elif head is not None:
        scene.write("repo/HEAD", head)
    asked = subprocess.run(["git", "rev-parse", "--git-dir"], cwd=scene.root / "repo", capture_output=True)
    assert (asked.returncode == 0 and asked.stdout == b".\n") == is_one
    saved = scene.ws.save("one")
    assert (_left_out(saved) == {"repo"}) == is_one
    assert _holds(scene, saved, "repo/objects/x") != is_one


@pytest.mark.parametrize("missing", ["objects", "refs"])
def test_one_that_lacks_a_folder_is_plain_data(scene: Scene, missing: str) -> None:
    for name in {"objects", "refs"} - {missing}:
        scene.write(f"repo/{name}/x", "1")
    scene.write("repo/HEAD", "ref: refs/heads/main\n")
    saved = scene.ws.save("one")
    assert not _left_out(saved) and _holds(scene, saved, "repo/HEAD")


@pytest.mark.parametrize("target", [".", "src", "..", "/", "../outside", "gone", "src/app.py", "loop"])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_git_file_that_names_something_else_uncovers_nothing(scene: Scene, target: str, kind: str) -> None:
    scene.write("src/app.py", "print()\n")
    (scene.root / "loop").symlink_to("loop")
    for place in (scene.root, scene.root / "src"):
        named = os.path.relpath(scene.root / target, place)
        if kind == "file":
            (place / ".git").write_text(f"gitdir: {named}\n")
        else:
            (place / ".git").symlink_to(named)
    saved = scene.ws.save("one")
    assert saved.uncovered == () and _holds(scene, saved, "src/app.py")


@pytest.mark.parametrize("place", ["", "src"])
def test_git_init_bare_in_a_project_keeps_the_project_held(scene: Scene, place: str) -> None:
    scene.write(f"{place or '.'}/app.py", "one\n")
    scene.write(f"{place or '.'}/uv.lock", "one\n")
    scene.write(f"{place or '.'}/modules/m.tf", "one\n")
    first = scene.ws.save("before")
    folder = scene.root / place
    scene.git("init", "-q", "--bare", ".", cwd=folder)
    blob = scene.git("hash-object", "-w", "app.py", cwd=folder).strip()
    saved = scene.ws.save("one")
    start = f"{place}/" if place else ""
    assert {f"{start}HEAD", f"{start}objects", f"{start}refs", f"{start}config"} <= _left_out(saved)
    assert all(_holds(scene, saved, f"{start}{name}") for name in ("app.py", "uv.lock", "modules/m.tf"))
    scene.write(f"{start}app.py", "two\n")
    scene.data = [f"{start}objects", f"{start}refs"]
    before = scene.gits()
    assert scene.ws.restore(saved.id).ok
    assert scene.ws.restore(first.id).ok
    assert (folder / "app.py").read_text() == "one\n"
    assert scene.gits() == before
    assert scene.git("cat-file", "blob", blob, cwd=folder) == "one\n"


def test_bare_repository_as_workspace_is_left_out(scene: Scene) -> None:
    scene.git("init", "-q", "--bare", ".")
    saved = scene.ws.save("one")
    assert "objects" in _left_out(saved)
    assert not _holds(scene, saved, "HEAD")


@pytest.mark.parametrize("watch", [False, True])
def test_a_named_one_with_a_damaged_head_stays_a_repository(scene: Scene, watch: bool) -> None:
    if watch:
        scene.ws.watch()
    _hub(scene)
    first = scene.commit("one")
    scene.ws.save("whole")
    head = (scene.root / ".bare/HEAD").read_bytes()
    scene.write(".bare/HEAD", "")
    (scene.root / ".git").unlink()  # only `main/.git` names it, which is met later
    saved = scene.ws.save("damaged")
    assert ".bare" in _left_out(saved)
    assert ".bare" in _left_out(scene.ws.save("again", allow_empty=True))
    (scene.root / ".bare/HEAD").write_bytes(head)
    scene.check(first)


def test_a_file_in_whose_place_a_repository_is_now_is_reported(scene: Scene) -> None:
    scene.write("thing", "a file")
    saved = scene.ws.save("one")
    (scene.root / "thing").unlink()
    scene.git("init", "-q", "--bare", "thing")
    done = scene.ws.restore(saved.id)
    assert "thing" in done.failed and (scene.root / "thing/HEAD").is_file()


def test_one_below_a_folder_that_is_not_entered_is_not_written(scene: Scene) -> None:
    scene.write("built/repo/refs/heads/main", "held\n")
    old = scene.ws.save("one")
    shutil.rmtree(scene.root / "built")
    scene.git("init", "-q", "--bare", "built/repo", cwd=scene.root)
    scene.ws = Workspace(scene.root, exclude_patterns=["built"], **scene.options)
    scene.data = ["built"]
    before = scene.gits()
    done = scene.ws.restore(old.id, ["built/repo/refs/heads/main"])
    assert not done.ok
    assert scene.gits() == before


def test_a_worktree_whose_repository_is_elsewhere(scene: Scene, tmp_path: Path) -> None:
    hub = tmp_path / "elsewhere"
    hub.mkdir()
    scene.git("init", "-q", cwd=hub)
    scene.git("commit", "-q", "--allow-empty", "-m", "start", cwd=hub)
    scene.root.rmdir()
    scene.git("worktree", "add", "-q", str(scene.root), cwd=hub)
    scene.data = ["../elsewhere"]
    first = scene.commit("one")
    saved = scene.ws.save("one")
    assert not _left_out(saved)
    second = scene.commit("two")
    before = scene.gits()
    assert scene.ws.restore(saved.id).ok
    assert scene.gits() == before
    scene.check(first, second)
