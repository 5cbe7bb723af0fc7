"""A secret is in no file of an index, whatever it is called and wherever it lies."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.indexing import Channel, FlatStore, IndexRun, Pipeline
from holdfast.indexing.stages import stage_of

_SECRET = "sk-4711-do-not-tell"
_API_KEY = _SECRET


@dataclass
class Client:
    api_key: str = _SECRET
    region: str = "eu"


@dataclass
class Chunker:
    openaiApiKey: str = _SECRET  # noqa: N815 # as others spell it
    passwd: str = _SECRET
    bearer: str = _SECRET
    connection_string: str = _SECRET
    base_url: str = f"https://user:{_SECRET}@example.org/v1?api_key={_SECRET}"
    headers: dict[str, str] = field(default_factory=lambda: {"X-Api-Key": _SECRET})
    options: dict[str, str] = field(default_factory=lambda: {"x-api-key": _SECRET, "tone": "calm"})
    clients: list[Client] = field(default_factory=lambda: [Client()])
    more: tuple[dict[str, str], ...] = ({"access_token": _SECRET},)

    version = "1"

    def __call__(self, text: str) -> list[str]:
        return [text]


def _model(texts: Sequence[str], api_key: str = _SECRET) -> list[list[float]]:
    return [[1.0, float(len(text))] for text in texts]


def _parse(api_key: str, data: bytes) -> str:
    return data.decode()


def _by_module(data: bytes) -> str:
    return data.decode() if _API_KEY else ""


def _pipeline(folder: Path, parse: Any) -> Pipeline:
    model = functools.partial(_model, api_key=_SECRET)
    return Pipeline(
        source={"a.md": "one", "b.md": "two"}, parse=parse, chunk=Chunker(),
        embed={"dense": Channel(model, model="m", usd_per_mtok=1.0)}, store=FlatStore(folder / "vectors.db"),
    )  # fmt: skip


@pytest.mark.parametrize("parse", [functools.partial(_parse, _SECRET), _by_module], ids=["given", "of its module"])
def test_a_secret_is_in_no_file_and_no_plan(tmp_path: Path, parse: Any) -> None:
    with IndexRun(ledger=tmp_path / "ledger.db", pipeline=_pipeline(tmp_path, parse)) as run:
        plan = run.plan()
        said = json.dumps(plan.to_dict(), default=str) + repr(plan)
        assert run.apply(plan).ok
        said += json.dumps(run.plan().to_dict(), default=str) + repr(run.explain("a.md"))
    assert _SECRET not in said
    for path in tmp_path.iterdir():
        assert _SECRET.encode() not in path.read_bytes(), path.name
    assert b"calm" in b"".join(path.read_bytes() for path in tmp_path.iterdir())  # what is none is there


def test_another_key_is_no_other_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are changed often; chunks are not cut again for it."""
    before = stage_of(_by_module).fingerprint, stage_of(Chunker()).fingerprint
    monkeypatch.setitem(globals(), "_API_KEY", "another")
    assert (stage_of(_by_module).fingerprint, stage_of(Chunker(passwd="another")).fingerprint) == before
    assert stage_of(_by_module).unseen == ("_API_KEY",)
    assert stage_of(Chunker(options={"tone": "wild"})).fingerprint != before[1]
