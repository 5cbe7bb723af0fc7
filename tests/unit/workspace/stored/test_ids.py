"""Ids that sort by sequence, prefixes that find them, names that can be told from both."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from holdfast import Conflict, NotFound, Refused, Workspace
from holdfast.model.documents import short
from holdfast.workspace.stored.ids import Latest, check_name, greatest_sequence, new_id, parse_latest, sequence_of

if TYPE_CHECKING:
    from unit.workspace.conftest import Project

TOKYO = ZoneInfo("Asia/Tokyo")


class TestIds:
    def test_they_sort_as_text_in_the_order_of_their_numbers(self) -> None:
        numbers = [1, 2, 9, 10, 11, 99, 100, 101, 999, 1000, 12_345, 99_999, 100_000, 10**8]
        ids = [new_id(number) for number in numbers]
        assert sorted(ids) == ids

    def test_they_tell_their_number(self) -> None:
        for number in (1, 10, 99, 12_345):
            assert sequence_of(new_id(number)) == number

    def test_two_of_one_number_differ(self) -> None:
        assert len({new_id(7) for _ in range(100)}) == 100

    def test_one_is_never_read_by_git_as_a_description(self) -> None:
        assert not any(re.search(r"-g[0-9a-f]+$", new_id(number)) for number in range(1, 500))

    @pytest.mark.parametrize(
        "text",
        ["", "a1", "a1-", "a1-short", "b1-00000000", "a10-00000000", "a0-00000000", "A1-00000000", "a1-0000000g\n"],
    )
    def test_what_is_no_id_has_no_number(self, text: str) -> None:
        assert sequence_of(text) is None


class TestLatest:
    @pytest.mark.parametrize(("text", "back"), [("latest", 0), ("latest~0", 0), ("latest~1", 1), ("latest~12", 12)])
    def test_it_is_read(self, text: str, back: int) -> None:
        assert parse_latest(text) == Latest(back)

    @pytest.mark.parametrize(
        "text",
        ["", "Latest", "latest~", "latest~-1", "latest~1x", "latest ", "latest\n", "latest~\N{ARABIC-INDIC DIGIT ONE}"],
    )
    def test_nothing_else_is(self, text: str) -> None:
        assert parse_latest(text) is None


class TestNames:
    @pytest.mark.parametrize(
        "name", ["before refactor", "v1", "release-1.0", "a", "caf\xe9", "A1", "x" * 200, "a1 ?", "1", "k1-x", "lates"]
    )
    def test_a_name_is_taken(self, name: str) -> None:
        check_name(name)

    def test_a_checkpoint_is_found_by_its_name(self, ws: Workspace) -> None:
        saved = {name: ws.save(name=name).id for name in ("before refactor", "v1", "1", "k1-x", "caf\xe9")}
        assert {name: ws.get(name).id for name in saved} == saved

    @pytest.mark.parametrize(
        "name",
        [
            "",
            " ",
            " a",
            "a ",
            "a\n",
            "a\0b",
            "\x7f",
            "a~1",
            "latest",
            "latest~1",
            "latest release",
            "@10m",
            "a1",
            "b12",
            "a1-",
            "a1-x7k2mqrs",
            "x" * 201,
            "\udcff",
        ],
    )
    def test_ambiguous_name_is_refused(self, name: str) -> None:
        with pytest.raises(Refused) as caught:
            check_name(name)
        assert caught.value.hint

    def test_nothing_is_saved_under_a_name_that_is_refused(self, ws: Workspace) -> None:
        with pytest.raises(Refused):
            ws.save(name="latest")
        assert ws.list() == []

    def test_a_name_that_is_no_text_is_refused(self, ws: Workspace) -> None:
        with pytest.raises(Refused):
            ws.save(name=5)  # type: ignore[arg-type]

    def test_a_name_is_given_once(self, ws: Workspace) -> None:
        ws.save(name="mine")
        with pytest.raises(Conflict, match="mine"):
            ws.save(name="mine")
        ws.delete("mine")
        assert ws.save(name="mine").name == "mine"


class TestReferences:
    def test_a_prefix_finds_what_it_is_the_only_beginning_of(self, ws: Workspace) -> None:
        saved = [ws.save(f"{number}", allow_empty=True) for number in range(12)]
        for checkpoint in saved:
            for end in (checkpoint.id.index("-"), checkpoint.id.index("-") + 1, len(checkpoint.id) - 1):
                assert ws.get(checkpoint.id[:end]).id == checkpoint.id

    def test_a_prefix_of_several_is_a_conflict_that_names_them(self, ws: Workspace) -> None:
        saved = [ws.save(f"{number}", allow_empty=True) for number in range(12)]
        with pytest.raises(Conflict) as caught:
            ws.get("b1")
        assert all(checkpoint.id in caught.value.message for checkpoint in saved[9:12])

    def test_short_ids_have_one_letter(self, ws: Workspace) -> None:
        saved = [ws.save(f"{number}", allow_empty=True) for number in range(12)]
        assert [short(each.id) for each in saved][-3:] == ["a10", "a11", "a12"]
        for checkpoint in saved:
            random = checkpoint.id.partition("-")[2]
            for ref in (short(checkpoint.id), f"{short(checkpoint.id)}-", f"{short(checkpoint.id)}-{random[:4]}"):
                assert ws.get(ref).id == checkpoint.id
        assert [each.sequence for each in ws.list(None, before="a11")] == list(range(10, 0, -1))

    def test_an_id_as_it_was_typed_before_is_found(self, ws: Workspace) -> None:
        saved = [ws.save(f"{number}", allow_empty=True) for number in range(12)]
        assert ws.get("b10").id == saved[9].id
        for wrong in ("c10", "b9", "i1"):
            with pytest.raises(NotFound):
                ws.get(wrong)

    def test_a_page_begins_before_a_deleted_short_id(self, ws: Workspace) -> None:
        for number in range(11):
            ws.save(f"{number}", allow_empty=True)
        ws.delete("a10")
        with pytest.raises(NotFound, match="any more"):
            ws.get("a10")
        assert ws.list(1, before="a10")[0].sequence == 9

    def test_what_is_not_there_is_not_found(self, ws: Workspace) -> None:
        ws.save()
        for ref in ("", "nothing", "a9", "latest~5", "A1", "%", "_", "a1-'; --", "\0", "x" * 10_000):
            with pytest.raises(NotFound):
                ws.get(ref)

    def test_what_is_no_text_is_not_found(self, ws: Workspace) -> None:
        with pytest.raises(NotFound):
            ws.get("\udcff")

    def test_latest_counts_saves_not_safety_checkpoints(self, ws: Workspace) -> None:
        first, second = ws.save("1", allow_empty=True), ws.save("2", allow_empty=True)
        ws.restore(first.id)
        assert ws.get("latest").id == second.id
        assert ws.get("latest~1").id == first.id

    def test_a_number_is_never_used_again(self, ws: Workspace) -> None:
        ws.save("1", allow_empty=True)
        second = ws.save("2", allow_empty=True)
        ws.delete(second.id)
        assert ws.save("3", allow_empty=True).sequence == 3
        with pytest.raises(NotFound):
            ws.get(second.id)


class TestTimes:
    @pytest.fixture
    def dated(self, project: Project) -> Workspace:
        """Checkpoints of 08:00, 09:00 and 10:00 in Tokyo, seen at 10:30."""
        times = iter([8, 9, 10])
        now = [datetime(2026, 11, 18, 8, tzinfo=TOKYO)]
        ws = project.open(clock=lambda: now[0], zone=TOKYO)
        for hour in times:
            now[0] = now[0].replace(hour=hour)
            ws.save(f"{hour}", allow_empty=True)
        now[0] = now[0].replace(minute=30)
        return ws

    @pytest.mark.parametrize(
        ("ref", "message"),
        [
            ("@10m", "10"),
            ("@30m", "10"),
            ("@31m", "9"),
            ("@09:30", "9"),
            ("@2026-11-18T09:00", "9"),
            ("@2026-11-18T00:30Z", "9"),
            ("@today", "10"),
            ("@2026-11-18", "10"),
            ("@now", "10"),
        ],
    )
    def test_the_newest_save_that_is_not_later(self, dated: Workspace, ref: str, message: str) -> None:
        assert dated.get(ref).message == message

    def test_a_time_before_all_is_not_found(self, dated: Workspace) -> None:
        for ref in ("@yesterday", "@07:59", "@2020-01-01"):
            with pytest.raises(NotFound, match="as old as") as caught:
                dated.get(ref)
            assert "a1" in caught.value.hint

    def test_what_is_no_time_is_not_found(self, dated: Workspace) -> None:
        with pytest.raises(NotFound, match="'soon' is not a time") as caught:
            dated.get("@soon")
        assert "14:05" in caught.value.hint

    def test_safety_checkpoints_are_not_found_by_time(self, dated: Workspace) -> None:
        dated.restore("latest~1")
        assert dated.get("@now").message == "10"

    def test_a_time_serves_wherever_a_checkpoint_is_named(self, dated: Workspace) -> None:
        assert dated.diff("@09:30", "@10m").from_id == dated.get("a2").id
        assert [each.message for each in dated.list(before="@09:30")] == ["8"]


def test_greatest_sequence_is_found_among_other_names() -> None:
    names = [new_id(number) for number in (9, 10, 2, 99)]
    assert greatest_sequence([*names, "zzz", "main", "z1-00000000", "b100-00000000", ""]) == 99
    assert greatest_sequence(["zzz"]) == 0
