"""Pathspecs select the files that `git ls-files` lists."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from holdfast import Refused
from holdfast.workspace.pathspec import from_folder, open_scope

FILES = [
    "a.py", "b.py", "*.py", "[a]", "a", "q?", "qx", ".env", "src/a.py", "src/.env", "src/b.txt", "src/deep/a.py",
    "src/deep/x.env", "src/deep/er/a.py", "srcs/a.py", "x.d/file", "x.d/y.d", "A.py", "Src/a.py", "back\\slash",
    "sub[1]/a.py", "sub1/a.py", "sub[1]/*.py", ":x", "-d", "a]b", "src/[id]/p", "!bang", "^hat",
]  # fmt: skip
FOLDERS = ["", "src", "src/deep", "sub[1]"]
PIECES = [
    "a", "b", ".py", "py", ".env", "*", "**", "?", "[", "]", "[a]", "[!a]", "[^a-c]", "[a-z]", "[z-a]", "[[:alpha:]]",
    "[[:nonsense:]]", "[\\]]", "[]a]", "\\", "\\*", "/", "../", "src", "deep", "d", "x", ".d", "-", "er", "sub[1]",
    "sub1", "q", "S", ".", "!",
]  # fmt: skip
MAGIC = ["", ":(glob)", ":(literal)", ":(icase)", ":/", ":!", ":^", ":(exclude)", ":(exclude,glob)", ":", "./", ":%"]
EXCLUDE = re.compile(r":(?:\(exclude|[/!^]*[!^][/!^]*)")

specs = st.builds(
    "{}{}".format,
    st.sampled_from([*[""] * 6, *MAGIC]),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join),
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose index has the files; on disk there are only the folders to stand in."""
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", root], check=True)
    empty = subprocess.run(
        ["git", "-C", root, "hash-object", "-w", "--stdin"], input=b"", stdout=subprocess.PIPE, check=True
    ).stdout.decode()
    index = "".join(f"100644 {empty.strip()}\t{name}\0" for name in FILES)
    subprocess.run(["git", "-C", root, "update-index", "-z", "--index-info"], input=index.encode(), check=True)
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    return root


def is_comparable(given: str, folder: str) -> bool:
    """Leave out where git differs from its own documentation."""
    if folder and given.startswith(":(icase)"):
        return False  # it minds the case of the folder that one stands in
    if re.match(r":[!^]*/", given) and re.search(r"(?:^|/)\.{0,2}(?:/|\Z)", re.sub(r"^:[/!^]*", "", given)):
        return False  # it does not resolve dots and double slashes behind `:/`
    stars = re.search(r"[^/]\*\*|\*\*[^/*]", given.partition(")")[2])
    return not ("glob" in given and stars)  # its test for a slash before `**` reads the wrong text


@given(st.lists(specs, min_size=1, max_size=2), st.sampled_from(FOLDERS))
@settings(max_examples=examples(600), deadline=None)
def test_the_same_files_as_git(repository: Path, chosen: list[str], folder: str) -> None:
    if not all(is_comparable(each, folder) for each in chosen):
        return
    excluded = [EXCLUDE.match(each) for each in chosen]
    if folder and (all(excluded) or any(each and "/" in each[0] for each in excluded)):
        return  # of what is not excluded `ls-files` lists the current folder, `diff` everything, and so do we
    ran = subprocess.run(
        ["git", "-C", repository / folder, "ls-files", "-z", "--full-name", "--", *chosen],
        capture_output=True, check=False, env=os.environ | {"LC_ALL": "C"},
    )  # fmt: skip
    try:
        scope = open_scope([from_folder(each, folder) for each in chosen], repository)
    except Refused:
        assert ran.returncode != 0, ran
        return
    assert ran.returncode == 0, ran.stderr
    assert sorted(path for path in FILES if path in scope) == sorted(filter(None, ran.stdout.decode().split("\0")))
