"""Shadow git repositories, made with real git in the manner of each tool."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.errors import Damaged, HoldfastError, NotFound, Refused, Unavailable
from holdfast.importers import ImportRequest, open_import
from holdfast.model import Reason
from holdfast.workspace import Workspace
from unit.importers.scenes import Shadow, bytes_and_times, cline, messages, plan, praisonai, roo, run
from unprivileged import unprivileged

_MIB = 1 << 20


def opened(shadow: Shadow) -> Workspace:
    return Workspace(shadow.workspace, create=False)


def store_is_absent(tmp_path: Path) -> bool:
    return not list((tmp_path / "state").rglob("HEAD"))


class TestCheckpoints:
    @pytest.mark.parametrize("tool", [praisonai, cline, roo])
    def test_each_commit_becomes_one(self, tmp_path: Path, tool: Callable[[Path], Shadow]) -> None:
        shadow = tool(tmp_path)
        shadow.save("first", {"a.txt": "one\n", "src/b.py": "b\n"})
        shadow.save("second", {"a.txt": "two\n", "src/b.py": None, "c.txt": "c\n"})
        done = run(shadow.git_dir.parent)
        assert (done.added, done.present, done.not_carried) == (2, 0, ())
        found = {each.message: each for each in opened(shadow).list(None)}
        assert found["first"].timestamp == datetime.fromtimestamp(shadow.seconds - 60, UTC)
        assert found["second"].files_changed == ["a.txt", "c.txt", "src/b.py"]
        assert found["second"].parent == found["first"].id

    def test_files_come_back_exactly(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        folder = shadow.workspace
        (folder / "tool.sh").write_text("#!/bin/sh\n")
        (folder / "tool.sh").chmod(0o755)
        (folder / "link").symlink_to("a.txt")
        (folder / "out").symlink_to("/etc/passwd")
        (folder / os.fsdecode(b"n\xff\nl")).write_bytes(b"\0\r\n")
        (folder / ".gitattributes").write_text("* text=auto eol=crlf\n")
        shadow.save("first", {"a.txt": "one\n", "deep/er/%2E.txt": "x"})
        before = {name: each[2] for name, each in bytes_and_times(folder).items() if not (folder / name).is_symlink()}
        shadow.save("second", {"a.txt": "two\n", "deep/er/%2E.txt": None})
        (folder / "link").unlink()
        run(shadow.git_dir)
        workspace = opened(shadow)
        first = next(each for each in workspace.list(None) if each.message == "first")
        workspace.export(first.id, tmp_path / "out")
        assert {
            name: each[2]
            for name, each in bytes_and_times(tmp_path / "out").items()
            if not (tmp_path / "out" / name).is_symlink()
        } == before
        assert os.readlink(tmp_path / "out" / "link") == "a.txt"
        assert os.readlink(tmp_path / "out" / "out") == "/etc/passwd"
        assert stat.S_IMODE((tmp_path / "out" / "tool.sh").stat().st_mode) == 0o755
        assert (tmp_path / "out" / "a.txt").stat().st_mtime == shadow.seconds - 60
        assert workspace.verify().ok

    def test_time_of_a_file_is_that_of_its_last_change(self, tmp_path: Path) -> None:
        shadow = roo(tmp_path)
        shadow.save("first", {"a.txt": "one\n", "b.txt": "b\n"})
        shadow.save("second", {"a.txt": "two\n"})
        run(shadow.git_dir)
        opened(shadow).export("latest~1", tmp_path / "out")
        assert (tmp_path / "out" / "a.txt").stat().st_mtime == shadow.seconds
        assert (tmp_path / "out" / "b.txt").stat().st_mtime == shadow.seconds - 60

    def test_large_file(self, tmp_path: Path) -> None:
        shadow = roo(tmp_path)
        content = os.urandom(9 * _MIB)
        (shadow.workspace / "big.bin").write_bytes(content)
        shadow.save("first")
        run(shadow.git_dir)
        workspace = opened(shadow)
        workspace.export("latest~1", tmp_path / "out")
        assert (tmp_path / "out" / "big.bin").read_bytes() == content
        assert workspace.verify().ok

    def test_file_and_folder_swap(self, tmp_path: Path) -> None:
        shadow = roo(tmp_path)
        shadow.save("first", {"x/y": "1", "z": "2"})
        (shadow.workspace / "x" / "y").unlink()
        (shadow.workspace / "x").rmdir()
        shadow.save("second", {"x": "3", "z": None})
        shadow.save("third", {"z/w": "4"})
        run(shadow.git_dir)
        workspace = opened(shadow)
        workspace.export("latest~3", tmp_path / "1")
        workspace.export("latest~1", tmp_path / "3")
        assert (tmp_path / "1" / "x" / "y").read_text() == "1"
        assert (tmp_path / "3" / "x").read_text() == "3"
        assert (tmp_path / "3" / "z" / "w").read_text() == "4"

    def test_author_of_all_but_the_first_is_the_actor(self, tmp_path: Path) -> None:
        shadow = cline(tmp_path)
        shadow.save("first", {"a": "1\n"})
        shadow.save("second", {"a": "1\n2\n"})
        run(shadow.git_dir)
        assert [each.actor for each in reversed(opened(shadow).list(None))] == [None, "Agent", None]
        assert [each.origin.actor for each in opened(shadow).blame("a").lines] == ["user", "Agent"]

    def test_step_of_praisonai(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("[step-7] before | the refactoring", {"a": "1"})
        run(shadow.git_dir)
        found = opened(shadow).list(None)[-1]
        assert (found.message, found.step) == ("before | the refactoring", 7)

    def test_task_is_the_session(self, tmp_path: Path) -> None:
        shadow = cline(tmp_path)
        shadow.save("checkpoint-1234567-1717171717171", {"a": "1"})
        run(shadow.git_dir)
        assert [each.session for each in opened(shadow).list(None)] == [None, "1717171717171"]
        other = roo(tmp_path)
        other.save("Task: x, Time: 1", {"a": "2"})
        run(other.git_dir)
        assert "0198c0de-task" in [each.session for each in opened(other).list(None)]

    def test_empty_first_commit_is_left_out(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1"})
        assert "no files" in plan(shadow.git_dir).notes[0]
        run(shadow.git_dir)
        assert "Initial checkpoint" not in messages(shadow.workspace)

    def test_latest_is_the_folder(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1"})
        (shadow.workspace / "a").write_text("not saved by the tool")
        run(shadow.git_dir)
        workspace = opened(shadow)
        workspace.export("latest", tmp_path / "out")
        assert (tmp_path / "out" / "a").read_text() == "not saved by the tool"
        assert not workspace.diff("latest")

    def test_configuration_counts_for_the_save_of_the_folder(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1", "holdfast.toml": 'exclude_patterns = ["secret.txt"]\n'})
        (shadow.workspace / "secret.txt").write_text("s")
        run(shadow.git_dir)
        assert "secret.txt" in [each.path for each in opened(shadow).get("latest").uncovered]

    def test_existing_checkpoints_stay_and_come_first(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("theirs", {"a": "1"})
        own = Workspace(shadow.workspace).save("ours")
        run(shadow.git_dir)
        assert messages(shadow.workspace)[:2] == ["ours", "theirs"]
        assert opened(shadow).get(own.id).sequence == 1


class TestHistory:
    def test_branches_and_commits_of_the_reflog(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        first = shadow.save("first", {"a": "1"})
        shadow.save("second", {"a": "2"})
        shadow.git("reset", "-q", "--hard", first)  # what a restore of PraisonAI does: `second` is unreachable
        shadow.save("third", {"a": "3"})
        shadow.git("checkout", "-q", "-b", "task-2", first)
        shadow.save("fourth", {"b": "4"})
        shadow.git("pack-refs", "--all")
        never = ("-c", "gc.reflogExpire=never", "-c", "gc.reflogExpireUnreachable=never")
        shadow.git(*never, "gc", "-q", "--prune=never")
        assert run(shadow.git_dir).added == 4
        assert messages(shadow.workspace)[:4] == ["first", "second", "third", "fourth"]
        workspace = opened(shadow)
        parents = {each.message: each.parent for each in workspace.list(None)}
        assert parents["second"] == parents["third"] == parents["fourth"]

    def test_equal_times_go_by_the_reflog(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        first = shadow.save("first", {"a": "1"})
        for number in range(8):
            shadow.git("reset", "-q", "--hard", first)
            shadow.seconds -= 60 * (number > 0)
            shadow.save(f"try {number}", {"a": f"try {number}"})
        run(shadow.git_dir)
        assert messages(shadow.workspace)[1:9] == [f"try {number}" for number in range(8)]

    def test_pruned_commits_of_the_reflog_are_a_note(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        first = shadow.save("first", {"a": "1"})
        shadow.save("second", {"a": "2"})
        shadow.git("reset", "-q", "--hard", first)
        log = (shadow.git_dir / "logs" / "HEAD").read_bytes()
        shadow.git("reflog", "expire", "--expire=now", "--all")
        shadow.git("gc", "-q", "--prune=now")
        (shadow.git_dir / "logs" / "HEAD").write_bytes(log)
        planned = plan(shadow.git_dir)
        assert planned.checkpoints == 1 and not planned.not_carried
        assert any("reflog" in note for note in planned.notes)

    def test_second_run_adds_nothing(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1"})
        run(shadow.git_dir)
        before = messages(shadow.workspace)
        assert plan(shadow.git_dir).new == 0
        again = run(shadow.git_dir)
        assert (again.added, again.present) == (0, 1)
        assert messages(shadow.workspace) == before

    def test_later_commits_are_added(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1"})
        run(shadow.git_dir)
        shadow.save("second", {"a": "2", "b": "1"})
        assert run(shadow.git_dir).added == 1
        found = opened(shadow).get("latest~1")
        assert (found.message, found.files_changed) == ("second", ["a", "b"])

    def test_two_imports_at_once_add_each_commit_once(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1"})
        Workspace(shadow.workspace)
        both = [open_import(ImportRequest(str(shadow.git_dir))) for _ in range(2)]
        assert [each.plan().new for each in both] == [1, 1]
        assert sum(each.run().added for each in both) == 1
        for each in both:
            each.close()

    def test_continues_after_kill(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        for number in range(5):
            shadow.save(f"commit {number}", {"a": str(number), f"f{number}": "x"})
        script = """
