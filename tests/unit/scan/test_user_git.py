"""What the user's own git says, read without the git program; real git is what it is compared with."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.scan.ignore import MAX_IGNORE_BYTES
from holdfast.scan.user_git import MAX_INCLUDE_DEPTH, Tracked, common_dir, excludes_file, git_dir, info_exclude

Git = Callable[..., str]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home/.config/git").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def git(home: Path) -> Git:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "GIT_CONFIG_NOSYSTEM": "1"}
    for role in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{role}_NAME": "A", f"GIT_{role}_EMAIL": "a@example.org"}

    def run(*arguments: str | Path) -> str:
        answer = subprocess.run(["git", *arguments], env=environment, check=True, capture_output=True).stdout
        return os.fsdecode(answer)

    return run


@pytest.fixture
def repository(tmp_path: Path, git: Git) -> Path:
    git("init", "--quiet", tmp_path / "repository")
    return tmp_path / "repository"


def excludes(home: Path, repository: Path | None = None) -> bytes:
    return excludes_file(home, home / ".config", repository, system=home / "no-system-config")


def tracked(git_folder: Path, memo: dict[str, bool] | None = None, memo_key: bytes = b"") -> Tracked:
    return Tracked(git_folder, memo, memo_key, clock=lambda: time.time_ns() + 10**10)


class TestGitDir:
    def test_a_git_folder_is_found(self, repository: Path) -> None:
        assert git_dir(repository) == repository / ".git"

    def test_linked_worktree_is_followed_to_both_folders(self, repository: Path, git: Git) -> None:
        git("-C", repository, "commit", "--quiet", "--allow-empty", "-m", "first")
        git("-C", repository, "worktree", "add", "--quiet", "../linked")

        found = git_dir(repository.parent / "linked")

        assert found == repository / ".git/worktrees/linked"
        assert common_dir(found).resolve() == repository / ".git"

    def test_a_git_file_with_a_relative_path_is_followed(self, repository: Path) -> None:
        moved = repository.parent / "moved"
        (repository / ".git").rename(moved)
        (repository / ".git").write_bytes(b"gitdir: ../moved\r\n")

        found = git_dir(repository)

        assert found is not None
        assert found.resolve() == moved

    @pytest.mark.parametrize(
        "content",
        [b"", b"gitdir:", b"gitdir: ", b"gitdir: \0", b"gitdir: nowhere", b"\xff\xfe", b"gitdir: /" + b"x" * 5000],
    )
    def test_a_git_file_that_makes_no_sense_is_no_repository(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / ".git").write_bytes(content)

        assert git_dir(tmp_path) is None

    def test_malformed_git_file_is_no_repository(self, repository: Path) -> None:
        (repository / ".git").rename(repository.parent / "moved")
        (repository / ".git").write_bytes(b"gitdir= ../moved\n")

        assert git_dir(repository) is None

    def test_missing_empty_and_pipe_git_are_no_repository(self, tmp_path: Path) -> None:
        for name in ("nothing", "empty/.git", "pipe"):
            (tmp_path / name).mkdir(parents=True)
        os.mkfifo(tmp_path / "pipe/.git")

        assert [git_dir(tmp_path / name) for name in ("nothing", "empty", "pipe")] == [None, None, None]

    @pytest.mark.parametrize("part", ["HEAD", "objects", "refs"])
    def test_a_git_folder_that_lacks_what_git_needs_is_no_repository(self, repository: Path, part: str) -> None:
        (repository / ".git" / part).rename(repository / ".git/elsewhere")

        assert git_dir(repository) is None


class TestInfoExclude:
    def test_it_is_read(self, repository: Path) -> None:
        (repository / ".git/info/exclude").write_bytes(b"*.tmp\n")

        assert info_exclude(repository / ".git") == b"*.tmp\n"

    def test_a_linked_worktree_has_that_of_its_repository(self, repository: Path, git: Git) -> None:
        git("-C", repository, "commit", "--quiet", "--allow-empty", "-m", "first")
        git("-C", repository, "worktree", "add", "--quiet", "../linked")
        (repository / ".git/info/exclude").write_bytes(b"*.tmp\n")

        assert info_exclude(repository / ".git/worktrees/linked") == b"*.tmp\n"

    def test_an_absent_or_too_large_one_is_empty(self, repository: Path) -> None:
        place = repository / ".git/info/exclude"
        place.unlink()
        assert info_exclude(repository / ".git") == b""
        place.write_bytes(b"a" * MAX_IGNORE_BYTES)
        assert info_exclude(repository / ".git") == b"a" * MAX_IGNORE_BYTES
        place.write_bytes(b"a" * (MAX_IGNORE_BYTES + 1))
        assert info_exclude(repository / ".git") == b""


CONFIGS = [
    b"[core]\n\texcludesFile = ~/chosen\n",
    b"[core]\nexcludesfile=~/chosen",
    b"[CORE]\nEXCLUDESFILE = ~/chosen\n",
    b"[core] excludesFile = ~/chosen\n",
    b"[core]\r\n\texcludesFile = ~/chosen\r\n",
    b"\xef\xbb\xbf[core]\nexcludesFile = ~/chosen\n",
    b'[core]\nexcludesFile = "~/chosen"\n',
    b'[core]\nexcludesFile = ~/"cho"sen # a comment\n',
    b"[core]\nexcludesFile = ~/chosen ; a comment\n",
    b"[core]\nexcludesFile = ~/cho\\\nsen\n",
    b"[core]\nexcludesFile = \\\n  ~/chosen  \t\n",
    b"[core]\nexcludesFile = ~/other\n[core]\nexcludesFile = ~/chosen\n",
    b"[core]\nexcludesFile = ~/with space\n",
    b'[core]\nexcludesFile = "~/with space" \n',
    b'[core]\nexcludesFile = "~/with#hash"\n',
    b'[core]\nexcludesFile = ~/with\\"quote\n',
    b"[core]\nexcludesFile = ~/with\\\\backslash\n",
    b"[core]\nexcludesFile = ~/ch\xc3\xb6sen\n",
    b'[core "sub"]\nexcludesFile = ~/other\n',
    b"[core.sub]\nexcludesFile = ~/other\n",
    b"[user]\nexcludesFile = ~/other\n[core]\nother = 1\n",
    b"[core]\nbare\nexcludesFile = ~/chosen\n",
    b'[a "]\\"[core]"]\nexcludesFile = ~/other\n',
    b"[include]\npath = more\n",
    b"[include]\npath = ~/more\n[core]\nexcludesFile = ~/chosen\n",
    b"[core]\nexcludesFile = ~/other\n[include]\npath = more\n",
    b"[include]\npath = missing\n[core]\nexcludesFile = ~/chosen\n",
    b"[core]\nexcludesFile = ~/chosen\n[other]\npath = more\n",
    b'[core]\nexcludesFile = "~/space at the end "   \n',
    b"# [core]\n; excludesFile = ~/other\n",
    b"[core]\nexcludesFile =\n",
    b"",
]


class TestExcludesFile:
    @pytest.mark.parametrize("config", CONFIGS)
    def test_a_configuration_is_read_as_git_reads_it(self, home: Path, git: Git, config: bytes) -> None:
        for name in (
            "chosen",
            "other",
            "with space",
            "with#hash",
            'with"quote',
            "with\\backslash",
            "chösen",
            "included",
            "space at the end ",
        ):
            (home / name).write_bytes(name.encode())
        (home / "more").write_bytes(b"[core]\nexcludesFile = ~/included\n")
        (home / ".config/git/ignore").write_bytes(b"default")
        (home / ".gitconfig").write_bytes(config)
        default = str(home / ".config/git/ignore")

        named = git("config", "-z", "--type=path", f"--default={default}", "--get", "core.excludesFile")[:-1]

        assert excludes(home) == (Path(named).read_bytes() if named else b"")

    def test_the_nearer_configuration_wins(self, home: Path, repository: Path) -> None:
        for place in ("system", ".config/git/config", ".gitconfig"):
            (home / place).write_text(f"[core]\nexcludesFile = {home}/by-{Path(place).name}\n")
            (home / f"by-{Path(place).name}").write_text(place)
        (home / "by-repository").write_text("repository")
        (repository / ".git/config").write_text("[core]\nexcludesFile = ~/by-repository\n")

        def found(inside: Path | None) -> bytes:
            return excludes_file(home, home / ".config", inside, system=home / "system")

        assert found(repository) == b"repository"
        assert found(None) == b".gitconfig"
        (home / ".gitconfig").unlink()
        assert found(None) == b".config/git/config"
        (home / ".config/git/config").unlink()
        assert found(None) == b"system"
        (home / "system").unlink()
        assert found(None) == b""

    def test_linked_worktree_uses_the_common_configuration(self, home: Path, repository: Path, git: Git) -> None:
        git("-C", repository, "commit", "--quiet", "--allow-empty", "-m", "first")
        git("-C", repository, "worktree", "add", "--quiet", "../linked")
        git("-C", repository, "config", "core.excludesFile", "~/chosen")
        (home / "chosen").write_bytes(b"*.bak\n")

        assert excludes(home, repository.parent / "linked") == b"*.bak\n"

    def test_relative_excludes_file_needs_a_repository(self, home: Path, repository: Path) -> None:
        (home / ".gitconfig").write_bytes(b"[core]\nexcludesFile = mine\n")
        (repository / "mine").write_bytes(b"*.bak\n")

        assert excludes(home, repository) == b"*.bak\n"
        assert excludes(home) == b""

    def test_spaces_within_quotes_belong_to_the_value(self, home: Path, repository: Path) -> None:
        (home / ".gitconfig").write_bytes(b'[core]\nexcludesFile =  "  mine  "  \n')
        (repository / "  mine  ").write_bytes(b"*.bak\n")

        assert excludes(home, repository) == b"*.bak\n"

    def test_includes_are_followed_to_a_limited_depth(self, home: Path) -> None:
        (home / "chosen").write_bytes(b"*.bak\n")
        for depth in range(MAX_INCLUDE_DEPTH + 1):
            (home / f"level{depth}").write_text(f"[include]\npath = level{depth + 1}\n")
        (home / f"level{MAX_INCLUDE_DEPTH}").write_bytes(b"[core]\nexcludesFile = ~/chosen\n")

        (home / ".gitconfig").write_bytes(b"[include]\npath = level1\n")
        assert excludes(home) == b"*.bak\n"
        (home / ".gitconfig").write_bytes(b"[include]\npath = level0\n")
        assert excludes(home) == b""

    def test_files_that_include_each_other_many_times_come_to_an_end(self, home: Path) -> None:
        (home / "chosen").write_bytes(b"*.bak\n")
        (home / ".gitconfig").write_bytes(
            b"[core]\nexcludesFile = ~/chosen\n[include]\n" + b"path = .gitconfig\n" * 1000
        )

        assert excludes(home) == b"*.bak\n"

    @pytest.mark.parametrize(
        "config",
        [
            *(b"[core", b"[core]\nexcludesFile", b'[core]\nexcludesFile = "~/chosen', b"[core]\nexcludesFile = \\x"),
            *(b'[core "]\nexcludesFile = ~/chosen', b"[core]\n=\nexcludesFile = ~/chosen", b"\xff\xfe\0"),
            *(b"]excludesfile", b"[core]\nexcludesFile = \\", b"[core]\nexcludesFile = /\0", b"[]\nexcludesfile=x"),
            *(b"[include]\npath = \0\n", b"[core ]\nexcludesFile = ~/chosen", b"[core]\nexcludesFile ; = ~/chosen"),
        ],
    )
    def test_a_configuration_that_makes_no_sense_chooses_nothing(self, home: Path, config: bytes) -> None:
        (home / "chosen").write_bytes(b"*.bak\n")
        (home / ".gitconfig").write_bytes(config)

        assert excludes(home) == b""

    def test_a_folder_a_pipe_or_a_large_file_counts_as_empty(self, home: Path) -> None:
        (home / "folder").mkdir()
        os.mkfifo(home / "pipe")
        (home / "large").write_bytes(b"a" * (MAX_IGNORE_BYTES + 1))
        for name in ("folder", "pipe", "large", "absent"):
            (home / ".gitconfig").write_text(f"[core]\nexcludesFile = ~/{name}\n")
            assert excludes(home) == b""


NAMES = [
    "a-b",
    "a.b",
    "a/b/c",
    "a/b.c",
    "a/b0",
    "a0",
    "ab/c",
    "b c",
    "é/ü",
    "\udcff/\udcfe",
    "z/y/x/w/v",
    "long/" + "n" * 200,
]


def fill(repository: Path, git: Git, *options: str) -> None:
    for name in NAMES:
        place = repository / "tree" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(os.fsencode(name))
    git("-C", repository, *options, "add", "--all", "--force")


def assert_as_git_says(answers: Tracked, repository: Path, git: Git) -> None:
    """Every tracked path, every folder above one, and names near to them, get git's answer."""
    files = {name for name in git("-C", repository, "ls-files", "-z").split("\0") if name}
    assert len(files) >= len(NAMES)
    folders = {name[:at] for name in files for at, char in enumerate(name) if char == "/"}
    for name in files | folders | {name + "x" for name in files} | {name[:-1].rstrip("/") for name in files}:
        assert answers.file(name) == (name in files), name
        assert answers.folder(name) == (name in folders), name
    assert answers.folder("")


