"""What is estimated is what comes out; what is wrong about an option is a usage error."""

from __future__ import annotations

import re

import pytest


@pytest.fixture
def grown(holdfast, write):
    for number in range(6):
        write("a.txt", f"{number}\n" * 500)
        write("secret.txt", f"secret {number}\n")
        holdfast.saved()
    return holdfast


def test_prune_frees_what_it_said(grown):
    told = re.search(r"Would free about (.*)", grown("prune", "--keep-last", "1", "--dry-run").out)
    done = re.search(r"deleted, (.*) freed", grown("prune", "--keep-last", "1", "--yes").out)
    assert told and done and told[1] == done[1]


def test_purge_frees_what_it_said(grown):
    told = re.search(r"would take (.*) out of", grown("purge", "secret.txt", "--dry-run").out)
    done = re.search(r"; (.*) freed", grown("purge", "secret.txt", "--yes").out)
    assert told and done and told[1] == done[1]


@pytest.mark.parametrize(
    "words",
    [
        ["prune", "--keep-for", "nonsense"],
        ["prune", "--keep-for", ""],
        ["prune", "--max-size", "nonsense"],
        ["prune", "--keep-last", "-1"],
        ["log", "--type", "nonsense"],
        ["log", "-n", "nonsense"],
        ["save", "--name", ""],
        ["save", "--step", "nonsense"],
        ["fork", "latest", "../fork", "--fork-store", ""],
        ["training", "info", "--dir", ""],
        ["show", "latest", "--color", "nonsense"],
    ],
    ids=" ".join,
)
def test_wrong_value_of_an_option_is_a_usage_error(grown, words):
    ran = grown(*words)
    assert ran.code == 2 and "error: " in ran.err and "Traceback" not in ran.err


def starts(line: str, *words: str) -> list[int]:
    return [line.index(word) for word in words]


def test_columns_of_a_plan_align(grown, write):
    write("a.txt", "more\n")
    grown.saved("the last", "--actor", "claude-code", "--session", "s1")
    write("a.txt", "more still\n")
    grown.saved("after it")
    for ran in (grown("prune", "--keep-last", "1", "--dry-run").out, grown("rm", "latest~1", "latest").err):
        lines = [line for line in ran.splitlines() if re.match(r"    a\d", line)]
        whole = next(line for line in lines if "claude-code" in line)
        for line in lines:
            for message in ("the last", "after it"):
                assert message not in line or line.index(message) == whole.index("the last")


def test_numbers_end_in_one_column(grown, write):
    write("large.bin", "0123456789" * 5000)
    grown.saved()
    lines = grown("usage").out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("path"))
    ends = {re.search(r"(size|B) ", line).end() for line in lines[at:] if line}
    assert len(ends) == 1, lines[at:]