import os, signal, sys
from holdfast.importers import ImportRequest, open_import
opened = open_import(ImportRequest(sys.argv[1]))
opened.plan()
opened.run(lambda stage, done, total: done == 4 and os.kill(os.getpid(), signal.SIGKILL))
"""
        killed = subprocess.run([sys.executable, "-c", script, str(shadow.git_dir)], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert messages(shadow.workspace) == ["commit 0", "commit 1", "commit 2"]
        assert run(shadow.git_dir).added == 2
        assert messages(shadow.workspace)[:5] == [f"commit {number}" for number in range(5)]
        assert opened(shadow).verify().ok

    def test_killed_before_the_last_save(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1"})
        script = """
import os, signal, sys
from holdfast.importers import ImportRequest, open_import
from holdfast.workspace import Workspace
Workspace.save = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
opened = open_import(ImportRequest(sys.argv[1]))
opened.run()
"""
        subprocess.run([sys.executable, "-c", script, str(shadow.git_dir)], check=False)
        assert messages(shadow.workspace) == ["first"]
        assert run(shadow.git_dir).added == 0
        assert len(messages(shadow.workspace)) == 2


class TestSourceIsOnlyRead:
    def test_bytes_and_times_stay(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1"})
        before = bytes_and_times(shadow.git_dir), bytes_and_times(shadow.workspace)
        run(shadow.git_dir)
        assert (bytes_and_times(shadow.git_dir), bytes_and_times(shadow.workspace)) == before

    def test_nothing_of_it_is_executed(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1", ".gitattributes": "* filter=evil diff=evil\n"})
        marker = tmp_path / "executed"
        touch = f"touch {marker}"
        for key in (
            "core.fsmonitor",
            "filter.evil.smudge",
            "filter.evil.clean",
            "diff.evil.textconv",
            "core.sshCommand",
        ):
            shadow.git("config", key, touch)
        shadow.git("config", "filter.evil.required", "true")
        shadow.git("config", "include.path", str(tmp_path / "more"))
        (tmp_path / "more").write_text("[core]\n\tworktree = /nowhere\n")
        for hook in ("post-checkout", "reference-transaction", "post-index-change"):
            script = shadow.git_dir / "hooks" / hook
            script.parent.mkdir(exist_ok=True)
            script.write_text(f"#!/bin/sh\n{touch}\n")
            script.chmod(0o755)
        run(shadow.git_dir)
        assert not marker.exists()
        assert messages(shadow.workspace)[0] == "first"

    def test_plan_creates_nothing(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1"})
        plan(shadow.git_dir)
        assert store_is_absent(tmp_path)


class TestRestore:
    def test_keeps_what_the_tool_never_saved(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1", ".gitignore": "data/\n", ".env": "SECRET", "data/x": "x", "run.log": "l"})
        shadow.save("second", {"a": "2", "new": "n"})
        run(shadow.git_dir)
        (shadow.workspace / ".gitignore").write_text("")
        workspace = opened(shadow)
        workspace.restore("latest~2")
        left = sorted(each.name for each in shadow.workspace.iterdir())
        assert left == [".env", ".gitignore", "a", "data", "run.log"]
        assert (shadow.workspace / "a").read_text() == "1"

    def test_private_file_stays_private(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"key": "1"})
        (shadow.workspace / "key").chmod(0o600)
        shadow.workspace.chmod(0o700)
        run(shadow.git_dir)
        (shadow.workspace / "key").write_text("2")
        opened(shadow).restore("latest~1")
        assert stat.S_IMODE((shadow.workspace / "key").stat().st_mode) == 0o600
        assert stat.S_IMODE(shadow.workspace.stat().st_mode) == 0o700


class TestNotCarried:
    def test_nested_repository(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        nested = shadow.workspace / "lib"
        nested.mkdir()
        shadow.git("init", "-q", str(nested))
        subprocess.run(["git", "-C", str(nested), "-c", "user.name=x", "-c", "user.email=x", "commit", "-q",
                        "--allow-empty", "-m", "x"], check=True)  # fmt: skip
        shadow.save("first", {"a": "1"})
        shadow.save("second", {"a": "2"})
        planned, done = plan(shadow.git_dir), run(shadow.git_dir)
        assert [(each.what, each.checkpoints) for each in done.not_carried] == [("lib", 2)]
        assert planned.not_carried == done.not_carried
        found = opened(shadow).get("latest~1").uncovered
        assert [(each.path, each.reason) for each in found] == [("lib", Reason.GIT_DIRECTORY)]
        (nested / "x").write_text("mine")
        opened(shadow).restore("latest~1")
        assert (nested / "x").read_text() == "mine"

    def test_renamed_git_folder_of_a_nested_repository(self, tmp_path: Path) -> None:
        shadow = roo(tmp_path)
        shadow.save("first", {"lib/.git_disabled/HEAD": "ref: refs/heads/main\n", "lib/a": "1"})
        shadow.save("second", {"lib/.git_disabled/config": "", "lib/a": "2"})
        planned = plan(shadow.git_dir)
        assert [each.what for each in planned.not_carried] == ["lib/.git_disabled"]
        assert any("rename it to .git" in note for note in planned.notes)
        run(shadow.git_dir)
        opened(shadow).export("latest~1", tmp_path / "out")
        assert sorted(each.name for each in (tmp_path / "out" / "lib").iterdir()) == ["a"]

    def test_damaged_content(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1", "b": "b"})
        shadow.save("second", {"a": "2"})
        for content, damage in (("1", b""), ("2", b"garbage")):
            blob = shadow.git("hash-object", "--stdin", stdin=content.encode())
            place = shadow.git_dir / "objects" / blob[:2] / blob[2:]
            place.chmod(0o644)
            place.write_bytes(damage)
        done = run(shadow.git_dir)
        assert done.added == 2
        assert {each.what for each in done.not_carried} == {"a"}
        found = opened(shadow).list(None)
        assert [(each.message, each.complete) for each in found][1:] == [("second", False), ("first", False)]
        opened(shadow).export("latest~1", tmp_path / "out")
        assert [each.name for each in (tmp_path / "out").iterdir()] == ["b"]

    def test_branch_whose_commit_is_damaged(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1"})
        shadow.git("checkout", "-q", "-b", "other")
        lost = shadow.save("second", {"a": "2"})
        place = shadow.git_dir / "objects" / lost[:2] / lost[2:]
        place.chmod(0o644)
        place.write_bytes(b"")
        done = run(shadow.git_dir)
        assert done.added == 1
        assert [each.what for each in done.not_carried] == [f"commit {lost[:10]}"]
        assert plan(shadow.git_dir).not_carried == done.not_carried

    def test_missing_tree(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1"})
        second = shadow.save("second", {"a": "2", "d/x": "1"})
        shadow.save("third", {"a": "3", "d/x": "2"})
        tree = shadow.git("rev-parse", f"{second}:d")
        (shadow.git_dir / "objects" / tree[:2] / tree[2:]).unlink()
        done = run(shadow.git_dir)
        assert done.added == 2
        assert [each.what for each in done.not_carried] == [f"commit {second[:10]}"]
        found = opened(shadow).get("latest~1")
        assert (found.message, found.files_changed) == ("third", ["a", "d/x"])


def tree_of(*entries: tuple[str, bytes, str]) -> bytes:
    return b"".join(b"%s %s\0%s" % (mode.encode(), name, bytes.fromhex(oid)) for mode, name, oid in entries)


class TestHostile:
    @pytest.mark.parametrize("name", [b"..", b".", b".git", b".GIT", b"a/b", b"/etc/passwd", b"x" * 5000])
    def test_names(self, tmp_path: Path, name: bytes) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("good", {"a": "1"})
        blob = shadow.literally("blob", b"evil")
        inner = shadow.literally("tree", tree_of(("100644", name, blob)))
        shadow.commit_tree(shadow.literally("tree", tree_of(("40000", b"d", inner))))
        with pytest.raises(Refused):
            run(shadow.git_dir)
        assert store_is_absent(tmp_path)

    def test_link_and_folder_of_one_name(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        blob = shadow.literally("blob", b"/tmp")
        inner = shadow.literally("tree", tree_of(("100644", b"x", blob)))
        shadow.commit_tree(shadow.literally("tree", tree_of(("120000", b"a", blob), ("40000", b"a", inner))))
        with pytest.raises(Refused):
            run(shadow.git_dir)
        assert store_is_absent(tmp_path)

    @pytest.mark.parametrize("target", [b"", b"a\0b", b"x" * 4096])
    def test_a_link_that_no_file_system_has(self, tmp_path: Path, target: bytes) -> None:
        shadow = praisonai(tmp_path)
        link, blob = shadow.literally("blob", target), shadow.literally("blob", b"x")
        shadow.commit_tree(shadow.literally("tree", tree_of(("100644", b"a", blob), ("120000", b"l", link))))
        assert [each.what for each in run(shadow.git_dir).not_carried] == ["l"]
        opened(shadow).restore("latest~1")
        assert (shadow.workspace / "a").read_bytes() == b"x"

    def test_billions_of_paths(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        kind, oid = "100644", shadow.literally("blob", b"x")
        for _ in range(10):
            oid = shadow.literally("tree", tree_of(*((kind, b"%02d" % number, oid) for number in range(10))))
            kind = "40000"
        shadow.commit_tree(oid)
        with pytest.raises(Refused, match="more than"):
            run(shadow.git_dir)

    def test_thousands_of_folders_in_each_other(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        oid = shadow.literally("tree", b"")
        for _ in range(3000):
            oid = shadow.literally("tree", tree_of(("40000", b"d", oid)))
        shadow.commit_tree(oid)
        with pytest.raises(Refused, match="longer than"):
            run(shadow.git_dir)

    @pytest.mark.parametrize("place", ["objects/aa/" + "b" * 38, "objects/pack/pack-x.idx", "objects/info/alternates"])
    def test_pipe_is_not_waited_for(self, tmp_path: Path, place: str) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1"})
        path = shadow.git_dir / place
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
        with pytest.raises(Refused, match="not a regular file"):
            run(shadow.git_dir)

    def test_huge_message(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        tree = shadow.literally("tree", tree_of(("100644", b"a", shadow.literally("blob", b""))))
        who = b"X <x> 1700000000 +0000"
        text = b"tree %s\nauthor %s\ncommitter %s\n\n%s\n" % (tree.encode(), who, who, b"m" * (8 << 20))
        shadow.git("update-ref", "refs/heads/main", shadow.literally("commit", text))
        run(shadow.git_dir)
        assert len(opened(shadow).list(None)[-1].message) == 1 << 20

    def test_time_far_away(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        tree = shadow.literally("tree", tree_of(("100644", b"a", shadow.literally("blob", b""))))
        for seconds in (b"99999999999999999", b"-5", b"nonsense"):
            who = b"X <x> %s +0000" % seconds
            text = b"tree %s\nauthor %s\ncommitter %s\n\nfar %s\n" % (tree.encode(), who, who, seconds)
            shadow.git("update-ref", f"refs/heads/{seconds.decode().strip('-')}", shadow.literally("commit", text))
        assert run(shadow.git_dir).added == 3
        assert {each.timestamp.year for each in opened(shadow).list(None)[1:]} == {1970, 9999}


class TestRefused:
    def is_error(
        self, kind: type[HoldfastError], source: Path, target: Path | None = None, *, match: str | None = None
    ) -> None:
        with pytest.raises(kind, match=match) as caught:
            run(source, target)
        assert caught.value.hint

    def test_no_workspace_named(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1"})
        shadow.git("config", "--unset", "core.worktree")
        self.is_error(Refused, shadow.git_dir, match="core.worktree")
        assert run(shadow.git_dir, shadow.workspace).added == 1

    def test_workspace_is_gone(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.save("first", {"a": "1"})
        os.rename(shadow.workspace, tmp_path / "moved")
        self.is_error(NotFound, shadow.git_dir, match="does not exist")
        assert run(shadow.git_dir, tmp_path / "moved").added == 1

    def test_without_commits(self, tmp_path: Path) -> None:
        self.is_error(NotFound, roo(tmp_path).git_dir, match="no commits")

    def test_with_the_empty_commit_only(self, tmp_path: Path) -> None:
        self.is_error(NotFound, praisonai(tmp_path).git_dir, match="no files")

    def test_not_there(self, tmp_path: Path) -> None:
        self.is_error(NotFound, tmp_path / "nowhere")

    @pytest.mark.parametrize("name", ["empty", "file"])
    def test_something_else(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").write_text("x")
        self.is_error(Refused, tmp_path / name)

    def test_other_object_format(self, tmp_path: Path) -> None:
        subprocess.run(["git", "init", "-q", "--object-format=sha256", str(tmp_path / "s")], check=True)
        self.is_error(Refused, tmp_path / "s", tmp_path, match="SHA-256")

    def test_all_commits_damaged(self, tmp_path: Path) -> None:
        shadow = roo(tmp_path)
        commit = shadow.save("first", {"a": "1"})
        place = shadow.git_dir / "objects" / commit[:2] / commit[2:]
        place.chmod(0o644)
        place.write_bytes(place.read_bytes()[:10])
        self.is_error(Damaged, shadow.git_dir)
        assert store_is_absent(tmp_path)

    def test_unreadable(self, tmp_path: Path) -> None:
        shadow = praisonai(tmp_path)
        shadow.git_dir.parent.chmod(0)
        try:
            unprivileged(lambda: self.is_error(Unavailable, shadow.git_dir.parent))
        finally:
            shadow.git_dir.parent.chmod(0o700)