class TestTracked:
    @pytest.mark.parametrize("version", ["2", "3", "4"])
    @pytest.mark.parametrize("objects", ["sha1", "sha256"])
    def test_every_index_version_and_object_format_is_read(
        self, tmp_path: Path, git: Git, version: str, objects: str
    ) -> None:
        repository = tmp_path / "repository"
        git("init", "--quiet", f"--object-format={objects}", repository)
        git("-C", repository, "config", "index.version", version)
        fill(repository, git)
        if version == "3":  # git writes it only where an entry needs it
            git("-C", repository, "rm", "--quiet", "--cached", "tree/b c")
            git("-C", repository, "add", "--intent-to-add", "tree/b c")
        assert (repository / ".git/index").read_bytes()[4:8] == bytes([0, 0, 0, int(version)])

        assert_as_git_says(tracked(repository / ".git"), repository, git)

    @pytest.mark.parametrize("config", [None, b"[extensions]\nobjectFormat = sha1\n", b"[other]\nname = sha256\n"])
    def test_object_format_is_sha1_by_default(self, repository: Path, git: Git, config: bytes | None) -> None:
        fill(repository, git)
        (repository / ".git/config").unlink()
        if config is not None:
            (repository / ".git/config").write_bytes(config)

        assert tracked(repository / ".git").file("tree/b c")

    def test_a_name_too_long_for_its_length_field_is_read(self, repository: Path, git: Git) -> None:
        fill(repository, git)
        long = "/".join(["d" * 250] * 18)
        blob = git("-C", repository, "hash-object", "-w", "tree/b c").strip()
        git("-C", repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},{long}")

        assert_as_git_says(tracked(repository / ".git"), repository, git)

    def test_a_split_index_is_read_with_the_file_that_it_builds_upon(self, repository: Path, git: Git) -> None:
        fill(repository, git)
        git("-C", repository, "update-index", "--split-index")
        (repository / "until").write_text("sorts behind what is shared")
        (repository / "tree/b c").write_text("changed")
        git("-C", repository, "add", "--all")
        assert list((repository / ".git").glob("sharedindex.*"))

        assert_as_git_says(tracked(repository / ".git"), repository, git)

    def test_a_split_index_that_builds_upon_itself_comes_to_an_end(self, repository: Path, git: Git) -> None:
        fill(repository, git)
        git("-C", repository, "update-index", "--split-index")
        (repository / "later").write_text("later")
        git("-C", repository, "add", "later")
        (shared,) = (repository / ".git").glob("sharedindex.*")
        shared.unlink()
        shared.write_bytes((repository / ".git/index").read_bytes())
        answers = tracked(repository / ".git")

        assert answers.file("later")
        assert not answers.file("tree/b c")

    def test_a_folder_that_a_sparse_index_leaves_out_is_tracked(self, repository: Path, git: Git) -> None:
        fill(repository, git)
        git("-C", repository, "commit", "--quiet", "-m", "first")
        (repository / "kept").mkdir()
        (repository / "kept/file").write_text("kept")
        git("-C", repository, "add", "--all")
        git("-C", repository, "commit", "--quiet", "-m", "second")
        git("-C", repository, "sparse-checkout", "set", "--cone", "--sparse-index", "kept")
        answers = tracked(repository / ".git")

        assert answers.folder("tree")
        assert answers.file("kept/file")
        assert not answers.folder("other")

    def test_a_submodule_is_a_tracked_folder(self, repository: Path, git: Git) -> None:
        git("-C", repository, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib/part")
        answers = tracked(repository / ".git")

        assert answers.folder("lib/part")
        assert answers.folder("lib")
        assert not answers.folder("lib/part/inner")

    def test_nothing_is_tracked_where_there_is_no_index(self, repository: Path) -> None:
        answers = tracked(repository / ".git")

        assert not answers.file("a")
        assert not answers.folder("")

    def test_nothing_is_tracked_by_an_index_that_is_damaged(self, repository: Path, git: Git) -> None:
        fill(repository, git)
        index = repository / ".git/index"
        whole = index.read_bytes()
        for broken in (
            b"",
            b"\xff" * 500,
            whole[:100],
            whole[:4] + b"\0\0\0\x09" + whole[8:],
            b"DIRT" + whole[4:],
            b"DIRC" + b"\xff" * 8,
        ):
            index.write_bytes(broken)
            assert not tracked(repository / ".git").folder(""), broken[:20]

    def test_index_with_a_bad_prefix_length_is_damaged(self, repository: Path, git: Git) -> None:
        git("-C", repository, "config", "index.version", "4")
        fill(repository, git)
        index = repository / ".git/index"
        whole = bytearray(index.read_bytes())
        assert whole[12 + 62] == 0
        whole[12 + 62] = 9
        index.write_bytes(whole)

        assert not tracked(repository / ".git").folder("")

    def test_answers_are_cached_while_the_index_is_unchanged(self, repository: Path, git: Git) -> None:
        fill(repository, git)
        first = tracked(repository / ".git")
        assert first.file("tree/b c")
        assert not first.folder("nothing")

        second = tracked(repository / ".git", first.memo | {"made up": True}, first.key)

        assert first.memo == {"tree/b c": True, "nothing/": False}
        assert second.file("made up")
        assert second.key == first.key
        assert second.memo == first.memo | {"made up": True}

    def test_a_key_without_a_memo_is_no_trouble(self, repository: Path, git: Git) -> None:
        fill(repository, git)
        key = tracked(repository / ".git").key

        assert tracked(repository / ".git", None, key).file("tree/b c")

    def test_a_memo_does_not_count_once_the_index_has_changed(self, repository: Path, git: Git) -> None:
        fill(repository, git)
        first = tracked(repository / ".git")
        git("-C", repository, "rm", "--quiet", "--cached", "tree/b c")

        second = tracked(repository / ".git", {"tree/b c": True}, first.key)

        assert second.key != first.key
        assert not second.file("tree/b c")

    def test_recently_changed_index_is_not_cached(self, repository: Path, git: Git) -> None:
        fill(repository, git)
        written = max((repository / ".git/index").stat().st_mtime_ns, (repository / ".git/index").stat().st_ctime_ns)

        young = Tracked(repository / ".git", None, b"", clock=lambda: written + 49_000_000)
        old = Tracked(repository / ".git", None, b"", clock=lambda: written + 51_000_000)

        assert old.key
        assert not young.key
        assert not Tracked(repository / ".git", {"x": True}, young.key, clock=lambda: written).file("x")

    def test_index_replaced_before_the_read_is_not_cached(self, repository: Path, git: Git) -> None:
        fill(repository, git)
        answers = tracked(repository / ".git")
        assert answers.key
        (repository / "later").write_text("later")
        git("-C", repository, "add", "later")

        assert answers.file("later")
        assert not answers.key

    def test_the_index_is_not_read_while_the_memo_answers(self, repository: Path, git: Git) -> None:
        fill(repository, git)
        key = tracked(repository / ".git").key
        answers = tracked(repository / ".git", {"x": True, "y/": False}, key)
        (repository / ".git/index").unlink()

        assert answers.file("x")
        assert not answers.folder("y")
        assert answers.key == key
