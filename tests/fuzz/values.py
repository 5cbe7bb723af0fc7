"""Values and what surrounds them: the serializer, pickles, states of flows, training checkpoints, index ledgers."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import sqlite3
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy

from fuzz.target import SEPARATOR, folder, parsed, parts, quietly, target
from holdfast.digest import digest
from holdfast.flow import Place, SQLiteCheckpointer
from holdfast.flow.codec import StateCodec
from holdfast.flow.model import Checkpoint, CheckpointMetadata
from holdfast.flow.segments import Ref, SegmentGroup, checksum, join, make_group, make_root
from holdfast.indexing import CheckpointManager, IndexingCheckpoint, sparse_vectors, vectors
from holdfast.safe_pickle import read_pickle
from holdfast.serde import Envelope, Keys, Registry, Serde, from_json, read_keys, to_json, to_tagged
from holdfast.training import CheckpointManager as TrainingManager
from holdfast.training import load_checkpoint, save_checkpoint
from holdfast.training.folder import FolderRunStore
from holdfast.training.shard_reader import read_manifest
from holdfast.training.stored import digests, leaves, manifest, marker

_VALUES: tuple[Any, ...] = (
    None, True, -1, 1 << 100, 1.5, float("nan"), "text", "\ud800", b"bytes", bytearray(b"b"), [1, [2]], (1, 2), {1, 2},
    frozenset({3}), {"a": 1}, {1: "b", (2,): None}, complex(1, 2), datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1),
    time(1, 2, 3, fold=1), timedelta(days=-1), Decimal("1.50"), UUID(int=5), PurePosixPath("/a"), deque([1], maxlen=2),
    OrderedDict(a=1), defaultdict(list, {"a": [1]}), Counter("aab"), range(1, 10, 2), re.compile("a+", re.I),
    ZoneInfo("UTC"), numpy.arange(6, dtype="i2").reshape(2, 3), numpy.float32(1.5),
    numpy.zeros(2, dtype=[("x", "<f4"), ("y", "u1", (2,))]), numpy.str_("s"),
    datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")),
)  # fmt: skip
_serde, _opaque = Serde(), Serde(Registry(), on_unknown="keep")


# ---- The serializer ----


@target(lambda: [*map(_serde.encode, _VALUES), _serde.encode(list(_VALUES))])
def serde_value(data: bytes) -> None:
    for one in (_serde, _opaque):
        one.decode(data)


@target(lambda: [*map(_serde.encode, _VALUES)])
def serde_shown(data: bytes) -> None:
    """Encoded bytes as JSON and as tagged JSON, and back."""
    text = to_json(data)
    from_json(text)
    to_tagged(data, readable=True)


@target(lambda: [to_json(_serde.encode(value)).encode() for value in _VALUES], is_json=True)
def serde_json(data: bytes) -> None:
    _serde.decode(from_json(data.decode("utf-8", "surrogateescape")))


_KEYS = {"old": b"1" * 32, "new": b"2" * 32}


def _envelopes() -> list[bytes]:
    text = b"the same text again and again " * 300
    return [Envelope().close(text), Envelope(compress=False).close(b"x"), Envelope(Keys(_KEYS)).close(text, b"place")]


@target(_envelopes)
def envelope(data: bytes) -> None:
    for one in (Envelope(max_bytes=1 << 24), Envelope(Keys(_KEYS), max_bytes=1 << 24)):
        quietly(partial(one.open, data, b"place"))


@target(lambda: [b'{"a": "' + b"A" * 43 + b'="}'], is_json=True)
def key_file(data: bytes) -> None:
    path = folder("keys") / "keys.json"
    path.write_bytes(data)
    read_keys(path)


_PICKLED = (
    {"a": [1, 2.5, None, True], "b": ("x", b"y", {1, 2}), "when": datetime(2026, 1, 1)},
    [OrderedDict(a=1), Decimal("1.5"), timedelta(1), complex(1, 2), bytearray(b"abc"), frozenset({1})],
    [[]] * 50,
)


@target(lambda: [pickle.dumps(value, protocol) for value in _PICKLED for protocol in range(6)])
def safe_pickle(data: bytes) -> None:
    read_pickle(data)


# ---- States of flows ----

_FLOW_PARTS = {b"1" * 16: (b"", b"first"), b"2" * 16: (b"", b"second")}


def _segments() -> list[bytes]:
    group = make_group([b"x", Ref(b"1" * 16, False), Ref(b"2" * 16, False)])
    pieces = [b"begin", Ref(b"1" * 16, False), Ref(b"3" * 16, True), b"end"]
    text = b"begin" + b"first" + b"x" + b"first" + b"second" + b"end"
    root = make_root(pieces, len(text), checksum([text]), 3)
    return [SEPARATOR.join((root.refs, root.shape, group.refs, group.shape))]


@target(_segments)
def segments(data: bytes) -> None:
    """A state that needs a group, whose bytes are given too; with the checksum mended where there is one."""
    refs, shape, group_refs, group_shape = parts(data, 4)
    known = {**_FLOW_PARTS, b"3" * 16: (group_refs, group_shape)}

    def fetch(names: Any, _: int) -> dict[bytes, tuple[bytes, bytes]]:
        return {name: known[name] for name in names}

    try:
        join(SegmentGroup(refs, shape), fetch, max_bytes=1 << 24)
    except KeyError:  # a part is missing: its callers read the row again
        pass


@cache
def _codec() -> StateCodec:
    return StateCodec(Serde(), Envelope(), "tenant")


@target(lambda: [_serde.encode([datetime(2026, 1, 1, tzinfo=UTC), "node", 1, ["tag"], {"a": 1}])])
def flow_metadata(data: bytes) -> None:
    place = Place("s", "", "c")
    row = _codec().pack_row(place, None, None, data, SegmentGroup(b"", b"\x93\0\0\0"), family=1, saved_at=1)
    meta, _ = _codec().open_row(row)
    found = _codec().checkpoint(row, meta, [_serde.encode({})])
    found.to_dict()


@cache
def _flow_file() -> Path:
    path = folder("flow-made") / "states.db"
    with SQLiteCheckpointer(path).states as store:
        for step in range(3):
            state = {"messages": [f"message {number} " * 30 for number in range(40 + step)], "step": step}
            meta = replace(_META, checkpoint_id=f"c{step}", session_id="session", step=step)
            store.save(Checkpoint(meta, state))
    return path


_COLUMNS = (
    ("checkpoints", "meta"),
    ("checkpoints", "refs"),
    ("checkpoints", "shape"),
    ("parts", "data"),
    ("parts", "refs"),
)


def _flow_columns() -> list[bytes]:
    with sqlite3.connect(_flow_file()) as db:
        return [
            f"{table} {column}".encode() + SEPARATOR + row[0]
            for table, column in _COLUMNS
            for row in db.execute(f"SELECT {column} FROM {table} ORDER BY rowid DESC LIMIT 2")
        ]


@target(_flow_columns, is_slow=True)
def flow_row(data: bytes) -> None:
    """Everything that is read of a store of states, with one value of one table replaced."""
    where, value = parts(data, 2)
    table, _, column = where.decode("utf-8", "replace").partition(" ")
    if (table, column) not in _COLUMNS:
        return
    path = folder("flow") / "states.db"
    for old in path.parent.iterdir():
        old.unlink()
    shutil.copy(_flow_file(), path)
    with sqlite3.connect(path) as db:
        newest = db.execute(f"SELECT max(rowid) FROM {table}").fetchone()
        db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, *newest))
    with SQLiteCheckpointer(path).states as store:
        for work in (
            lambda: store.load("session"),
            lambda: store.list("session"),
            lambda: store.verify(),
            lambda: store.usage(),
        ):
            quietly(work)


_META = CheckpointMetadata(
    checkpoint_id="c", session_id="s", timestamp=datetime(2026, 1, 1, tzinfo=UTC), node_name="n", step=1
)


@target(lambda: [json.dumps(Checkpoint(_META, {"a": (1, b"x")}).to_dict()).encode()], is_json=True)
def flow_checkpoint(data: bytes) -> None:
    """A checkpoint in the form that programs exchange."""
    found = parsed(data)
    if isinstance(found, dict):
        Checkpoint.from_dict(found)


# ---- Training ----


@cache
def _run() -> Path:
    """A run with one step, as it is stored."""
    root = folder("run-made")
    array = numpy.arange(12, dtype="f4").reshape(3, 4)
    state = {"w": array, "view": array[1:], "b": numpy.float64(2), "epoch": 3, "t": (1, "x"), "big": 1 << 80, 5: b"x"}
    save_checkpoint(root, 1, state, metrics={"loss": 0.5}, best_key="loss", metadata={"note": "n"}, rng=False, pin=True)
    return root


def _step() -> Path:
    return _run() / "step-00000001"


def _fresh_run() -> Path:
    place = folder("runs") / "run"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(_run(), place)
    return place


_DIGEST = re.compile(rb',"manifest_digest":"[^"]*"\}\n\Z')


def _sealed(data: bytes) -> bytes:
    """A manifest behind its digest."""
    text = _DIGEST.sub(b"", data)
    return text + b',"manifest_digest":"' + digests.digest(text, "blake3").encode() + b'"}\n'


@target(lambda: [(_step() / "manifest.json").read_bytes()], is_json=True)
def training_manifest(data: bytes) -> None:
    for each in (data, _sealed(data)):
        try:
            found = manifest.decode(each, "a manifest")
        except manifest.Damaged:
            continue
        manifest.Brief.of(found)
        found.encode()
        _ = found.timestamp, found.state_file, found.index_file, found.total_bytes, found.score("loss", "min")
    manifest.is_foreign(data)


@target(lambda: [(_step() / "manifest.json").read_bytes()], is_json=True, is_slow=True)
def training_checkpoint(data: bytes) -> None:
    """A whole checkpoint with another manifest, loaded, listed and verified."""
    run = _fresh_run()
    (run / "step-00000001" / "manifest.json").write_bytes(_sealed(data))
    _use_run(run)


@target(lambda: [(_step() / "state.json").read_bytes()], is_json=True, is_slow=True)
def training_state(data: bytes) -> None:
    """A whole checkpoint with another `state.json`, of which the manifest has the digest."""
    run = _fresh_run()
    path = run / "step-00000001" / "state.json"
    path.unlink()  # it may be linked
    path.write_bytes(data)
    told = read_manifest(path.parent)
    entry = told.files["state.json"]._replace(bytes=len(data), digest=digests.digest(data, told.digest_algorithm))
    path.with_name("manifest.json").unlink()
    path.with_name("manifest.json").write_bytes(replace(told, files={**told.files, "state.json": entry}).encode())
    _use_run(run)


def _use_run(run: Path) -> None:
    manager = TrainingManager(run)
    for work in (
        lambda: load_checkpoint(run),
        lambda: load_checkpoint(run, mmap=True, verify=False),
        lambda: load_checkpoint(run, only=["w"]),
        lambda: load_checkpoint(run, weights_only=True),
        lambda: manager.history(),
        lambda: manager.best(),
        lambda: manager.verify(),
        lambda: FolderRunStore(run).page(5),
    ):
        quietly(work)


_RUN_FILES = ("last", "best.json", ".holdfast/pins.json")


@target(lambda: [name.encode() + SEPARATOR + (_run() / name).read_bytes() for name in _RUN_FILES], is_json=True)
def training_marker(data: bytes) -> None:
    name, content = parts(data, 2)
    if name.decode("utf-8", "replace") not in _RUN_FILES:
        return
    for each in (marker.is_ours, partial(marker.decode, where="a marker")):
        quietly(partial(each, content))
    store = FolderRunStore(folder("markers"))
    path = store.path / name.decode()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    for work in (store.best_marker, store.last_marker, store.pinned, lambda: store.get("best")):
        quietly(work)


def _leaves() -> list[bytes]:
    values = (b"x", float("nan"), (1, 2), {1, 2}, 1 << 80, datetime(2026, 1, 1), {1: 2}, numpy.float32(1))
    return [json.dumps(leaves.encode(value, "value")).encode() for value in values]


@target(_leaves, is_json=True)
def training_leaf(data: bytes) -> None:
    found = parsed(data)
    if isinstance(found, dict) and len(found) == 1:
        [(tag, value)] = found.items()
        if tag.startswith("$"):
            leaves.is_plain(tag, value)
            leaves.decode(tag, value)


# ---- Indexing ----


def _indexing() -> bytes:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    made = IndexingCheckpoint(
        session_id=UUID(int=1), project_path=folder("project"), start_time=moment, last_checkpoint=moment,
        files_discovered=3, errors=[{"a": "b"}], current_batch_id=UUID(int=2), fingerprint={"a": 1},
    )  # fmt: skip
    manager = CheckpointManager(folder("project"), "p", folder("indexing-made"))
    manager.add(made)
    [path] = list(folder("indexing-made").rglob("*.json"))
    return path.read_bytes()


@target(lambda: [_indexing()], is_json=True)
def indexing_checkpoint(data: bytes) -> None:
    manager = CheckpointManager(folder("project"), "p", folder("indexing"))
    try:
        values = json.loads(data)
        values["checksum"] = digest("checkpoint", {key: each for key, each in values.items() if key != "checksum"})
        data = json.dumps(values).encode()
    except Exception:  # not everything has a checksum
        pass
    path = manager.checkpoint_file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    manager.stored()
    manager._load()


@target(lambda: [sparse_vectors.pack({1: 0.5, 70_000: -2.0}), vectors.pack_floats([1.0, 2.0])])
def index_vector(data: bytes) -> None:
    """A stored vector of a whole number of places. Numbers that overflow are warnings of NumPy, not errors."""
    with numpy.errstate(all="ignore"):
        sparse_vectors.unpack(data[: len(data) // 8 * 8])
        sparse_vectors.sketch(data[: len(data) // 8 * 8])
        vectors.derive(data[: len(data) // 4 * 4], vectors.Shape(2, "float32"))


@target(lambda: [b'{"dense": [3, "float32"], "sparse": [0, "sparse"]}'], is_json=True)
def index_shapes(data: bytes) -> None:
    vectors.shapes_from_json(parsed(data))
