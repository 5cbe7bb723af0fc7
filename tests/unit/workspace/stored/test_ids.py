"""Ids that sort by sequence, prefixes that find them, names that can be told from both."""

from __future__ import annotations

import re

import pytest

from holdfast import Conflict, NotFound, Refused, Workspace
from holdfast.workspace.stored.ids import Latest, check_name, greatest_sequence, new_id, parse_latest, sequence_of


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


def test_greatest_sequence_is_found_among_other_names() -> None:
    names = [new_id(number) for number in (9, 10, 2, 99)]
    assert greatest_sequence([*names, "zzz", "main", "z1-00000000", "b100-00000000", ""]) == 99
    assert greatest_sequence(["zzz"]) == 0
