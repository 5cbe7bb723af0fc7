"""Ignore rules decide as git does: decisions are compared with `git check-ignore`, down to the line that decides."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from holdfast.scan.ignore import IGNORED, Around, Rules, Sources, Verdict, decide_path


class Repository:
    """A git repository whose ignore files can be set, and what git and Holdfast say about its paths."""

    def __init__(self, home: Path) -> None:
        self.root = home / "repository"
        self.user = home / "user-excludes"
        self.user.touch()
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        self._environment |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
        self._git("init", "--quiet", self.root)
        self._git("-C", self.root, "config", "core.excludesFile", self.user)
        self.gitignore: dict[str, bytes] = {}
        self.info = b""

    def write(self, gitignore: Mapping[str, bytes], *, info: bytes = b"", user: bytes = b"") -> None:
        for folder in self.gitignore.keys() - gitignore.keys():
            (self.root / folder / ".gitignore").unlink()
        for folder, content in gitignore.items():
            (self.root / folder).mkdir(parents=True, exist_ok=True)
            (self.root / folder / ".gitignore").write_bytes(content)
        (self.root / ".git/info/exclude").write_bytes(info)
        self.user.write_bytes(user)
        self.gitignore, self.info = dict(gitignore), info

    def decided_by_git(self, paths: Iterable[str]) -> dict[str, Verdict | None]:
        options = ("check-ignore", "--no-index", "--verbose", "--non-matching", "-z", "--stdin")
        asked = b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)  # "./": git reads ":a" as a pathspec
        answer = self._git("-C", self.root, *options, given=asked)
        fields = iter(answer.split(b"\0")[:-1])
        verdicts: dict[str, Verdict | None] = {}
        for source, line, pattern, path in zip(fields, fields, fields, fields, strict=True):
            place = source.replace(os.fsencode(self.user), b"core.excludesFile") + b":" + line + b": " + pattern
            is_ignored = pattern and not pattern.startswith(b"!")
            rule = place.decode("utf-8", "backslashreplace")
            verdicts[os.fsdecode(path[2:])] = Verdict(IGNORED, rule) if is_ignored else None
        return verdicts

    def decided(self, paths: Iterable[str]) -> dict[str, Verdict | None]:
        def sources(folder: str) -> Sources:
            return Sources(gitignore=self.gitignore.get(folder), repository=not folder, info_exclude=self.info)

        root = Rules.root(excludes_file=self.user.read_bytes())
        return {p: decide_path(root, p, is_dir=(self.root / p).is_dir(), sources=sources) for p in paths}

    def differences(self, paths: Iterable[str]) -> dict[str, tuple[Verdict | None, Verdict | None]]:
        """What Holdfast and git say, for each path on which they disagree."""
        paths = list(dict.fromkeys(paths))
        ours, theirs = self.decided(paths), self.decided_by_git(paths)
        assert list(ours) == list(theirs) == paths
        return {path: (ours[path], theirs[path]) for path in paths if ours[path] != theirs[path]}

    def _git(self, *arguments: str | Path, given: bytes = b"") -> bytes:
        done = subprocess.run(["git", *arguments], input=given, capture_output=True, env=self._environment, check=False)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("home"))


TRICKY = [
    *(b"", b"a", b"/a", b"a/", b"/a/", b"//a", b"a//", b"/", b"//", b"!", b"!/", b"!a", b"\\!a", b"\\#a", b"#a"),
    *(b"*", b"/*", b"*/", b"**", b"/**", b"**/", b"***", b"/***", b"***/", b"*/*", b"*/a", b"a/*", b"/*/a", b"*/*/a"),
    *(b"**/a", b"/**/a", b"a/**", b"/a/**", b"a/**/", b"a/**/b", b"a/**/**/b", b"**/a/**", b"**/a/**/b", b"a/***/b"),
    *(b"a**", b"/a**", b"**a", b"/**a", b"a**/b", b"/a**/b", b"[a]**/b", b"a/**b", b"a/b**/c", b"a**b/c", b"/a**\\/b"),
    *(b"a/**\\/b", b"**\\/b", b"a\\/b", b"\\/a", b"/\\a", b"a\\", b"a\\/", b"\\", b"\\\\", b"*\\", b"a\\\\", b"**/\\a"),
    *(b"?", b"??", b"/?", b"a?c", b"a?/b", b"?/b", b"[ab]", b"[!ab]", b"[^ab]", b"[a-c]", b"[c-a]", b"[a-]", b"[-a]"),
    *(b"[]a]", b"[!]a]", b"[]-a]", b"[]", b"[!]", b"[", b"[a", b"a[", b"[a-", b"[\\]a]", b"[\\a-c]", b"[a-\\c]"),
    *(b"[a-c-e]", b"[--a]", b"[a\\-c]", b"[\\", b"[a-\\", b"[[]", b"[[a]", b"[[:]", b"[[:a]", b"[[::]]", b"[[:]]"),
    *(b"[[:alpha:]]", b"[![:alpha:]]", b"[[:nosuch:]]", b"[[:alpha:]-z]", b"[[:digit:]a]", b"[a-[:digit:]]"),
    *(b"[[:alpha:", b"[[:alpha:]", b"[[:alpha]]", b"a[/]b", b"a[!x]b", b"a/[!x]", b"[a/b]", b"a[/b]c", b"*[!a]*"),
    *(b"a ", b"a  ", b"a\\ ", b"a\\  ", b"a \\ ", b"a\\\\ ", b"a \\", b" ", b"\\ ", b" a", b"a b", b"a\t", b"a\r"),
    *(b"a\r\r", b"\r", b"a\r ", b"a\0b", b"a \0b", b"\0", b"*\xc3\xa9", b"?\xa9", b"*\xa9", b"[\xc3]\xa9", b"[\xa9]"),
    *(b"\xc3?", b"\xff", b"\xff*", b"*\xff", b"[\x80-\xff]", b"[!\xff]", b"\xef\xbb\xbfa", b"*.a", b"*a*", b"a*a"),
    *(b"*a*b*", b"*.a.*", b"a.*", b"*a/b", b"a/*b", b"a*/b", b"a/*/b", b"a/?/b", b"a/b/c", b"b/c", b"/b/c", b"b/c/"),
    *(b"*a*a*b", b"*?a", b"?*a", b"*[ab]c", b"[ab]*", b"[ab]/c", b"*b/*c", b"**/b*/c", b"a/**/*c", b"**/*b/**/c"),
    *(
        b"/a**\n!/ab",
        b"/a**/b\n!/ab\n!/a",
        b"[a-]b",
        b"[a-]]b",
        b"[[:digit:]-]b",
        b"[ab:]",
        b"[[:]a:]",
        b"a" * 255,
        b"a" * 256,
        b"a*" * 255,
    ),
    *(b"a/" * 200 + b"b", b"*/" * 200 + b"b", b"a/" * 200 + b"b*"),
]
PATHS = [
    *(
        "a",
        "b",
        "c",
        "d",
        "ab",
        "aab",
        "abc",
        "aa",
        "ba",
        "a.a",
        "x.a.b",
        ".a",
        "A",
        "z",
        "5",
        "-",
        "]",
        "[",
        "\\",
        "!",
    ),
    *(
        "#a",
        "!a",
        "a ",
        "a  ",
        " a",
        " ",
        "a b",
        "a\t",
        "a\r",
        "\r",
        "a\n",
        "\n",
        "\na",
        "a\\",
        "\\a",
        "*",
        "?",
        "a*",
        ":",
    ),
    *("é", "aé", "\udcff", "a\udcff", "\udca9", "\udcc3", "\ufeffa", "D/a", "D/b", "D/c", "aD/b", "a/a", "a/b", "a/c"),
    *("a/b/c", "a/b/D", "a/bD/c", "a/x/b", "a/x/y/b", "a/x/y/c", "b/c", "x/a", "x/b", "x/b/c", "x/a/b", "x/a/y/b/c"),
    *("ab/c", "ab/b", "-b", "]b", ":]", ":a:]", "a" * 255, "a/" * 200 + "b", "a/" * 200 + "c"),
    *("x/y/a", "ax/b", "ax/y/b", "b/a", "b/b", "a/é", "é/a", "a\nb", "a/\n", "aD", "abD", "D"),
]


def places(patterns: Iterable[bytes]) -> dict[str, bytes]:
    """One folder for each pattern, with that pattern in its ignore file."""
    return {f"p{number}": pattern for number, pattern in enumerate(patterns)}


def test_each_tricky_pattern_decides_about_each_path_as_in_git(repository: Repository) -> None:
    folders = places(TRICKY)
    for folder in folders:
        for name in ("D", "aD", "abD", "a/b/D", "a/bD"):
            (repository.root / folder / name).mkdir(parents=True)
    repository.write(folders)
    paths = [f"{folder}/{path}" for folder in folders for path in PATHS]

    assert repository.differences(paths) == {}


@pytest.mark.slow
def test_generated_patterns_decide_as_in_git(repository: Repository) -> None:
    pieces = (b"a", b"b", b"*", b"**", b"?", b"/", b"[ab]", b"\\")
    spelled = {b"".join(parts) for size in (1, 2, 3, 4) for parts in itertools.product(pieces, repeat=size)}
    folders = places(sorted(spelled))
    repository.write(folders)
    names = ("a", "b", "ab", "a/b", "b/a", "aa/b", "a/b/a", "ba/ab/b", "/".join("abab"))
    paths = [f"{folder}/{path}" for folder in folders for path in names]

    assert repository.differences(paths) == {}


def test_every_character_class_holds_the_same_bytes_as_in_git(repository: Repository) -> None:
    kinds = ["alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper"]
    kinds += ["xdigit"]
    folders = places(f"{bang}[[:{kind}:]]".encode() for kind in kinds for bang in ("", "x\n!"))
    repository.write(folders | {"one": b"?", "none": b"[!a-z]"})
    characters = [os.fsdecode(bytes([byte])) for byte in range(1, 256) if chr(byte) not in "./"]
    paths = [f"{folder}/{character}" for folder in (*folders, "one", "none") for character in characters]

    assert repository.differences(paths) == {}


PIECES = st.sampled_from(
    [
        *(b"a", b"b", b"c", b"*", b"*", b"**", b"**/", b"/", b"/**", b"?", b"[ab]", b"[!a]", b"[b-d]", b"[[:lower:]]"),
        *(b"[", b"]", b"-", b"\\", b" ", b"\\ ", b"!", b"#", b".", b"\r", b"\t", b"\xc3\xa9", b"\xa9", b"\xff", b".b"),
    ]
)
LINES = st.builds(bytes.__add__, st.sampled_from([b"", b"", b"!", b"/"]), st.lists(PIECES, max_size=6).map(b"".join))
FILES = st.builds(
    lambda start, lines, end: start + end.join(lines),
    st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
    st.lists(LINES, max_size=6),
    st.sampled_from([b"\n", b"\n", b"\r\n"]),
)
NAMES = st.lists(
    st.sampled_from([*"abcdé", *" \n\r\t#!*?[]\\-:", ".b", "\udcff", "\udca9"]), min_size=1, max_size=4
).map("".join)
PATH_LISTS = st.lists(st.lists(st.sampled_from(["a", "b"]) | NAMES, min_size=1, max_size=4).map("/".join), min_size=1)


@settings(max_examples=examples(250), database=None)
@given(top=FILES, upper=FILES, deeper=FILES, info=FILES, user=FILES, paths=PATH_LISTS)
def test_ignore_files_at_several_levels_decide_as_in_git(
    repository: Repository, top: bytes, upper: bytes, deeper: bytes, info: bytes, user: bytes, paths: list[str]
) -> None:
    repository.write({"": top, "a": upper, "a/b": deeper}, info=info, user=user)
    paths = [*paths, *("a/" + path for path in paths), *("a/b/" + path for path in paths), "a", "a/b"]

    assert repository.differences(paths) == {}


@settings(max_examples=examples(250), database=None)
@given(top=FILES, upper=FILES, deeper=FILES, info=FILES, user=FILES, paths=PATH_LISTS)
def test_rules_above_a_subfolder_decide_as_in_git(
    repository: Repository, top: bytes, upper: bytes, deeper: bytes, info: bytes, user: bytes, paths: list[str]
) -> None:
    repository.write({"": top, "a": upper, "a/b": deeper}, info=info, user=user)
    around = Around("a/b", gitignores={"": top, "a": upper}, info_exclude=info)
    theirs = repository.decided_by_git(["a/b", *dict.fromkeys(f"a/b/{path}" for path in paths)])

    assert around.ignores_the_workspace(user) == (theirs.pop("a/b") is not None)
    if not around.ignores_the_workspace(user):
        root = Rules.root(excludes_file=user, around=around)
        inside = {"": Sources(gitignore=deeper)}
        ours = {
            f"a/b/{path}": decide_path(root, path, is_dir=False, sources=lambda folder: inside.get(folder, Sources()))
            for path in paths
        }
        assert {path for path, verdict in ours.items() if verdict} == {path for path, each in theirs.items() if each}


@settings(max_examples=examples(150), database=None)
@given(content=st.binary(max_size=60), paths=PATH_LISTS)
def test_an_ignore_file_of_any_bytes_decides_as_in_git(
    repository: Repository, content: bytes, paths: list[str]
) -> None:
    repository.write({"": content})

    assert repository.differences(paths) == {}
