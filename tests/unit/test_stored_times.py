"""Times that no calendar has, wherever one is stored: damage, or the end of the calendar; never a traceback."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from holdfast.cli import render
from holdfast.cli.commands.doctor import _moment
from holdfast.errors import Damaged
from holdfast.flow.model import moment
from holdfast.training.stored.manifest import Manifest
from holdfast.workspace.upkeep.type_policies import NAME, read_kinds

ABSURD = ["1000000000-01-01T00:00:00Z", "yesterday", "", "-1"]


@pytest.mark.parametrize("said", ABSURD)
def test_of_a_training_run(said: str) -> None:
    manifest = Manifest(step=1, sequence=1, created_at=said, digest_algorithm="sha256", files={}, tensors={})
    with pytest.raises(Damaged, match="manifest of step 1 is corrupt: bad created_at"):
        _ = manifest.timestamp


@pytest.mark.parametrize("seconds", ["1e300", "1e15", '"long"', "NaN"])
def test_of_what_a_store_keeps(tmp_path: Path, seconds: str) -> None:
    (tmp_path / NAME).write_text(f'{{"feature": {{"keep_for": {seconds}}}}}')
    with pytest.raises(Damaged, match="cannot be read"):
        read_kinds(tmp_path)


@pytest.mark.parametrize("seconds", [1e300, -1e300, float("inf"), 4e17])
def test_of_a_hook(seconds: float) -> None:
    assert _moment(seconds).year in (1, 9999)


@pytest.mark.parametrize("micros", [10**30, -(10**30)])
def test_of_a_state(micros: int) -> None:
    assert moment(micros).year in (1, 9999)


@pytest.mark.parametrize("end", [datetime.min, datetime.max])
@pytest.mark.parametrize("hours", [-14, 0, 14])
def test_shown_to_people(end: datetime, hours: int) -> None:
    assert render.local(end.replace(tzinfo=timezone(timedelta(hours=hours)))).startswith(("0001-", "9999-"))
    assert render.local(datetime(2024, 1, 2, 3, 4, 5, 678, tzinfo=UTC))[:4] == "2024"
