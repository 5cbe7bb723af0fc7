"""prune, pin, usage and compact: what they say, ask and do."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def five(holdfast, write) -> list[str]:
    found = []
    for number in range(5):
        write("a.txt", f"text {number}\n")
        found.append(holdfast.saved(f"save {number}"))
    return found


def listed(holdfast) -> list[str]:
    return [each["id"] for each in holdfast("log", "-n", "0", "--json").json["items"]][::-1]


def test_prune_shows_what_goes_and_why_the_rest_stays(holdfast, five):
    ran = holdfast("prune", "--keep-last", "2", "--dry-run")
    assert ran.code == 0
    assert "Would delete 3 checkpoints for good:" in ran.out
    assert "a1  " in ran.out and "save 0" in ran.out and "save 3" not in ran.out
    assert "1 current" in ran.out and "1 among the last 2" in ran.out
    assert "Would free about " in ran.out
    assert listed(holdfast) == five


def test_prune_deletes_and_says_how_much_is_free(holdfast, five):
    ran = holdfast("prune", "--keep-last", "2", "--yes")
    assert ran.code == 0
    assert ran.out.startswith("3 checkpoints deleted, ") and "freed" in ran.out
    assert listed(holdfast) == five[3:]


def test_prune_asks_and_nobody_there_means_no(holdfast, five):
    ran = holdfast.spawn("prune", "--keep-last", "2")
    assert ran.code == 6
    assert "--yes" in ran.err and "Would delete" in ran.err
    assert listed(holdfast) == five


def test_prune_as_json_is_one_document(holdfast, five):
    shown = holdfast("prune", "--keep-last", "2", "--dry-run", "--json").json
    plan = shown["plan"]
    assert [each["id"] for each in shown["items"]] == five[:3]
    assert plan["kept"][five[4]] == "current" and plan["is_done"] is False
    done = holdfast("prune", "--keep-last", "2", "--yes", "--json").json
    assert done["items"] == shown["items"] and done["pruned"]["is_done"] is True and done["pruned"]["bytes_freed"] > 0
    assert holdfast("prune", "--keep-last", "2", "--yes", "--json").json["items"] == []


def test_prune_without_a_reason_is_refused_and_names_the_options(holdfast, five):
    ran = holdfast("prune", "--yes")
    assert ran.code == 6
    assert "--keep-last" in ran.err and "--max-size" in ran.err
    assert listed(holdfast) == five


def test_prune_takes_what_the_configuration_says(holdfast, five, write):
    write("holdfast.toml", "[retention]\nkeep_last = 3\n")
    assert "2 checkpoints deleted" in holdfast("prune", "--yes").out
    assert listed(holdfast) == five[2:]
    assert "Nothing to delete: all 3 checkpoints stay" in holdfast("prune", "--yes").out


def test_prune_says_it_plainly_where_there_is_one_checkpoint(holdfast, project):
    (project / "a.txt").write_text("a")
    holdfast.saved("one")
    assert holdfast("prune", "--keep-last", "1", "--yes").out == "Nothing to delete: the only checkpoint stays\n"


def test_prune_that_would_take_everything_keeps_the_current(holdfast, five):
    assert holdfast("prune", "--keep-last", "0", "--yes").code == 0
    assert listed(holdfast) == five[4:]


@pytest.mark.parametrize(
    "words", [("--keep-for", "soon"), ("--max-size", "much"), ("--keep-last", "-1"), ("--keep-every", "0")]
)
def test_prune_refuses_what_is_no_number_time_or_size(holdfast, five, words):
    ran = holdfast("prune", *words, "--yes")
    assert ran.code in (2, 6)
    assert words[0] in ran.err
    assert listed(holdfast) == five


def test_prune_by_age_session_and_size(holdfast, project, five):
    assert "Nothing to delete" in holdfast("prune", "--keep-for", "1h", "--yes").out
    (project / "large").write_bytes(os.urandom(200_000))
    holdfast.saved("--session", "s")
    assert "Nothing to delete" in holdfast("prune", "--max-size", "1GiB", "--yes").out
    assert "5 checkpoints deleted" in holdfast("prune", "--keep-per-session", "1", "--yes").out


def test_pin_keeps_a_checkpoint_until_it_is_taken_off(holdfast, five):
    assert holdfast("pin", "a1", "--off").out == "a1  not pinned\n"
    assert holdfast("pin", "a1").out == "a1  pinned\n"
    assert holdfast("pin", "a1").out == "a1  already pinned\n"
    assert "pinned" in holdfast("log").out
    holdfast("prune", "--keep-last", "1", "--yes")
    assert listed(holdfast) == [five[0], five[4]]
    assert holdfast("pin", "a1", "--off", "--json").json["checkpoint"]["pinned"] is False
    holdfast("prune", "--keep-last", "1", "--yes")
    assert listed(holdfast) == five[4:]


def test_pin_of_nothing_says_so(holdfast, five):
    assert holdfast("pin", "a9").code == 3


def test_usage_tells_the_largest_checkpoints_and_paths(holdfast, project, five):
    (project / "large.bin").write_bytes(os.urandom(100_000))
    large = holdfast.saved("with something large")
    ran = holdfast("usage", "-n", "1")
    assert ran.code == 0
    assert "large.bin" in ran.out and "with something large" in ran.out and "a.txt" not in ran.out
    assert "more paths" in ran.err
    found = holdfast("usage", "--json").json
    assert found["total_bytes"] == found["packs_bytes"] + found["catalog_bytes"] + found["other_bytes"]
    assert found["items"][0]["id"] == large and found["items"][0]["own_bytes"] > 100_000
    assert {each["path"]: each["contents"] for each in found["paths"]} == {"large.bin": 1, "a.txt": 5, "src/b.py": 1}
    holdfast("rm", large, "--yes")
    assert holdfast("usage", "--json").json["unneeded_bytes"] > 100_000
    assert "`compact` frees" in holdfast("usage").err


def test_compact_tells_before_and_after(holdfast, five):
    ran = holdfast("compact")
    assert ran.code == 0
    assert "before" in ran.out and "now" in ran.out
    assert holdfast("compact", "--json").json["by_git"] is True
    assert holdfast("verify").code == 0


def test_compact_without_git_says_so(holdfast, five, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = holdfast("compact")
    assert ran.code == 0
    assert "git program" in ran.err


def test_a_size_that_cannot_be_kept_to_is_said(holdfast, five, write):
    write("large.bin", "".join(chr(33 + number * 7919 % 90) for number in range(50_000)))
    holdfast.saved("large")
    ran = holdfast("prune", "--max-size", "1KiB", "--yes")
    assert ran.code == 0
    assert "above the size asked for" in ran.err
    assert holdfast("prune", "--max-size", "1KiB", "--json", "--yes").json["plan"]["over_bytes"] > 0
