"""States that were stored when they could be JSON alone come back as they were, whatever their keys look like."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from holdfast import Checkpoint, Workspace

from .make_states import states

ARCHIVE = Path(__file__).parent / "states-json.tar.xz"


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(tmp_path, **options)
    (tmp_path / "store").chmod(0o700)  # the archive has other modes; a store that is open to others is refused
    (tmp_path / "project").mkdir()
    (tmp_path / "home").mkdir()
    return Workspace(tmp_path / "project", store=tmp_path / "store", home=tmp_path / "home", environ={})


def test_each_comes_back_as_it_was(ws: Workspace) -> None:
    found = [checkpoint.state for checkpoint in reversed(ws.list())]
    assert found == states()
    for state, expected in zip(found, states(), strict=True):
        for name, value in expected.items():
            assert repr(state[name]) == repr(value), "to the types and the order"


def test_the_same_state_is_still_stored_in_the_same_bytes(ws: Workspace) -> None:
    def stored(checkpoint: Checkpoint) -> bytes:
        return ws._repository.contents(checkpoint).state

    for old, state in zip(reversed(ws.list()), states(), strict=True):
        assert stored(ws.save(state=state)) == stored(old)


def test_they_are_searched_and_purged_as_json(ws: Workspace) -> None:
    assert [each.path for each in ws.search("$nonsense")] == ["(state) looks"]
    secret = "#/x and more 0123456789"
    (ws.path / "keys").write_text(secret)
    ws.save("keys", state={"talk": {"$tuple": secret}})
    ws.purge("keys", dry_run=False)
    assert ws.get("latest").state == {"talk": {"$tuple": "[purged]"}}
