"""Path patterns mean the same in every command: what they mean to git."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def secrets(holdfast, write: Callable[[str, str], Path]):
    for name in (".env", "src/.env", "src/deep/prod.env"):
        write(name, f"SECRET=1 of {name}\n")
    holdfast.saved()
    for name in (".env", "src/.env", "src/deep/prod.env"):
        write(name, "SECRET=2\n")
    return holdfast


def test_search_finds_a_pattern_in_every_folder(secrets):
    ran = secrets("search", "SECRET", "--", "*.env")
    assert [line.partition(":")[0] for line in ran.out.splitlines() if "SECRET" in line] == [
        ".env", "src/.env", "src/deep/prod.env",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ["search", "SECRET", "--"],
        ["diff", "latest", "--"],
        ["restore", "latest", "--dry-run"],
        ["purge", "--dry-run"],
        ["export", "latest", "OUT"],
    ],
    ids=lambda words: words[0],
)
class TestEveryCommand:
    def test_from_the_current_folder(self, secrets, monkeypatch, words):
        monkeypatch.chdir(secrets.project / "src")
        self.run(secrets, words, "*.env", has=["src/.env", "src/deep/prod.env"], lacks=["\n.env", " .env"])

    def test_from_the_top(self, secrets, monkeypatch, words):
        monkeypatch.chdir(secrets.project / "src")
        self.run(secrets, words, ":/.env", has=[".env"], lacks=["prod.env"])

    def test_within_a_folder(self, secrets, words):
        self.run(secrets, words, ":(glob)src/*.env", has=["src/.env"], lacks=["prod.env"])

    def test_exclusion(self, secrets, words):
        self.run(secrets, [*words, "*.env"], ":!src/deep", has=["src/.env"], lacks=["prod.env"])

    def test_one_that_matches_nothing_is_an_error(self, secrets, words):
        words = [str(secrets.project.parent / "out") if word == "OUT" else word for word in words]
        ran = secrets(*words, "*.pem")
        assert ran.code == 3 and "*.pem" in ran.err

    def run(self, holdfast, words, pattern, *, has, lacks):
        out = holdfast.project.parent / "out"
        words = [str(out) if word == "OUT" else word for word in words]
        ran = holdfast(*words, pattern)
        assert ran.code == 0, ran
        shown = ran.out.partition("from 1 checkpoint")[0]  # `purge` names others further down
        if out.is_dir():
            shown = "\n".join(f" {path.relative_to(out)}" for path in out.rglob("*") if path.is_file())
        assert all(each in shown for each in has), shown
        assert not any(each in shown for each in lacks), shown


def test_names_with_brackets_can_be_picked_and_blamed(secrets, write):
    for name in ("app/[id]/page.tsx", "app/i/page.tsx"):
        write(name, "x\n")
    assert secrets("save").code == 0
    assert secrets("blame", "app/[id]/page.tsx").code == 0
    assert "app/[id]/page.tsx" in secrets("why", "app/[id]/page.tsx").out
    write("app/[id]/page.tsx", "y\n")
    write("app/i/page.tsx", "y\n")
    shown = secrets("restore", "latest", ":(literal)app/[id]/page.tsx", "--dry-run").out
    assert "app/[id]/page.tsx" in shown and "app/i/" not in shown
