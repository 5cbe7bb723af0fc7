"""A stage is known by all that makes its results what they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast.adapters.models.wordllama import WordLlama
from holdfast.indexing.chunking import PlainChunker
from holdfast.indexing.pipeline import text_of
from holdfast.indexing.splitters import Splitter
from holdfast.indexing.stages import stage_of
from holdfast.indexing.word_model import HashedWords


def _cutter(size: int) -> Callable[[str], list[str]]:
    return lambda text: [text[:size]]


def _sized(text: str, size: int = 3) -> list[str]:
    return [text[:size]]


def _made(source: str) -> Callable[[str], list[str]]:
    names: dict[str, Any] = {"__name__": "made"}
    exec(source, names)
    found: Callable[[str], list[str]] = names["chunk"]
    return found


def test_what_a_function_closes_over_counts() -> None:
    assert stage_of(_cutter(3)).fingerprint != stage_of(_cutter(4)).fingerprint
    assert stage_of(_cutter(3)).fingerprint == stage_of(_cutter(3)).fingerprint


def test_what_a_partial_was_given_counts() -> None:
    assert stage_of(functools.partial(_sized, size=4)).fingerprint != stage_of(_sized).fingerprint


def test_an_edit_of_a_helper_in_the_same_module_is_seen() -> None:
    before = "def helper(text): return [text]\ndef chunk(text): return helper(text)\n"
    assert stage_of(_made(before)).fingerprint == stage_of(_made(before)).fingerprint
    after = before.replace("[text]", "[text, text]")
    assert stage_of(_made(before)).fingerprint != stage_of(_made(after)).fingerprint


def test_a_constant_of_the_module_counts() -> None:
    before = "SIZE = 3\ndef chunk(text): return [text[:SIZE]]\n"
    assert stage_of(_made(before)).fingerprint != stage_of(_made(before.replace("3", "4"))).fingerprint


def test_settings_of_an_object_count_but_not_how_fast_it_is() -> None:
    @dataclass
    class Chunker:
        size: int = 3
        threads: int = 1
        api_key: str = ""

        def __call__(self, text: str) -> list[str]:
            return [text]

    assert stage_of(Chunker(size=4)).fingerprint != stage_of(Chunker()).fingerprint
    assert stage_of(Chunker(threads=4, api_key="x")).fingerprint == stage_of(Chunker()).fingerprint
    assert "api_key" not in stage_of(Chunker(api_key="x")).settings


def test_a_declared_version_stands_for_the_source() -> None:
    assert stage_of(PlainChunker()).version == "1"


def test_what_cannot_be_seen_is_named() -> None:
    thing = object()
    assert stage_of(lambda text: [text, thing]).unseen == ("thing",)


@pytest.mark.parametrize(
    ("shipped", "name"),
    [
        (PlainChunker(), "holdfast.indexing.chunking.PlainChunker"),
        (HashedWords(), "holdfast.indexing.words.HashedWords"),
        (Splitter, "holdfast.indexing.splitters.Splitter"),
        (WordLlama, "holdfast.adapters.models.wordllama.WordLlama"),
    ],
)
def test_stored_names_outlive_their_modules(shipped: Callable[..., Any], name: str) -> None:
    """A ledger compares these: another name would embed every document again."""
    assert stage_of(shipped).implementation == name


@pytest.mark.parametrize(
    ("stage", "fingerprint"),
    [
        (text_of, "b3:beaa6f6914380ca0ac65951d048815d1e84d7593e2fde2009416879e38860a4e"),
        (PlainChunker(), "b3:97763dac1ad3d09bc8bdf1bb3ca084e6abb29b4845e4934a68e2acc18682f387"),
        (HashedWords(), "b3:7f5d5ec101ab90acca2e3fbee31f873c319f63f0adecc156a67b9a6ab4d7248b"),
    ],
)
def test_stages_of_holdfast_keep_their_fingerprint(stage: Any, fingerprint: str) -> None:
    """An edit of their words, or of where they are, must not make every index stale."""
    assert stage_of(stage).fingerprint == fingerprint
