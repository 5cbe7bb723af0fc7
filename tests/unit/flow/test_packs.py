"""States joined by the native module from rows as they are stored: as Python joins them, or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Damaged
from holdfast.flow import Checkpoint, States, codec
from holdfast.flow.cache import PartCache
from holdfast.flow.chunking import Chunker
from holdfast.flow.codec import StateCodec
from holdfast.flow.packs import encode_pack, unpacked
from holdfast.flow.segments import SegmentGroup, join, make_group, make_root
from holdfast.flow.sqlite import SQLiteStore
from holdfast.flow.store import PartRow
from holdfast.native import native
from holdfast.serde import Envelope, Serde
from holdfast.testing.flow_contract import conversation, point

needs_native = pytest.mark.skipif(native is None, reason="the native module is absent or turned off")
CODEC = StateCodec(Serde(), Envelope(), "")


def stored(state: Any, dice: random.Random) -> tuple[list[PartRow], SegmentGroup, bytes]:
    """A state as rows in any order, some of them packs; its root, and its bytes."""
    chunker = Chunker(CODEC.serde.encode, CODEC.name)
    root, _, encoded = chunker.chunk(state, None)
    parts = [tuple(CODEC.part(name, content, 1)) for name, content in chunker.parts.items()]
    dice.shuffle(parts)
    rows: list[PartRow] = []
    while parts:
        several = [parts.pop() for _ in range(min(len(parts), dice.randrange(9)))]
        rows += [(dice.randbytes(8), b"", encode_pack(several))] if dice.randrange(3) else several
    return rows, root, b"".join(encoded)


def any_state(dice: random.Random) -> Any:
    """A state with many small values, large and compressible ones, and lists in lists."""
    texts = [dice.randbytes(dice.choice([10, 400, 700, 3000, 9000])).hex() for _ in range(dice.randrange(1, 60))]
    return {
        "texts": texts,
        "nested": [[text[:900] for text in texts[:9]] * dice.randrange(1, 4)] * dice.randrange(1, 4),
        "compressible": "word " * dice.choice([1, 1000, 40000]),
    }


@needs_native
class TestJoinParts:
    @pytest.mark.parametrize("seed", range(40))
    def test_same_as_python(self, seed: int) -> None:
        rows, root, expected = stored(any_state(random.Random(seed)), random.Random(seed))
        assert CODEC.joined(rows, root, len(expected)) == expected
        found = CODEC.open_parts(rows, 1)
        assert join(root, lambda names, count: found, max_bytes=1 << 30) == expected

    def test_declines_what_is_incomplete(self) -> None:
        rows, root, expected = stored({"texts": ["x" * 700] * 3, "more": list("ab") * 4000}, random.Random(1))
        parts = unpacked(rows)
        for at in range(len(parts)):
            assert CODEC.joined(parts[:at] + parts[at + 1 :], root, len(expected)) is None
        for size in (0, len(expected) - 1, len(expected) + 1):
            assert CODEC.joined(rows, root, size) is None

    @pytest.mark.parametrize(
        "row",
        [
            pytest.param((b"8 bytes!", b"", b""), id="empty"),
            pytest.param((b"8 bytes!", b"", b"\xdd\0\0\0\4"), id="not in threes"),
            pytest.param((b"8 bytes!", b"", b"\xdd\xff\xff\xff\xff"), id="too many"),
            pytest.param((b"8 bytes!", b"", b"\xdd\0\0\0\0more"), id="more than it says"),
            pytest.param((b"8 bytes!", b"refs", b"\xdd\0\0\0\0"), id="with refs"),
            pytest.param((b"another size", b"", b""), id="neither"),
            pytest.param((b"n" * 16, None, b""), id="not bytes"),
            pytest.param((b"n" * 16, b""), id="too short"),
        ],
    )
    def test_declines_a_row_that_is_none(self, row: Any) -> None:
        rows, root, expected = stored({"texts": ["x" * 700] * 9}, random.Random(1))
        assert CODEC.joined([*rows, row], root, len(expected)) is None

    def test_each_damaged_byte(self) -> None:
        """No wrong size, and no crash, whatever a byte becomes; the checksum of the state finds wrong content."""
        dice = random.Random(3)
        rows, root, expected = stored({"texts": [dice.randbytes(300).hex() for _ in range(30)]}, dice)
        at, pack = max(((n, data) for n, (name, _, data) in enumerate(rows) if len(name) == 8), key=lambda x: len(x[1]))
        for place in [*range(80), *dice.sample(range(len(pack)), 400)]:
            data = bytearray(pack)
            data[place] = (data[place] + dice.randrange(1, 256)) % 256
            try:
                found = CODEC.joined(
                    [*rows[:at], (rows[at][0], b"", bytes(data)), *rows[at + 1 :]], root, len(expected)
                )
            except Damaged:  # an envelope of another kind
                continue
            assert found is None or len(found) == len(expected)

    def test_loops_and_deep_nesting(self) -> None:
        loop = b"l" * 16
        rows = [(loop, loop, b"\0" + make_group([])[1])]
        shape = b"\x94\x05\x00\x01\xff"  # size 5, one part, which is a group
        assert native is not None
        of_itself = [(loop, loop, b"\0\x91\xff")]
        assert native.join_parts(tuple(of_itself), loop, shape, 5, Envelope().open) is None
        assert native.join_parts(tuple(rows), loop, shape, 5, Envelope().open) is None
        names = [bytes([level]) * 16 for level in range(40)]
        deep = [(name, inner, b"\0\x91\xff") for name, inner in pairwise(names)]
        leaf = (names[39], b"", b"\0\x91\xc4\5hello")
        assert native.join_parts((*deep, leaf), names[20], shape, 5, Envelope().open) == b"hello"
        assert native.join_parts((*deep, leaf), names[0], shape, 5, Envelope().open) is None

    @pytest.mark.parametrize(
        "count", [0, 1, 15, 127, 128, 255, 256, 65535, 65536, -1, -32, -33, -128, -129, -32768, -32769, 1 << 63]
    )
    def test_numbers_of_every_size(self, count: int) -> None:
        """A part, or a group, as often as a number says."""
        names = min(abs(count), 70_000)
        root = SegmentGroup(b"n" * 16 * names, CODEC.serde.encode([3 * names, 0, 1, count]))
        row = (b"n" * 16, b"", b"\0xyz" if count >= 0 else b"\0\x91\xc4\3xyz")
        found = CODEC.joined([row], root, 3 * names)
        assert found == (b"xyz" * names if names == abs(count) else None)

    def test_error_of_an_envelope(self) -> None:
        rows = [(b"n" * 16, b"", b"\1\0\0\0\1not zstd")]
        root = make_root([], 1, 0, 1)._replace(refs=b"n" * 16, shape=b"\x94\x01\x00\x01\x01")
        with pytest.raises(Damaged):
            CODEC.joined(rows, root, 1)


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "python"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], States]:
    """Opens the same file, with and without the native module."""
    if request.param == "python":
        monkeypatch.setattr(codec, "native", None)
    return lambda: States(SQLiteStore(tmp_path / "s.db", synchronous="NORMAL"))


class TestFirstLoads:
    def test_all_steps_and_those_of_another_process(self, reopen: Callable[[], States]) -> None:
        with reopen() as writer, reopen() as reader:
            for step in range(1, 60):
                writer.save(point(f"c{step}", {"messages": conversation(step), "step": step}, step=step))
                if step % 7 == 0:
                    found = reader.load("s")
                    assert found is not None and found.state == {"messages": conversation(step), "step": step}
            for step in (59, 3, 40, 40, 59):
                found = reader.load("s", f"c{step}")
                assert found is not None and found.state == {"messages": conversation(step), "step": step}

    def test_a_damaged_pack_is_named(self, reopen: Callable[[], States]) -> None:
        with reopen() as writer:
            writer.save(point("c", {"messages": conversation(40)}))
            path = writer.store._pool.file.path  # type: ignore[attr-defined]
        data = bytearray(Path(path).read_bytes())
        places = [at for at in range(len(data)) if data.startswith(b"\xc4\x10", at)]
        for place in places[2:6]:
            damaged = bytearray(data)
            damaged[place + 40] ^= 0x55
            Path(path).write_bytes(damaged)
            with reopen() as reader, pytest.raises(Damaged):
                reader.load("s")

    def test_parts_that_another_namespace_stored(self, reopen: Callable[[], States]) -> None:
        """They are not where the row's own parts begin and end: they are asked for by name."""
        first = point("c", {"messages": conversation(40)})
        second = Checkpoint(replace(first.metadata, namespace="n"), {"messages": [*conversation(40), "more" * 300]})
        third = Checkpoint(replace(first.metadata, namespace="m"), second.state)
        with reopen() as writer:
            for each in (first, second, third):
                writer.save(each)
        with reopen() as reader:
            assert reader.load("s", namespace="n") == second
        with reopen() as reader:
            assert (reader.load("s"), reader.load("s", namespace="m")) == (first, third)

    def test_a_small_cache(self, tmp_path: Path) -> None:
        with States(SQLiteStore(tmp_path / "s.db")) as writer:
            writer.save(point("c", {"messages": conversation(40)}))
        with States(SQLiteStore(tmp_path / "s.db"), memory_bytes=1000) as reader:
            for _ in range(3):
                found = reader.load("s")
                assert found is not None and found.state == {"messages": conversation(40)}


class TestPartCache:
    def test_rows_are_kept_until_parts_are_asked_for(self) -> None:
        rows, _, _ = stored({"texts": ["x" * 700, "y" * 700] * 9}, random.Random(1))
        cache = PartCache(1 << 20, CODEC.open_parts)
        cache.put_rows(1, rows)
        assert (cache.rows(1), cache.rows(2)) == (rows, ())
        assert cache.of_family(1) == CODEC.open_parts(rows, 1)
        assert cache.rows(1) == ()

    def test_no_more_than_its_size(self) -> None:
        rows = [(b"n" * 16, b"", b"\0" + b"x" * 599)]
        cache = PartCache(1000, CODEC.open_parts)
        cache.put_rows(1, rows)
        cache.put_rows(2, rows)
        assert (cache.rows(1), cache.rows(2)) == ((), rows)
        cache.put(3, {b"m" * 16: (b"", b"y" * 300)})
        assert cache.rows(2) == rows
        cache.put_rows(4, rows * 2)
        assert cache.rows(4) == () == cache.rows(2)
