"""The first checkpoint at which something fails."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import Checkpoint, Refused, Workspace
from holdfast.workspace.bisect import Bisection


@pytest.fixture
def line(project, ws: Workspace) -> list[str]:
    """Twenty checkpoints; from the thirteenth on, `a` says 13 and more."""
    found = []
    for number in range(20):
        project.write("a", b"%d\n" % number)
        found.append(ws.save(str(number)).id)
    return found


def number_in(folder: Path) -> int:
    return int((folder / "a").read_text())


def test_the_first_bad_one_is_found_in_a_logarithm_of_steps(ws: Workspace, line: list[str]) -> None:
    found = ws.bisect(line[0], line[-1], lambda folder, _: number_in(folder) < 13)
    assert found.first_bad is not None
    assert (found.first_bad.id, found.last_good.id, found.unsure) == (line[13], line[12], [])
    assert len(found.tried) <= 2 + 5
    assert (found.tried[line[0]], found.tried[line[-1]]) == ("good", "bad")


@pytest.mark.parametrize("count", [2, 3, 4, 7, 20, 64])
def test_wherever_it_is_in_a_line_of_any_length(count: int) -> None:
    line = [Checkpoint(f"a{number}", "", datetime.now(UTC), sequence=number) for number in range(count)]
    for first in range(1, count):
        done = Bisection(line, lambda each, first=first: each.sequence < first, lambda *_: None).run()
        assert done.first_bad is line[first]
        assert len(done.tried) <= 2 + (count - 2).bit_length()


def test_what_cannot_be_tested_is_passed_over(ws: Workspace, line: list[str]) -> None:
    def test(folder: Path, _: Checkpoint) -> bool | None:
        number = number_in(folder)
        return None if number in (9, 10, 15) else number < 13

    found = ws.bisect(line[0], line[-1], test)
    assert found.first_bad is not None
    assert found.first_bad.id == line[13]


def test_where_only_the_untested_are_left_it_says_so(ws: Workspace, line: list[str]) -> None:
    def test(folder: Path, _: Checkpoint) -> bool | None:
        number = number_in(folder)
        return None if number in (11, 12) else number < 12

    found = ws.bisect(line[0], line[-1], test)
    assert found.first_bad is None
    assert found.last_good.id == line[10]
    assert [each.id for each in found.unsure] == line[11:14]


def test_neighbours_need_no_more_than_themselves(ws: Workspace, line: list[str]) -> None:
    found = ws.bisect(line[12], line[13], lambda folder, _: number_in(folder) < 13)
    assert found.first_bad is not None
    assert found.first_bad.id == line[13]
    assert len(found.tried) == 2


def test_good_that_fails_and_bad_that_passes_are_refused(ws: Workspace, line: list[str]) -> None:
    with pytest.raises(Refused, match="which should be good"):
        ws.bisect(line[14], line[-1], lambda folder, _: number_in(folder) < 13)
    with pytest.raises(Refused, match="which should be bad"):
        ws.bisect(line[0], line[5], lambda folder, _: number_in(folder) < 13)
    for pair in ((line[5], line[0]), (line[5], line[5])):
        with pytest.raises(Refused, match="is not older than"):
            ws.bisect(*pair, lambda folder, _: True)


def test_each_is_told_with_how_many_are_left_at_most(ws: Workspace, line: list[str]) -> None:
    told: list[tuple[str, str, int]] = []
    ws.bisect(
        line[0],
        line[-1],
        lambda folder, _: number_in(folder) < 13,
        tell=lambda checkpoint, verdict, left: told.append((checkpoint.id, verdict, left)),
    )
    assert told[1] == (line[-1], "bad", 5)
    assert told[-1][2] == 0
    assert [left for _, _, left in told[1:]] == sorted((left for _, _, left in told[1:]), reverse=True)


def test_nothing_is_left_in_the_scratch_folder(project, ws: Workspace, line: list[str], tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = (project.root / "a").read_bytes()

    def test(folder: Path, _: Checkpoint) -> bool:
        assert folder.is_relative_to(scratch)
        assert len(list(folder.parent.iterdir())) == 1
        (folder / "made by the test").mkdir(mode=0o500)
        return number_in(folder) < 13

    ws.bisect(line[0], line[-1], test, scratch=scratch)
    assert list(scratch.iterdir()) == []
    assert (project.root / "a").read_bytes() == before


def test_one_that_is_deleted_meanwhile_is_passed_over(project, ws: Workspace, line: list[str]) -> None:
    other = project.open()

    def test(folder: Path, checkpoint: Checkpoint) -> bool:
        if checkpoint.id == line[0]:
            other.delete(line[10])
            other.delete(line[13])
        return number_in(folder) < 13

    found = ws.bisect(line[0], line[-1], test)
    assert found.tried[line[10]] == "skipped"
    assert (found.first_bad, [each.id for each in found.unsure]) == (None, line[13:15])


def test_any_answer_that_is_not_none_counts_as_true_or_false(ws: Workspace, line: list[str]) -> None:
    found = ws.bisect(line[0], line[-1], lambda folder, _: "good" if number_in(folder) < 13 else "")
    assert found.first_bad is not None
    assert found.first_bad.id == line[13]
