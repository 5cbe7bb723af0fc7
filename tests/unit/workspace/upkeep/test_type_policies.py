"""The policies of a store for types of checkpoints hold, no matter who prunes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Damaged, Workspace
from holdfast.retention import Policy

if TYPE_CHECKING:
    from unit.workspace.conftest import Project

RULES = {"automatic": Policy(keep_last=1, keep_for=timedelta(seconds=1)), "feature": None}


def filled(project: Project) -> Workspace:
    """A store with rules, three automatic checkpoints, two features and two of no kind, oldest first by kind."""
    ws = project.open()
    ws.set_kind_rules(RULES)
    for number, kind in enumerate(("feature", "automatic", "", "automatic", "feature", "automatic", "")):
        project.write("a.txt", b"x" * 10_000 * (number + 1))
        ws.save(f"{kind or 'plain'} {number}", metadata={"type": kind} if kind else None)
    return ws


def left(ws: Workspace) -> list[str]:
    return [checkpoint.message for checkpoint in reversed(ws.list(None))]


def test_the_rules_are_there_for_the_next_process(project: Project) -> None:
    project.open().set_kind_rules(RULES)
    assert project.open().kind_rules() == RULES


def test_policy_without_types_keeps_what_the_store_protects(project: Project) -> None:
    ws = filled(project)
    ws.prune(Policy(keep_last=1), dry_run=False)
    assert [message for message in left(ws) if message.startswith("feature")] == ["feature 0", "feature 4"]
    assert "plain 2" not in left(ws)


def test_a_kind_goes_by_its_own_rule_and_not_by_the_policys(project: Project) -> None:
    ws = project.open()
    ws.set_kind_rules({"automatic": Policy(keep_last=1)})
    for number in range(3):
        project.write("a.txt", b"%d" % number)
        ws.save(f"automatic {number}", metadata={"type": "automatic"})
    ws.prune(Policy(keep_last=3), dry_run=False)
    assert left(ws) == ["automatic 2"]


def test_a_rule_of_the_policy_goes_before_that_of_the_store(project: Project) -> None:
    ws = filled(project)
    ws.prune(Policy(by_kind={"feature": Policy(keep_last=1)}), dry_run=False)
    assert [message for message in left(ws) if message.startswith("feature")] == ["feature 4"]


def test_a_cap_on_bytes_takes_nothing_that_is_kept_for_ever(project: Project) -> None:
    ws = filled(project)
    ws.prune(Policy(max_bytes=0), dry_run=False)
    assert left(ws) == ["feature 0", "feature 4", "plain 6"]


def test_unreadable_rules_prune_nothing_and_fail_verify(project: Project) -> None:
    ws = filled(project)
    before = left(ws)
    (project.store / "holdfast" / "kinds.json").write_text('{"feature": ')
    with pytest.raises(Damaged, match=r"kinds\.json"):
        ws.prune(Policy(keep_last=1), dry_run=False)
    assert left(ws) == before
    assert [problem.what for problem in ws.verify().problems] == ["holdfast/kinds.json"]
