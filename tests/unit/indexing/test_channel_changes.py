"""What a change of a channel means."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.indexing.channel_changes import SpaceRelation, decide, relate
from holdfast.indexing.impact import ChangeImpact
from holdfast.indexing.model_families import load_families

FAMILIES = load_families()
OLD = {
    "model": "voyage-4", "revision": "", "doc_prompt": "", "query_model": "", "query_prompt": "",
    "dimension": 1024, "datatype": "float32", "metric": "cosine",
}  # fmt: skip
ARCTIC, LEAF = "Snowflake/snowflake-arctic-embed-m-v1.5", "MongoDB/mdbr-leaf-ir"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, SpaceRelation.SAME),
        ({"model": "voyage-4-large"}, SpaceRelation.FAMILY),
        ({"model": ARCTIC}, SpaceRelation.OTHER),
        ({"model": "somebody/voyage-4"}, SpaceRelation.UNPROVEN),
        ({"revision": "2"}, SpaceRelation.UNPROVEN),
        ({"doc_prompt": "passage: "}, SpaceRelation.OTHER),
    ],
)
def test_how_a_model_stands_to_the_one_before(change: dict[str, Any], expected: SpaceRelation) -> None:
    assert relate(OLD, OLD | change, FAMILIES) is expected


def test_another_name_of_the_same_weights_is_known() -> None:
    old = OLD | {"model": "voyage-4-nano"}
    assert relate(old, old | {"model": "voyageai/voyage-4-nano"}, FAMILIES) is SpaceRelation.ALIAS


def _decided(change: dict[str, Any], old: dict[str, Any] = OLD) -> list[tuple[ChangeImpact, str, bool]]:
    new = old | change
    found = decide("dense", old, new, families=FAMILIES, relation=relate(old, new, FAMILIES), native=1024)
    return [(each.impact, each.action, each.is_lossy) for each in found]


@pytest.mark.parametrize(
    ("change", "impact", "action", "is_lossy"),
    [
        ({"model": "voyage-4-large"}, ChangeImpact.COMPATIBLE, "keep", False),
        ({"query_model": "voyage-4-lite"}, ChangeImpact.COMPATIBLE, "keep", False),
        ({"query_model": LEAF}, ChangeImpact.UNPROVEN, "keep", True),
        ({"query_prompt": "find: "}, ChangeImpact.COMPATIBLE, "keep", False),
        ({"dimension": 512}, ChangeImpact.TRANSFORMABLE, "truncate", False),
        ({"dimension": 500}, ChangeImpact.TRANSFORMABLE, "truncate", True),
        ({"datatype": "int8"}, ChangeImpact.QUANTIZABLE, "quantise", False),
        ({"metric": "dot"}, ChangeImpact.LAYOUT, "arrange", False),
        ({"doc_prompt": "x"}, ChangeImpact.REEMBED, "embed", False),
    ],
)
def test_one_change(change: dict[str, Any], impact: ChangeImpact, action: str, is_lossy: bool) -> None:
    assert _decided(change) == [(impact, action, is_lossy)]


def test_nothing_changed_means_nothing() -> None:
    assert _decided({}) == []


def test_upward_moves_are_made_of_what_is_cached() -> None:
    old = OLD | {"dimension": 256, "datatype": "binary"}
    up = [(ChangeImpact.TRANSFORMABLE, "derive", False)] * 2
    assert _decided({"dimension": 1024, "datatype": "float32"}, old) == up


def test_all_differences_are_told_not_the_first() -> None:
    impacts = [each[0] for each in _decided({"dimension": 512, "datatype": "int8", "query_prompt": "find: "})]
    assert impacts == [ChangeImpact.COMPATIBLE, ChangeImpact.TRANSFORMABLE, ChangeImpact.QUANTIZABLE]


def test_distilled_model_may_query_its_teachers_documents() -> None:
    teacher = OLD | {"model": ARCTIC, "dimension": 768}
    assert _decided({"query_model": LEAF}, teacher)[0][0] is ChangeImpact.COMPATIBLE
    pupil = OLD | {"model": LEAF, "dimension": 768}
    assert _decided({"query_model": ARCTIC}, pupil)[0][0] is ChangeImpact.UNPROVEN
