"""What has to be JSON, such as metadata: taken if it comes back equal, refused with the place of what would not."""

from __future__ import annotations

import math
import subprocess
import sys
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest

from holdfast import Refused
from holdfast.workspace.requests import as_json


class Number(IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (math.nan, "metadata"),
        ([1, math.inf], "metadata[1]"),
        ({"a": [0, {"b": -math.inf}]}, "metadata['a'][1]['b']"),
        ({"a": (1, 2)}, "metadata['a'] (tuple)"),
        ({"a": {1, 2}}, "metadata['a'] (set)"),
        ([b"bytes"], "metadata[0] (bytes)"),
        ({"a": [Decimal("1.0")]}, "metadata['a'][0] (Decimal)"),
        ({"a": {1: "int key"}}, "metadata['a'][1]"),
        ({None: 1}, "metadata[None]"),
        (object(), "metadata (object)"),
    ],
)
def test_value_that_would_change_is_refused_with_its_place(value: Any, place: str) -> None:
    with pytest.raises(Refused) as caught:
        as_json(value, "metadata")
    assert f"{place} cannot be stored" in caught.value.message
    assert caught.value.hint


def test_joined_surrogates_are_refused_with_their_place() -> None:
    with pytest.raises(Refused) as caught:
        as_json({"a": ["fine", "\ud83d\ude00"]}, "metadata")
    assert "metadata['a'][1]" in caught.value.message


def test_something_that_is_equal_to_what_comes_back_is_taken() -> None:
    assert as_json({"a": Number.ONE}, "metadata") == {"a": Number.ONE}


@pytest.mark.parametrize(
    "make",
    ["value = []; value.append(value)", "value = {}; value.update(a=value, b=[value])"],
    ids=["in one place", "in two places"],
)
@pytest.mark.parametrize(
    "store", ["requests import as_json as store", "stored.state_json import Spelling; store = Spelling().spell"]
)
def test_a_value_that_contains_itself_is_refused_in_no_time(make: str, store: str) -> None:
    script = f"""if True:
        from holdfast.errors import Refused
        from holdfast.workspace.{store}
        {make}
        try:
            store(value, "metadata")
        except Refused as error:
            print("refused")
    """
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout == "refused\n", ran.stderr


def test_a_value_too_deep_to_be_written_is_refused() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(Refused):
        as_json(value, "metadata")
