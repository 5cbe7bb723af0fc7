"""Feeds damaged caches, rows and states to the native module, and checks what it answers.

A program of its own, so that it can run under a sanitizer or valgrind without pytest: `native_fuzz.py SEED ROUNDS
[MODULE]`, where MODULE is the file to load.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import random
import sys
import tempfile
from array import array
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

if len(sys.argv) > 3:
    _loader = importlib.machinery.ExtensionFileLoader("holdfast._native", sys.argv[3])
    _spec = importlib.util.spec_from_loader("holdfast._native", _loader)
    assert _spec is not None
    sys.modules["holdfast._native"] = importlib.util.module_from_spec(_spec)
    _loader.exec_module(sys.modules["holdfast._native"])

from holdfast.errors import HoldfastError
from holdfast.flow.chunking import Chunker
from holdfast.flow.codec import StateCodec
from holdfast.flow.packs import encode_pack
from holdfast.flow.segments import SegmentGroup
from holdfast.flow.store import PartRow
from holdfast.scan import git_index, sweep, user_git
from holdfast.scan.cache import Folder, columns, dump, records_at, row_of
from holdfast.scan.cached_folders import CachedFolders, ScannedFolders
from holdfast.serde import Envelope, Serde

FIELDS = {
    "marks": 36,
    "rules": 37,
    "tree": 53,
    "ignored": 93,
    "path": 105,
    "folders": 109,
    "details": 113,
    "names": 117,
}
LENGTHS = [105, 109, 113, 117, 121]
NUMBERS = [0, 1, 2, 3, 7, 20, 56, 0x7F, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF]
NO_PARENT = (1 << 32) - 1


def make_cache(root: Path) -> bytes:
    """Make a tree, and the cache that a save leaves of it, with details and links here and there."""
    for path in ("a/b/c/d", "a/b/e", "f/g", "h"):
        (root / path).mkdir(parents=True)
        for name in ("one", "two", "odd\udcff\n"):
            (root / path / name).write_bytes(os.fsencode(path))
    found = []
    for path, folders, names in os.walk(root):
        status = os.stat(path)
        key = (status.st_dev, status.st_ino, status.st_mode, status.st_mtime_ns, status.st_ctime_ns)
        folder = Folder("" if path == str(root) else os.path.relpath(path, root), key)
        folder.folders, folder.names = sorted(folders), sorted(names)
        rows = [row_of(os.lstat(os.path.join(path, name)), 0) for name in folder.names]
        folder.rows = columns([number for row in rows for number in row])
        folder.contents = bytearray(20 * len(names))
        folder.trusted, folder.rules, folder.tree, folder.attrs = True, b"r" * 16, b"t" * 20, b"a" * 20
        if folder.path == "f/g":
            folder.probes = ["build"]
        found.append(folder)
    return dump(found, {})


def damaged(records: list[bytes], dice: random.Random) -> bytes:
    """Damage some records of a cache, or their order."""
    records = list(records)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(records)) if records else 0
        record = bytearray(records[at]) if records else bytearray()
        match dice.randrange(8):
            case 0 if record:
                record[dice.randrange(len(record))] = dice.randrange(256)
            case 1 if len(record) >= 125:
                place = dice.choice(LENGTHS)
                old = int.from_bytes(record[place : place + 4], "little")
                number = dice.choice([*NUMBERS, (old + dice.choice([-1, 1])) & 0xFFFFFFFF])
                record[place : place + 4] = number.to_bytes(4, "little")
            case 2 if record:
                place = dice.choice(list(FIELDS.values()))
                record[place : place + 1] = bytes([dice.randrange(256)])
            case 3:
                records.insert(at, bytes(record))
            case 4 if records:
                del records[at]
                continue
            case 5:
                dice.shuffle(records)
                continue
            case 6 if record:
                del record[dice.randrange(len(record)) :]
            case 7 if record:
                place = dice.randrange(len(record))
                record[place:place] = dice.choice([b"\0", b"/", b"a", b"\0" * 125, b"\xff" * 9])
        if records:
            records[at] = bytes(record)
    return b"".join(records)


def check_sweep(native: ModuleType, data: bytes, start: int, root: int) -> bool:
    """Sweep, and check the answer; return whether the cache was accepted."""
    try:
        verdicts, relations = native.sweep(data, start, root, 2)
    except ValueError:
        return False
    assert len(relations) == 16 * len(verdicts)
    starts = memoryview(relations).cast("Q")[::2]
    parents, below = (memoryview(relations).cast("I")[column::4] for column in (2, 3))
    assert list(starts) == sorted(set(starts)) and all(start <= each <= len(data) - 125 for each in starts)
    for number, parent in enumerate(parents):
        assert parent == NO_PARENT or parent < number
        assert below[number] < len(verdicts) - number
        assert verdicts[number] < 8 and (parent != NO_PARENT or not verdicts[number] & sweep.PLAIN)
    cached = CachedFolders(data, (verdicts, relations))
    folders = ScannedFolders(cached)
    for number in range(len(verdicts)):
        if parents[number] == NO_PARENT:
            folders.adopt_below(number)
    paths = list(folders)
    assert len(folders) == len(paths) == sum(parent != NO_PARENT for parent in parents)
    for path in paths:
        assert path in folders
        folders.get(path)
    ends = [*starts[1:], len(data)]
    adopted = [data[starts[number] : ends[number]] for number, parent in enumerate(parents) if parent != NO_PARENT]
    assert b"".join(each for each in folders.encoded() if isinstance(each, memoryview)) == b"".join(adopted)
    return True


def check_reading(native: ModuleType, root: int, names: list[str], rows: array[int], dice: random.Random) -> None:
    """Read files by damaged rows; what is returned is a content of that size, a descriptor or nothing."""
    rows, names = rows[:], list(names)
    for _ in range(dice.randrange(3)):
        rows[dice.randrange(len(rows))] = dice.choice([0, -1, 1, 5, 1 << 40, -(1 << 63), (1 << 63) - 1])
    if not dice.randrange(4):
        names[dice.randrange(len(names))] = dice.choice(["", "..", "/", "a\0b", "x" * 5000, "no such file", "\udcff"])
    places = [dice.choice([0, 1, 2, 2, 3, -1, 1 << 40]) for _ in range(dice.randrange(5))]
    view = memoryview(rows).cast("B")[dice.choice([0, 0, 0, 1, 8]) :]
    with suppress(ValueError, OverflowError):
        for place, found in zip(
            places, native.read_files(root, names, places, view, os.getuid(), os.getgid(), 1 << 20), strict=True
        ):
            if isinstance(found, int):
                os.close(found)
            elif found is not None:
                assert len(found) == rows[7 * place + 2]


def make_index(dice: random.Random) -> bytes:
    """Make a git index of some version, with flags, submodules and stages here and there, and an extension."""
    version, entries = dice.choice([2, 2, 3, 3, 4]), []
    for number in range(dice.randrange(6)):
        name = b"x" * dice.choice([0, 1, 6, 7, 8, 200]) + b"%d" % number
        is_extended = version == 3 and dice.random() < 0.5
        entry = bytearray(dice.randbytes(40) + dice.randbytes(dice.choice([20, 20, 20, 32])))
        entry[24:28] = dice.choice([0o100644, 0o120000, 0o160000, 0o40000]).to_bytes(4)
        entry += (min(len(name), 0xFFF) | (0x4000 if is_extended else 0)).to_bytes(2) + bytes(2 * is_extended) + name
        entries.append(bytes(entry) + bytes(8 - len(entry) % 8))
    header = b"DIRC" + version.to_bytes(4) + dice.choice([len(entries), len(entries) + 1, 0]).to_bytes(4)
    return header + b"".join(entries) + dice.choice([b"", b"TREE\0\0\0\4....", b"link"]) + dice.randbytes(20)


def hashed(native: ModuleType, data: bytes, hash_bytes: int) -> tuple[str, int]:
    identity, end = native.index_identity(data, hash_bytes)
    return hashlib.sha1(identity).hexdigest(), end


def check_index(native: ModuleType, dice: random.Random) -> bool:
    """Read a damaged index as the Python code does; return whether it was accepted."""
    data = bytearray(make_index(dice))
    for _ in range(dice.choice([0, 0, 1, 3])):
        data[dice.randrange(len(data))] = dice.choice([0, 1, 4, 0x40, 0xE0, 0xFF])
    del data[dice.choice([len(data), len(data), dice.randrange(len(data) + 1)]) :]
    hash_bytes, found = dice.choice([20, 20, 32]), []
    for read, reference in (
        (native.index_names, user_git._entries),
        (partial(hashed, native), git_index._digest),
    ):
        try:
            expected: object = reference(bytes(data), hash_bytes)
        except (IndexError, ValueError):
            expected = None
        try:
            answer: object = read(bytes(data), hash_bytes)
        except ValueError:
            answer = None
        is_left = bytes(data[:4]) != b"DIRC" or bytes(data[4:8]) not in git_index._NATIVE_VERSIONS or len(data) < 12
        assert answer == (None if is_left else expected), (bytes(data), hash_bytes)
        found.append(answer is not None)
    assert found[0] == found[1]
    return found[0]


def make_state() -> tuple[list[PartRow], SegmentGroup, bytes]:
    """The rows of a state, its root, and its bytes."""
    codec = StateCodec(Serde(), Envelope(), "")
    chunker = Chunker(codec.serde.encode, codec.name)
    root, _, encoded = chunker.chunk({"texts": [f"{at:05}" * 120 for at in range(60)], "long": "word " * 2000}, None)
    parts = [tuple(codec.part(name, content, 1)) for name, content in chunker.parts.items()]
    rows = [(bytes([at] * 8), b"", encode_pack(parts[at : at + 7])) for at in range(0, len(parts) - 3, 7)]
    return [*rows, *parts[-3:]], root, b"".join(encoded)


def check_joining(native: ModuleType, state: tuple[list[PartRow], SegmentGroup, bytes], dice: random.Random) -> bool:
    """Join a state of damaged rows or with a damaged root; return whether it was joined."""
    rows, root, expected = state
    fields = [bytearray(each) for row in rows for each in row]
    fields += map(bytearray, root)
    for _ in range(dice.randrange(4)):
        field = dice.choice([*fields, fields[-1], fields[-2]])
        place = dice.randrange(len(field)) if field else 0
        match dice.randrange(4):
            case 0 if field:
                field[place] = dice.randrange(256)
            case 1 if field:
                field[place : place + 4] = (dice.choice(NUMBERS)).to_bytes(4, "big")
            case 2:
                del field[place:]
            case 3:
                field[place:place] = dice.choice([b"\0", b"\xc6", b"\xff" * 9, bytes(fields[0]), bytes(fields[-2])])
    *columns, refs, shape = map(bytes, fields)
    size = dice.choice([len(expected)] * 5 + [0, 1, 1 << 20])
    given = tuple(zip(columns[::3], columns[1::3], columns[2::3], strict=True))
    try:
        found = native.join_parts(given, refs, shape, size, Envelope(max_bytes=1 << 20).open)
    except HoldfastError:  # an envelope that cannot be opened
        return False
    assert found is None or len(found) == size
    return found == expected


def check_stamps(native: ModuleType, root: int, names: list[str], dice: random.Random) -> None:
    """Ask for the stamps of any names, also of what is no list of names; a stamp is that of the file."""
    odd = ["", "..", ".", "/", "x" * 5000, "no such file", "\udcff", "a\udcff\n", "ä", "\U0001f600"]
    wanted: list[Any] = [dice.choice([*names, *odd]) for _ in range(dice.choice([0, 1, 2, 5, 1023, 1024, 1025, 2100]))]
    if wanted and not dice.randrange(4):
        wanted[dice.randrange(len(wanted))] = dice.choice(["a\0b", None, 7, b"one", "\ud800"])
    limits = [dice.choice([0, 1, 5, 1 << 62, -1, -(1 << 63)]) for _ in range(2)]
    with suppress(ValueError, TypeError, UnicodeEncodeError):
        stamps, states = native.stamps(root, wanted, *limits)
        assert len(stamps) == len(states) == len(wanted)
        for name, stamp, state in zip(wanted, stamps, states, strict=True):
            assert (stamp is None) == (state == 0)
            if stamp is not None:
                seen = os.stat(name, dir_fd=root, follow_symlinks=False)
                assert stamp == f"{seen.st_ino}.{seen.st_size}.{seen.st_mtime_ns}.{seen.st_ctime_ns}"


def main(seed: int, rounds: int) -> None:
    native, dice, accepted, joined, state = sweep.native, random.Random(seed), 0, 0, make_state()
    assert native is not None
    user_git._read_index_names = git_index._index_identity = None  # the reference
    read = sum(check_index(native, dice) for _ in range(rounds))
    assert rounds // 10 < read < rounds
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        data = make_cache(root)
        start = records_at(data) or 0
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        assert check_sweep(native, data, start, fd)
        starts = [*memoryview(native.sweep(data, start, fd, 1)[1]).cast("Q")[::2], len(data)]
        records = [data[each:end] for each, end in pairwise(starts)]
        names = sorted(os.listdir(root / "h"))
        rows = array("q", [number for name in names for number in row_of(os.lstat(root / "h" / name), 0)])
        inner = os.open(root / "h", os.O_RDONLY | os.O_DIRECTORY)
        for _ in range(rounds):
            accepted += check_sweep(native, data[:start] + damaged(records, dice), start, fd)
            check_reading(native, inner, names, rows, dice)
            joined += check_joining(native, state, dice)
            if not dice.randrange(50):
                check_stamps(native, inner, names, dice)
        os.close(fd)
        os.close(inner)
    assert joined
    print(f"{rounds} rounds, {accepted} caches and {read} indexes accepted, {joined} states joined")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
