"""Chunking: pieces joined are the state; the same state is cut the same way, whatever was before."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Damaged, Refused
from holdfast.flow.chunking import ChunkedValue, Chunker, cut
from holdfast.flow.segments import PartContent, SegmentGroup, join
from holdfast.serde import Serde
from holdfast.serde.msgpack import encode
from holdfast.testing.flow_contract import conversation

SERDE = Serde()


def name(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:16]


def chunk(state: Any, memory: ChunkedValue | None = None) -> tuple[SegmentGroup, ChunkedValue | None, Chunker]:
    chunker = Chunker(SERDE.encode, name)
    segments, chunked, encoded = chunker.chunk(state, memory)
    assert b"".join(encoded) == SERDE.encode(state)
    return segments, chunked, chunker


def joined(segments: SegmentGroup, parts: dict[bytes, PartContent]) -> Any:
    return SERDE.decode(join(segments, lambda names, count: {each: parts[each] for each in names}, max_bytes=1 << 30))


SIZES = st.sampled_from([1, 20, 300, 511, 512, 700, 3000, 5000, 70_000])
TEXTS = st.builds(lambda letter, size: letter * size, st.sampled_from("abcdef"), SIZES)
VALUES = st.recursive(
    TEXTS | st.integers() | st.tuples(TEXTS),
    lambda inner: (
        st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=6)
    ),
    max_leaves=40,
)


@given(VALUES)
def test_chunks_join_to_the_state(state: Any) -> None:
    segments, _, chunker = chunk(state)
    assert joined(segments, chunker.parts) == state
    assert chunker.parts.keys() == chunker.names


@given(st.lists(st.lists(TEXTS | st.integers() | st.lists(TEXTS), max_size=20), min_size=2, max_size=4), st.booleans())
def test_memory_changes_nothing_but_the_work(steps: list[list[Any]], growing: bool) -> None:
    parts: dict[bytes, PartContent] = {}
    memory = None
    items: list[Any] = []
    for step in steps:
        items = [*items, *step] if growing else step
        state = {"items": items, "inner": {"items": items}, "n": len(items)}
        segments, memory, chunker = chunk(state, memory)
        parts |= chunker.parts
        fresh_segments, _, fresh = chunk(state)
        assert segments == fresh_segments
        assert chunker.names == fresh.names
        assert chunker.names <= parts.keys()
        assert joined(segments, parts) == state


def test_what_is_remembered_is_not_named_again() -> None:
    messages = conversation(500)
    _, memory, _ = chunk({"messages": messages})
    _, _, chunker = chunk({"messages": [*messages, {"content": "x" * 1000}]}, memory)
    assert len(chunker.parts) <= 4
    assert sum(len(part[1]) + len(part[0]) for part in chunker.parts.values()) < 2500


def test_a_change_in_place_is_noticed() -> None:
    """The memory holds bytes, not objects that the caller may change."""
    messages = conversation(50)
    state = {"messages": messages}
    _, memory, _ = chunk(state)
    messages[3]["content"] = "changed" * 100
    segments, _, chunker = chunk(state, memory)
    assert joined(segments, chunker.parts) == state


@given(st.binary(max_size=300).map(lambda data: data * 2000))
def test_long_bytes_are_cut_and_joined(data: bytes) -> None:
    pieces = list(cut(data))
    assert b"".join(pieces) == data
    assert all(len(piece) <= 32768 for piece in pieces)


def test_chunk_boundaries_survive_an_insertion() -> None:
    data = b" ".join(b"%d" % number for number in range(100_000))
    before, after = set(cut(data)), set(cut(data[:50_000] + b"something new" + data[50_000:]))
    assert len(before - after) <= 2


def fetch_from(parts: dict[bytes, PartContent]) -> Any:
    return lambda names, count: {each: parts[each] for each in names if each in parts}


def test_a_rope_without_end_is_damaged() -> None:
    me = b"n" * 16
    looped = {me: (me + me, encode([-2]))}
    with pytest.raises(Damaged):
        join(SegmentGroup(me, encode([100, 0, 1, -1])), fetch_from(looped), max_bytes=1000)


@pytest.mark.parametrize("brings_all", [True, False])
def test_prefetched_chunks_are_not_fetched_again(*, brings_all: bool) -> None:
    state = {"messages": conversation(300)}
    segments, _, chunker = chunk(state)
    asked: list[int] = []

    def fetch(names: Any, count: int) -> dict[bytes, PartContent]:
        asked.append(len(names))
        return chunker.parts if brings_all else {each: chunker.parts[each] for each in names}

    assert SERDE.decode(join(segments, fetch, max_bytes=1 << 30)) == state
    assert (len(asked) == 1) is brings_all


def test_a_part_whose_names_are_no_bytes_is_damaged() -> None:
    me, other = b"n" * 16, b"o" * 16
    parts: dict[bytes, Any] = {me: ("o" * 16, encode([1])), other: (b"", b"a")}
    for fetch in (fetch_from(parts), lambda names, count: parts):
        with pytest.raises(Damaged, match="bad part names"):
            join(SegmentGroup(me, encode([1, 0, 2, -1])), fetch, max_bytes=1000)


@pytest.mark.parametrize(
    "shape",
    [
        [],
        [1],
        ["a", "b"],
        [-1, 0],
        [1, 0, None],
        [1, 0, 0, None],
        [1, 0, 0, 5],
        [1, 0, -1, b"a"],
        [1, 0, 0, b"ab"],
        [1, 0, 0, [b"a"]],
        {"a": 1},
        [1.5, 0, 0, b"a"],
    ],
)
def test_a_shape_that_is_none_is_damaged(shape: Any) -> None:
    with pytest.raises(Damaged):
        join(SegmentGroup(b"", encode(shape)), fetch_from({}), max_bytes=1000)


def test_a_state_that_says_it_is_too_large_is_refused() -> None:
    with pytest.raises(Refused, match="max_state_bytes"):
        join(SegmentGroup(b"", encode([10**12, 0, 0, b"a"])), fetch_from({}), max_bytes=1000)


def test_all_names_are_counted_and_what_is_remembered_stays() -> None:
    messages = conversation(40)
    state = {"before": "b" * 2000, "messages": messages, "between": "c" * 2000, "more": conversation(20)[::-1]}
    _, first, chunker = chunk(state)
    assert chunker.names == chunker.parts.keys()
    assert first is not None
    names = {key: set(each.names) for key, each in first.inner.items()}
    _, second, chunker = chunk({**state, "messages": conversation(44)}, first)
    assert {key: each.names for key, each in first.inner.items()} == names
    assert second is not None and second.inner["messages"].names > names["messages"]
    assert chunker.names > {each for own in second.inner.values() for each in own.names}
