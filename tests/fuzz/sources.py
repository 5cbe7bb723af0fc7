"""What other programs wrote: the sources that can be imported, configuration, git notes; and what people type."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sqlite3
import zlib
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zlib import crc32

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send

from fuzz.target import SEPARATOR, folder, parts, quietly, target
from holdfast.adapters.langgraph.classes import Classes
from holdfast.durable.files import parse_toml
from holdfast.errors import HoldfastError
from holdfast.escaping import escape, unescape, unescape_path, without_password
from holdfast.importers import ImportRequest, open_import
from holdfast.importers.langgraph_values import ValueReader
from holdfast.importers.model import Losses
from holdfast.project.features import read_features
from holdfast.project.git_reset import BranchMove
from holdfast.project.rollback import RollbackEntry, RollbackJournal
from holdfast.serde import Registry
from holdfast.shadowgit.objects import KIND_NAMES, ObjectKind, TreeEntry, encode_commit, encode_tree
from holdfast.times import parse_time
from holdfast.workspace.config import in_force, read_settings
from holdfast.workspace.notes.trace import authors_of, encode_trace, is_ours, is_same, split_note
from unit.importers import graphs, test_claude_code, test_codeweaver, test_skill

# ---- Importers ----


def _import(kind: str, source: Path, target: str | None, *, runs: bool = True) -> None:
    """Plan an import and do it, as the command does."""
    area = folder(f"import-{kind}")
    store = area / "store"
    shutil.rmtree(store, ignore_errors=True)
    options = {"store": store, "home": area, "environ": {}} if target is None else {}
    opened = open_import(ImportRequest(os.fspath(source), target, workspace_options=options), kind=kind)
    try:
        opened.plan()
        if runs:
            opened.run()
    finally:
        opened.close()


def _target(name: str, *, is_database: bool = False) -> str:
    """An empty place to import into."""
    area = folder(f"target-{name}")
    for path in list(area.iterdir()):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return f"sqlite:///{area}/states.db" if is_database else os.fspath(area / "target")


@target(lambda: [json.dumps(test_codeweaver.VALUES).encode()], is_json=True)
def codeweaver_file(data: bytes) -> None:
    path = folder("codeweaver") / "checkpoint_shop-0123abcd.json"
    path.write_bytes(data)
    _import("codeweaver", path.parent, _target("codeweaver"))


@target(lambda: [json.dumps(test_skill.record(1, "0" * 40)).encode()], is_json=True, is_slow=True)
def skill_record(data: bytes) -> None:
    project = folder("skill")
    place = project / ".claude" / "checkpoints" / "checkpoint-1"
    place.mkdir(parents=True, exist_ok=True)
    (place / "metadata.json").write_bytes(data)
    (place / "feature_list.json").write_bytes(data)
    _import("skill", project, None)


@target(
    lambda: [
        b'{"features": [{"id": "a", "status": "done"}, {"name": "b", "done": false}], "current": "b"}',
        b'{"a": {"status": "in progress"}}',
        b'["x"]',
    ],
    is_json=True,
)
def feature_list(data: bytes) -> None:
    read_features(data, "feature_list.json")


def _rollback() -> bytes:
    place = folder("rollback-made")
    (place / "holdfast").mkdir()
    move = BranchMove("refs/heads/main", "1" * 40, "2" * 40)
    RollbackJournal(place).open(RollbackEntry("rollback", "a1", 3, move))
    return (place / "holdfast" / "rollback.json").read_bytes()


@target(lambda: [_rollback()], is_json=True)
def rollback_journal(data: bytes) -> None:
    store = folder("rollback")
    (store / "holdfast").mkdir(exist_ok=True)
    (store / "holdfast" / "rollback.json").write_bytes(data)
    RollbackJournal(store).read()


@cache
def _claude() -> test_claude_code.Claude:
    made = test_claude_code.Claude(folder("claude-home"), folder("claude-project"))
    made.prompt("m1", "fix the bug\nplease")
    made.snapshot("m1", {})
    made.delta("m1", "src/a.py", made.copy("src/a.py", 1, "one\n"))
    made.prompt("m2", "now the tests")
    made.snapshot("m2", {"src/a.py": made.copy("src/a.py", 2, "two\n"), "new.py": made.copy("new.py", 1, None)})
    return made


def _transcripts() -> list[bytes]:
    lines = _claude().transcript.read_bytes().splitlines(keepends=True)
    return [b"".join(lines), *(SEPARATOR.join([b"".join(lines[:at]), lines[at]]) for at in range(3, len(lines)))]


@target(_transcripts, is_json=True, is_slow=True)
def claude_code_history(data: bytes) -> None:
    transcript = _claude().transcript
    transcript.write_bytes(data.replace(SEPARATOR, b""))
    _import("claude-code", transcript, os.fspath(folder("claude-project")))


_GIT_PARTS = (ObjectKind.COMMIT, ObjectKind.TREE, ObjectKind.BLOB)


def _git_objects() -> list[bytes]:
    blob = b"content\n"
    tree = encode_tree([TreeEntry(0o100644, b"a.txt", _git_id(ObjectKind.BLOB, blob))])
    commit = encode_commit(_git_id(ObjectKind.TREE, tree), seconds=1_700_000_000, message="[12] before a tool")
    encoded = commit.replace(b"\n\n", b"\nparent " + b"1" * 40 + b"\nencoding latin-1\n\n", 1)
    found = [SEPARATOR.join((head, commit, tree, blob)) for head in (b"", b"reflog")]
    return [*found, SEPARATOR.join((b"", encoded, tree, blob))]


def _git_id(kind: ObjectKind, data: bytes) -> bytes:
    return sha1(b"%s %d\0" % (KIND_NAMES[kind], len(data)) + data).digest()


@target(_git_objects, is_slow=True)
def shadow_repository(data: bytes) -> None:
    """A commit, a tree and a blob of somebody else's repository, each under its own id; the commit names the tree of
    the seed, which then may be missing."""
    how, *objects = parts(data, 4)
    git = folder("shadow") / ".git"
    shutil.rmtree(git, ignore_errors=True)
    for kind, content in zip(_GIT_PARTS, objects, strict=True):
        name = _git_id(kind, content).hex()
        path = git / "objects" / name[:2] / name[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(zlib.compress(b"%s %d\0" % (KIND_NAMES[kind], len(content)) + content))
        if kind is ObjectKind.COMMIT:
            commit = name
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "refs" / "heads" / "main").write_text(f"{commit}\n")
    (git / "config").write_text(f"[core]\n\trepositoryformatversion = 0\n\tworktree = {folder('shadow-project')}\n")
    (git / "HEAD").write_bytes(how + b"\n" if how and how != b"reflog" else b"ref: refs/heads/main\n")
    (git / "logs").mkdir()
    (git / "logs" / "HEAD").write_bytes(b"0" * 40 + b" " + commit.encode() + b" A <a@b> 1 +0000\t" + how)
    _import("shadow-git", git, os.fspath(folder("shadow-project")))


@cache
def _reader() -> ValueReader:
    return ValueReader(Classes(Registry()))


_GRAPH_VALUES: tuple[Any, ...] = (
    {"a": [1, None, "x", b"y"]}, datetime(2026, 1, 1, tzinfo=UTC), {1, 2}, timedelta(1), Send("node", {"a": 1}),
    [Path("/a")], graphs.__doc__,
)  # fmt: skip


def _typed_values() -> list[bytes]:
    serde = JsonPlusSerializer(pickle_fallback=False)
    found = [serde.dumps_typed(value) for value in _GRAPH_VALUES]
    old = json.dumps({"lc": 2, "type": "constructor", "id": ["builtins", "set"], "args": [[1, 2]]}).encode()
    older = json.dumps({"lc": 1, "type": "constructor", "id": ["x", "HumanMessage"], "kwargs": {"content": "a"}})
    found += [("json", old), ("json", older.encode()), ("pickle", pickle.dumps({"a": (1, 2)}))]
    return [kind.encode() + SEPARATOR + value for kind, value in found]


@target(_typed_values, is_json=True)
def langgraph_value(data: bytes) -> None:
    kind, value = parts(data, 2)
    _reader().read(kind.decode("utf-8", "replace"), value, Losses())
    quietly(lambda: _reader().read_json(value, Losses()))


def _graph_checkpoints() -> list[bytes]:
    checkpoint = {
        "v": 4, "id": "1ef", "ts": "2026-01-01T00:00:00+00:00", "channel_values": {"a": 1, "b": [1]},
        "channel_versions": {"a": 1, "b": 2}, "versions_seen": {"n": {"a": 1}}, "updated_channels": ["a"],
    }  # fmt: skip
    metadata = json.dumps({"source": "loop", "step": 1, "parents": {}, "writes": {"n": 1}}).encode()
    serde = JsonPlusSerializer(pickle_fallback=False)
    return [
        SEPARATOR.join((b"json", json.dumps(checkpoint).encode(), metadata)),
        SEPARATOR.join((b"msgpack", serde.dumps_typed(checkpoint)[1], metadata)),
        SEPARATOR.join((b"json", json.dumps(checkpoint | {"v": 1}).encode(), metadata)),
    ]


@target(_graph_checkpoints, is_json=True, is_slow=True)
def langgraph_tables(data: bytes) -> None:
    kind, checkpoint, metadata = parts(data, 3)
    path = folder("langgraph") / "graph.db"
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT,"
            " parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB)"
        )
        db.execute(
            "CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, task_id TEXT, idx INTEGER,"
            " channel TEXT, type TEXT, value BLOB)"
        )
        text = kind.decode("utf-8", "replace")
        db.execute("INSERT INTO checkpoints VALUES ('t', '', '1ef', '1ee', ?, ?, ?)", (text, checkpoint, metadata))
        db.execute("INSERT INTO writes VALUES ('t', '', '1ef', 'k', 0, 'a', ?, ?)", (text, checkpoint))
        db.execute("INSERT INTO writes VALUES ('t', '', '1ee', 'k', 0, '__pregel_tasks', ?, ?)", (text, checkpoint))
    db.close()
    _import("langgraph", path, _target("langgraph", is_database=True))


_STATE = json.dumps({"messages": [{"__class__": "Message", "role": "user"}], "n": 1}).encode()
_LONG = ("c1", "s", "r", "2026-01-01 00:00:00", "node", "before", 1, '["a"]', 1, "d")


def _llmfy_rows() -> list[bytes]:
    states = (_STATE, zlib.compress(_STATE), pickle.dumps({"a": 1}))
    return [SEPARATOR.join((_LONG[3].encode(), _LONG[7].encode(), state)) for state in states]


@target(_llmfy_rows, is_json=True, is_slow=True)
def llmfy_row(data: bytes) -> None:
    when, fields, state = parts(data, 3)
    path = folder("llmfy") / "states.db"
    path.unlink(missing_ok=True)
    names = (
        "checkpoint_id", "session_id", "run_id", "created_at", "node", "prev_node", "step", "updated_fields", "attempt",
        "dispatch_id",
    )  # fmt: skip
    with sqlite3.connect(path) as db:
        db.execute(f"CREATE TABLE llmfy_checkpoint ({', '.join(names)}, state)")
        row = [*_LONG[:3], when.decode("utf-8", "replace"), *_LONG[4:7], fields.decode("utf-8", "replace"), *_LONG[8:]]
        db.execute(f"INSERT INTO llmfy_checkpoint VALUES ({', '.join('?' * 11)})", [*row, state])
        text = state.decode("utf-8", "replace")
        db.execute(f"INSERT INTO llmfy_checkpoint VALUES ({', '.join('?' * 11)})", ["c2", *row[1:], text])
    db.close()
    _import("llmfy", path, _target("llmfy", is_database=True))


_SIDES = ("last", "best.json", "index.json", "checkpoint-1.meta.json", "checkpoint-1.pkl")


def _sides() -> list[bytes]:
    best = b'{"items": [{"path": "checkpoint-1.pkl", "metric": 0.5}], "best_k": 1, "metric_key": "loss", "mode": "min"}'
    side = b'{"created_at": "2026-01-01T00:00:00", "metrics": {"loss": 0.5}, "schema_version": 1, "epoch": 3}'
    content = pickle.dumps({"state": {"w": [1.0, 2.0]}, "meta": {"schema_version": 1}, "optimizer_state": {}})
    return [
        SEPARATOR.join((b"checkpoint-1.pkl", best, best, side, content)),
        SEPARATOR.join((b"", b"", b"", b"", content)),
    ]


@target(_sides, is_json=True, is_slow=True)
def training_folder(data: bytes) -> None:
    """Files of `codex_ml`, none of which needs torch."""
    source = folder("training-source")
    for name, content in zip(_SIDES, parts(data, len(_SIDES)), strict=True):
        (source / name).write_bytes(content)
    _import("training", source, _target("training"))


def _safetensors() -> list[bytes]:
    import numpy
    from safetensors.numpy import save

    return [save({"w": numpy.arange(4, dtype="f4"), "b": numpy.zeros((2, 0), dtype="i8")}, {"format": "pt"})]


@target(_safetensors, is_slow=True, needs="torch")
def safetensors_file(data: bytes) -> None:
    source = folder("safetensors-source")
    (source / "model-1.safetensors").write_bytes(data)
    _import("training", source, _target("safetensors"))


# ---- Configuration, notes, what people type ----

_TOML = b"""
exclude_patterns = ["*.log"]
ignored_file_max_bytes = "10 MiB"
watch = true
check = "make test"
check_timeout = "10m"
[retention]
keep_last = 10
keep_for = "30d"
[retention.types]
tool = 3
manual = "forever"
[thinning]
keep_for = "7d"
max_bytes = "1 GiB"
[index]
a.b = [1, {c = 2026-01-01T00:00:00Z}]
"""


@target(lambda: [_TOML, b"thinning = false\n[retention]\nkeep_every = 2\n"])
def configuration_file(data: bytes) -> None:
    place = folder("configuration")
    (place / "holdfast.toml").write_bytes(data)
    in_force(read_settings(place))


@target(lambda: [b"[tool.holdfast]\nwatch = true\n[project]\nname = 'x'\n"])
def pyproject_file(data: bytes) -> None:
    place = folder("pyproject")
    (place / "pyproject.toml").write_bytes(data)
    read_settings(place)


@target(lambda: [_TOML, b"a" + b".b" * 500 + b"=1"], may_raise=(ValueError,))
def toml(data: bytes) -> None:
    parse_toml(data)


def _note() -> bytes:
    author = {
        "contributor": {"type": "ai", "model_id": "anthropic/claude"},
        "holdfast": {"actor": "a", "perhaps": ["b"]},
    }
    ranges = [{"start_line": 1, "end_line": 3, "content_hash": "sha256:00"}]
    files = [{"path": "a.py", "conversations": [author | {"ranges": ranges}, author | {"ranges": []}]}]
    trace = {"version": "0.1", "id": "1", "timestamp": "2026", "vcs": {"type": "git"}, "tool": {"name": "holdfast"}}
    return encode_trace(trace | {"files": files})


@target(lambda: [_note(), b"Reviewed-by: somebody\n" + _note() + b'{"of": "others"}\n'], is_json=True)
def git_note(data: bytes) -> None:
    found, _ = split_note(data)
    if found is not None:
        authors_of(found)
        is_same(found, found)
    is_ours(found)


_NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@target(
    lambda: [
        each.encode()
        for each in (
            "10m",
            "14:05",
            "yesterday",
            "2026-11-01",
            "2026-11-01T10:00+02:00",
            "1h 30m ago",
            "2026-01-01T00:00:00Z",
        )
    ]
)
def typed_time(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for zone in (UTC, None):
        parse_time(text, now=_NOW, zone=zone)


@target(lambda: [rb"a\\b\n\x41\u00e9\U0001f600", b"postgres://user:pass@host/db?sslpassword=x&a=b"])
def typed_path(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    escape(text)
    without_password(text)
    for read in (unescape, unescape_path):
        try:
            read(text)
        except HoldfastError:
            continue


@target(lambda: [b"limit=5&before=a1&path=a.txt&at=a.1.0&start=3&text=x"], needs="starlette", is_slow=True)
def page_address(data: bytes) -> None:
    """What stands in an address after `?`; an error that is not answered is raised here."""
    from holdfast.web.app import PAGES  # of `.[ui]`

    pages, addresses = _pages(), [path for path in PAGES if path.startswith("/w/")]
    path = addresses[crc32(data) % len(addresses)].replace("{key}", pages.key)  # another for each input
    pages.client.get(f"{path}?{quote(data, safe='%&=+.;-')}")


@cache
def _pages() -> Any:
    from fuzz.stored import saved_workspace
    from web.conftest import make_pages

    return make_pages(saved_workspace(), {"HOME": os.fspath(folder("page-home"))})
