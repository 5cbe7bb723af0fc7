"""What a feature list says is understood in the shapes that people use; in others it is kept all the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Refused
from holdfast.project.features import read_features

if TYPE_CHECKING:
    from .conftest import Place


def said(value: Any) -> tuple[str | None, list[str]]:
    found = read_features(json.dumps(value).encode(), "list.json")
    assert not found.note
    return found.current, list(found.completed)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{"id": "a", "status": "completed"}, {"id": "b", "status": "in_progress"}], ("b", ["a"])),
        ([{"id": "a", "passes": True}, {"id": "b", "passes": False}, {"id": "c", "passes": False}], ("b", ["a"])),
        ([{"category": "x", "description": "log in", "steps": [], "passes": False}], ("log in", [])),
        ({"features": [{"id": 1, "completed": True}, {"id": 2}]}, ("2", ["1"])),
        ({"features": [{"id": "a"}, {"id": "b"}], "current": "b", "completed": ["a"]}, ("b", ["a"])),
        ({"current_feature": {"id": "b"}, "completed_features": [{"id": "a"}]}, ("b", ["a"])),
        ({"auth": {"status": "Done"}, "mail": {"status": "In Progress"}}, ("mail", ["auth"])),
        ({"tasks": {"auth": "done", "mail": "todo"}}, ("mail", ["auth"])),
        ([{"id": "a", "status": "blocked"}, {"id": "b", "status": "pending"}], ("b", [])),
        ([{"id": "a", "done": True}], (None, ["a"])),
        ([{"steps": 1, "passes": True}, {"steps": 2}], ("2", ["1"])),
        ([], (None, [])),
    ],
    ids=repr,
)
def test_the_current_feature_and_those_that_are_done_are_told(value: Any, expected: tuple[Any, Any]) -> None:
    if value == []:
        assert "has no features" in read_features(b"[]", "list.json").note
    else:
        assert said(value) == expected


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["id", "status", "passes", "features", "current", "completed", "x"]), inner
            )
        ),
        max_leaves=20,
    )
)
def test_whatever_json_there_is_it_is_no_error(value: Any) -> None:
    found = read_features(json.dumps(value).encode(), "list.json")
    assert all(isinstance(name, str) for name in found.completed)
    assert found.current is None or isinstance(found.current, str)


@given(st.binary())
def test_whatever_bytes_there_are_it_is_no_error(data: bytes) -> None:
    read_features(data, "list.json")


@pytest.mark.parametrize(
    "data", [b"not json", b"\xff\xfe", b"[" * 100_000, b""], ids=["text", "bytes", "deep", "empty"]
)
def test_what_is_no_json_is_kept_as_a_file_and_said(place: Place, data: bytes) -> None:
    file = place.root / "feature_list.json"
    file.write_bytes(data)
    manager = place.open()
    made = manager.create_checkpoint("a")
    assert "not JSON" in made.feature_state.note
    assert made.feature_state.note in made.notes
    assert made.complete
    assert made.feature_state.snapshot_path
    file.write_text("[]")
    manager.rollback(made.id)
    assert file.read_bytes() == data


def test_a_list_that_is_not_there_is_said_and_no_failure(place: Place) -> None:
    (place.root / "feature_list.json").unlink()
    made = place.open().create_checkpoint("a")
    assert (made.feature_state.snapshot_path, made.complete) == ("", True)
    assert "does not exist" in made.feature_state.note


def test_a_folder_in_place_of_the_list_is_said(place: Place) -> None:
    (place.root / "feature_list.json").unlink()
    (place.root / "feature_list.json").mkdir()
    assert "not a file" in place.open().create_checkpoint("a").feature_state.note


def test_a_project_need_have_neither(place: Place) -> None:
    made = place.open(feature_list=None, progress_file=None).create_checkpoint("a")
    assert made.feature_state.current is None


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_can_be_none_is_refused(place: Place, name: str) -> None:
    with pytest.raises(Refused, match="feature_list"):
        place.open(feature_list=name).create_checkpoint("a")
