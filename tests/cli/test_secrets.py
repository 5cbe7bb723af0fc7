"""`holdfast secrets`, `holdfast purge --secret`, and what `holdfast status` says about them."""

from __future__ import annotations

from pathlib import Path

from .conftest import Program

KEY = "ghp_Zq3vT8mK1xW6bN4cR7yL2pD9sF5gH0jQ1aEu"


def test_status_names_the_purge_that_removes_a_secret(holdfast: Program, project: Path) -> None:
    (project / ".env").write_text(f"TOKEN={KEY}\n")
    holdfast.saved("one")
    out = holdfast("status").out
    (line,) = [each for each in out.splitlines() if "github-token" in each]
    assert ".env:1" in line and "holdfast purge --secret " in line and KEY not in out
    (project / ".env").unlink()
    assert holdfast("purge", "--secret", line.split()[-1], "--yes").code == 0
    assert "github-token" not in holdfast("status").out and holdfast("secrets").out == "No secrets found\n"


def test_secrets_are_listed_masked(holdfast: Program, project: Path) -> None:
    (project / ".env").write_text(f"TOKEN={KEY}\n")
    holdfast.saved("one")
    found = holdfast("secrets")
    assert "github-token  .env:1  ghp_… (40 characters)  since a1" in found.out and KEY not in found.out + found.err
    (item,) = holdfast("secrets", "--json").json["items"]
    assert item["path"] == ".env" and KEY not in str(item)


def test_purge_needs_a_path_or_a_secret(holdfast: Program, project: Path) -> None:
    holdfast.saved("one")
    assert holdfast("purge", "--yes").code == 2
