"""The predecessor's fingerprint: what a change of settings means for an index."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.indexing import ChangeImpact, CheckpointSettingsFingerprint

SYMMETRIC = CheckpointSettingsFingerprint("symmetric", "voyage-code-3", None, None, None, "qdrant", "h")
ASYMMETRIC = CheckpointSettingsFingerprint(
    "asymmetric", "voyage-4-large", "voyage-4", "voyage-4-nano", "bm25", "qdrant", "h", 1024, "float32"
)
N, C, Q, T, B = (ChangeImpact[name] for name in ("NONE", "COMPATIBLE", "QUANTIZABLE", "TRANSFORMABLE", "BREAKING"))
M = ChangeImpact.MIGRATABLE


@pytest.mark.parametrize(
    ("old", "changed", "impact"),
    [
        (SYMMETRIC, {}, N),
        (SYMMETRIC, {"embed_model": "voyage-4"}, B),
        (SYMMETRIC, {"sparse_model": "bm25"}, B),
        (SYMMETRIC, {"vector_store": "lance"}, M),
        (SYMMETRIC, {"embed_model": ""}, B),
        (ASYMMETRIC, {}, N),
        (ASYMMETRIC, {"query_model": "voyage-4-lite"}, C),
        (ASYMMETRIC, {"embed_model": "voyage-4"}, B),
        (ASYMMETRIC, {"embed_model_family": "other"}, B),
        (ASYMMETRIC, {"embed_model_family": None, "query_model": "voyage-4-lite"}, B),
        (ASYMMETRIC, {"sparse_model": None}, B),
        (ASYMMETRIC, {"vector_store": "lance", "query_model": "voyage-4"}, M),
        (ASYMMETRIC, {"vector_store": "lance", "embed_model": "voyage-4"}, B),
        (ASYMMETRIC, {"embedding_config_type": "symmetric", "query_model": None}, C),
        (ASYMMETRIC, {"dimension": 512}, T),
        (ASYMMETRIC, {"dimension": 2048}, B),
        (ASYMMETRIC, {"datatype": "int8"}, Q),
        (ASYMMETRIC, {"datatype": "float64"}, B),
        (ASYMMETRIC, {"datatype": "fp4"}, B),
        (ASYMMETRIC, {"datatype": "float"}, N),
        (ASYMMETRIC, {"datatype": "int8", "dimension": 512}, T),
        (ASYMMETRIC, {"dimension": None}, ChangeImpact.UNPROVEN),
    ],
)
def test_a_change_has_its_impact(
    old: CheckpointSettingsFingerprint, changed: dict[str, Any], impact: ChangeImpact
) -> None:
    assert replace(old, **changed).is_compatible_with(old) == (impact in (N, C), impact)


def test_equal_asymmetric_settings_without_family_are_equal() -> None:
    unknown = replace(ASYMMETRIC, embed_model_family=None)
    assert unknown.is_compatible_with(unknown) == (True, N)


def test_the_greatest_of_all_differences_counts() -> None:
    new = replace(ASYMMETRIC, query_model="voyage-4-lite", datatype="int8")
    assert new.is_compatible_with(ASYMMETRIC)[1] is Q


class TestImpact:
    def test_they_are_in_order(self) -> None:
        assert N < C < Q < T < B
        assert max(C, Q, N) is Q
        assert sorted([B, N, T, C, Q]) == [N, C, Q, T, B]

    def test_each_has_one_of_the_predecessors_five(self) -> None:
        assert {impact.projected for impact in ChangeImpact} == {N, C, Q, T, B}
        assert ChangeImpact.MIGRATABLE.projected is B
        assert ChangeImpact.LAYOUT.projected is C

    def test_the_predecessors_values_are_kept(self) -> None:
        assert [N.value, C.value, Q.value, T.value, B.value] == [
            "none", "compatible", "quantizable", "transformable", "breaking",
        ]  # fmt: skip
