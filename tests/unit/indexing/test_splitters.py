"""Splitters of others as chunkers."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from langchain_text_splitters import MarkdownHeaderTextSplitter, MarkdownTextSplitter, RecursiveCharacterTextSplitter
from pydantic import BaseModel, PrivateAttr

from holdfast.errors import Refused
from holdfast.indexing import Splitter
from holdfast.indexing.plan import DocumentChange
from holdfast.indexing.stages import stage_of

from .scene import Scene


def _recursive(**more: Any) -> Splitter:
    return Splitter(RecursiveCharacterTextSplitter(**{"chunk_size": 40, "chunk_overlap": 0} | more))


def test_langchain_splitter_settings_are_tracked(scene: Scene) -> None:
    scene.fill(3)
    scene.chunker = _recursive()  # type: ignore[assignment]
    with scene.done() as run:
        assert run.plan().is_empty
        assert run.plan().findings == ()
    scene.chunker = _recursive(chunk_size=60)  # type: ignore[assignment]
    with scene.run() as run:
        plan = run.plan()
        assert {each.kind for each in plan.documents} == {DocumentChange.RECHUNKED}
        assert [each.name for each in plan.settings] == ["chunk.settings.chunk_size"]
        assert run.apply(plan).ok


@pytest.mark.parametrize("more", [{"separators": ["\n"]}, {"keep_separator": False}, {"length_function": lambda t: 1}])
def test_every_setting_counts_and_so_does_the_package(more: dict[str, Any]) -> None:
    assert stage_of(_recursive()).fingerprint == stage_of(_recursive()).fingerprint
    assert stage_of(_recursive()).fingerprint != stage_of(_recursive(**more)).fingerprint
    assert stage_of(_recursive()).version.startswith("langchain-text-splitters ")
    other = MarkdownTextSplitter(chunk_size=40, chunk_overlap=0)
    alike = _recursive(separators=other._separators)  # all the same but for the class
    assert stage_of(alike).fingerprint != stage_of(Splitter(other)).fingerprint


def test_parts_that_have_a_text_are_taken_by_it() -> None:
    splitter = Splitter(MarkdownHeaderTextSplitter([("#", "title")]))
    assert splitter("# One\nfirst\n# Two\nsecond") == ["first", "second"]


class Parser(BaseModel):
    """Like LlamaIndex's: fields of pydantic, and a tokenizer beside them that has no spelling."""

    chunk_size: int = 10
    _tokenizer: Any = PrivateAttr(default_factory=lambda: functools.partial(object().__eq__, 1))

    def split_text(self, text: str) -> list[str]:
        return [text[at : at + self.chunk_size] for at in range(0, len(text), self.chunk_size)]


def test_pydantic_parser_is_identified_by_its_fields(scene: Scene) -> None:
    assert stage_of(Splitter(Parser())).fingerprint == stage_of(Splitter(Parser())).fingerprint
    assert stage_of(Splitter(Parser())).fingerprint != stage_of(Splitter(Parser(chunk_size=9))).fingerprint
    scene.fill(1)
    scene.chunker = Splitter(Parser())  # type: ignore[assignment]
    with scene.run() as run:
        assert run.plan().findings == ("a change of tokenizer of the stage chunk would not be noticed",)


def test_what_cannot_split_is_refused() -> None:
    with pytest.raises(Refused, match="int has no split_text"):
        Splitter(5)  # type: ignore[arg-type]
