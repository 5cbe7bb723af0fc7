"""Makes a release of what is checked out: version, date in the changelog, commit and tag, in one command.

    make release VERSION=0.2.0

Nothing is pushed. Until it is, `git tag --delete vVERSION` and `git reset --hard HEAD~1` take it back.
"""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)((?:a|b|rc)\d+)?")
_ASSIGNED = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_UNRELEASED = re.compile(r"^## (?:\S+ \(unreleased\)|Unreleased)$", re.MULTILINE)


def release(root: Path, version: str, today: date) -> str:
    """Write the version and the date, commit and tag; the name of the tag. Refuses before it changes anything."""
    init, changelog = root / "src/holdfast/__init__.py", root / "CHANGELOG.md"
    source, changes = init.read_text(), changelog.read_text()
    if not _VERSION.fullmatch(version):
        raise SystemExit(f"error: {version} is no version such as 0.2.0 or 0.2.0rc1")
    assigned = _ASSIGNED.search(source)
    if assigned is None:
        raise SystemExit(f"error: {init} has no line __version__ = …")
    first = re.search(r"^## .*$", changes, re.MULTILINE)
    if first is None or not _UNRELEASED.fullmatch(first[0]):
        raise SystemExit(
            "error: CHANGELOG.md does not begin with a section “(unreleased)”: there is nothing to release"
        )
    if _ordered(version) < _ordered(assigned[1]):
        raise SystemExit(f"error: {version} is older than {assigned[1]}, the version now")
    if _git(root, "status", "--porcelain"):
        raise SystemExit("error: there are changes that are not committed; commit or stash them first")
    tag = f"v{version}"
    if _git(root, "tag", "--list", tag):
        raise SystemExit(f"error: the tag {tag} exists")
    init.write_text(_ASSIGNED.sub(f'__version__ = "{version}"', source))
    changelog.write_text(changes.replace(first[0], f"## {version} ({today.isoformat()})", 1))
    _git(root, "commit", "--quiet", "--all", "--message", f"release {version}")
    signs = _git(root, "config", "--default", "", "--get", "user.signingkey")
    _git(root, "tag", "--sign" if signs else "--annotate", "--message", f"Holdfast {version}", tag)
    return tag


def _ordered(version: str) -> tuple[int, int, int, str]:
    """In order; a version without a suffix comes after its candidates."""
    found = _VERSION.fullmatch(version)
    return (int(found[1]), int(found[2]), int(found[3]), found[4] or "~") if found else (0, 0, 0, "")


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"error: git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: make release VERSION=0.2.0")
    made = release(Path(__file__).parents[1], sys.argv[1], datetime.now(UTC).date())
    print(f"Committed, and tagged {made}. Publish it with: git push --atomic origin HEAD {made}")
