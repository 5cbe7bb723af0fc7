"""What a workspace's store contains: git objects, records, states, journals, caches; and the user's git."""

from __future__ import annotations

import os
import shutil
import subprocess
import zlib
from datetime import UTC, datetime
from functools import cache
from hashlib import sha1
from pathlib import Path

from fuzz.target import SEPARATOR, folder, parts, quietly, target
from holdfast import Workspace
from holdfast.model import Checkpoint, GitHead, Operation, Reason, Uncovered
from holdfast.retention import Policy
from holdfast.scan import attrs, ignore, user_git
from holdfast.scan import cache as scan_cache
from holdfast.scan.git_index import read_index, staged_objects
from holdfast.scan.git_refs import decode_git_refs, encode_git_refs, read_git_refs
from holdfast.shadowgit import ObjectKind, TreeEntry
from holdfast.shadowgit.objects import (
    decode_commit,
    decode_lineage,
    decode_tree,
    encode_commit,
    encode_tree,
    find_entry,
    raw_entries,
    real_name,
    store_name,
)
from holdfast.shadowgit.packs import Pack, PackWriter, apply_delta, index_lone_packs
from holdfast.shadowgit.refs import Refs
from holdfast.workspace.restore.journal import Journal, JournalEntry
from holdfast.workspace.store_paths import read_owner
from holdfast.workspace.stored.attribution import TurnKey
from holdfast.workspace.stored.record import decode_record, decode_uncovered, encode_record, encode_uncovered
from holdfast.workspace.stored.turn_log import TurnLog
from holdfast.workspace.upkeep.purge_journal import PurgeInProgress, read_begun, write_begun

# ---- Git objects ----

_OIDS = [bytes([number]) * 20 for number in range(4)]


def _trees() -> list[bytes]:
    entries = [
        TreeEntry(0o100644, b"a.txt", _OIDS[0]),
        TreeEntry(0o040000, b"folder", _OIDS[1]),
        TreeEntry(0o120000, store_name(b".git", is_link=True), _OIDS[2]),
        TreeEntry(0o100755, "ü \n%25".encode(), _OIDS[3]),
    ]
    return [encode_tree(entries), encode_tree([])]


@target(_trees)
def git_tree(data: bytes) -> None:
    for entry in decode_tree(data):
        real_name(entry.name)
        store_name(entry.name, is_link=True)
    raw_entries(data)
    find_entry(data, [b"a.txt", b"folder"])


@target(lambda: [encode_commit(_OIDS[0], seconds=1_700_000_000, message="saved")])
def git_commit(data: bytes) -> None:
    decode_lineage(data)
    decode_commit(data)


@cache
def _packs() -> list[tuple[bytes, bytes]]:
    """Pairs of an index and a pack: as Holdfast writes them, and with deltas of both kinds, as git does."""
    found = []
    own = folder("packs-made")
    writer = PackWriter(own, has=lambda oid: False)
    blob = writer.add(ObjectKind.BLOB, b"content\n" * 20)
    writer.add(ObjectKind.TREE, encode_tree([TreeEntry(0o100644, b"a", blob)]))
    writer.add(ObjectKind.BLOB, b"")
    name = writer.commit()
    found.append(((own / f"{name}.idx").read_bytes(), (own / f"{name}.pack").read_bytes()))
    base, delta = b"0123456789" * 10, bytes([100, 60, 0x90 | 0x80, 50, 10]) + b"abcdefghij"
    for header in (b"", sha1(b"blob 100\0" + base).digest()):
        found.append(_pack_with_delta(base, delta, header))
    return found


def _pack_with_delta(base: bytes, delta: bytes, name: bytes) -> tuple[bytes, bytes]:
    """A pack of an object and a delta on it: by its name, or by its place if that is empty."""
    from holdfast.shadowgit.objects import entry_header, object_id
    from holdfast.shadowgit.packs import index_file

    whole = entry_header(3, len(base)) + zlib.compress(base)
    start = 12 + len(whole)
    reference = name or bytes([len(whole)])
    second = entry_header(7 if name else 6, len(delta)) + reference + zlib.compress(delta)
    body = b"PACK\0\0\0\2\0\0\0\2" + whole + second
    made = object_id(ObjectKind.BLOB, base[:50] + b"abcdefghij")
    added = {object_id(ObjectKind.BLOB, base): (12, zlib.crc32(whole)), made: (start, zlib.crc32(second))}
    checksum = sha1(body).digest()
    return index_file(added, checksum), body + checksum


def _read_pack(index: bytes, pack: bytes) -> None:
    """Read all that a pack has, by each of the ways that the store has."""
    own = folder("packs-read")
    path = own / "pack-1.idx"
    path.write_bytes(index)
    (own / "pack-1.pack").write_bytes(pack)
    one = Pack(path)
    quietly(lambda: list(one.checksum_problems()))
    for oid in one.oids():
        one.find(oid)
        one.is_sound(oid)
    for way in (one.entries, lambda: list(one.contents())):
        quietly(way)
    for oid in one.oids():
        offset = one.find(oid)
        if offset is not None:
            quietly(lambda offset=offset: one.inflate(one.header(offset)))
    _read_store(own)


def _read_store(packs: Path) -> None:
    """The same through the object store, which follows deltas."""
    from holdfast.shadowgit import ObjectStore

    git = folder("store-read")
    shutil.rmtree(git / "objects", ignore_errors=True)
    shutil.copytree(packs, git / "objects" / "pack")
    store = ObjectStore(git)
    try:
        for oid in Pack(packs / "pack-1.idx").oids():
            quietly(lambda oid=oid: store.read(oid))
            store.has_sound(oid)
    finally:
        store.close()


@target(lambda: [index for index, _ in _packs()])
def pack_index(data: bytes) -> None:
    sealed = data[:-20] + sha1(data[:-20]).digest()  # behind the checksum
    for _, pack in _packs():
        quietly(lambda pack=pack: _read_pack(sealed, pack))


@target(lambda: [pack for _, pack in _packs()])
def pack(data: bytes) -> None:
    for index, _ in _packs():
        quietly(lambda index=index: _read_pack(index, data))
    own = folder("packs-lone")
    for path in own.iterdir():
        path.unlink()
    (own / "pack-2.pack").write_bytes(data[:-20] + sha1(data[:-20]).digest())
    index_lone_packs(own)


@target(lambda: [bytes([100, 60, 0x90 | 0x80, 50, 10]) + b"abcdefghij", bytes([100, 50, 0x90, 50])])
def delta(data: bytes) -> None:
    apply_delta(b"0123456789" * 10, data)


@target(
    lambda: [
        b"# pack-refs with: peeled fully-peeled sorted \n" + b"1" * 40 + b" refs/tags/20260101-1\n^" + b"2" * 40 + b"\n"
    ]
)
def packed_refs(data: bytes) -> None:
    git = folder("refs")
    (git / "packed-refs").write_bytes(data)
    refs = Refs(git)
    _ = refs.exists, refs.packed_refs_problem()
    for name in refs.refs():
        quietly(lambda name=name: refs.ref(name))


@target(lambda: [b"1" * 40 + b"\n"])
def loose_ref(data: bytes) -> None:
    git = folder("loose-refs")
    (git / "refs" / "tags").mkdir(parents=True, exist_ok=True)
    (git / "refs" / "tags" / "one").write_bytes(data)
    refs = Refs(git)
    refs.refs()
    refs.ref("one")


# ---- Records of a checkpoint ----


def _checkpoint() -> Checkpoint:
    return Checkpoint(
        id="20260101-120000-1", sequence=1, message="a message", timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        name="named", session="s", actor="claude-code", step=3, parent=None, metadata={"a": [1, {"b": None}]},
        pinned=True, complete=False, quiet=False, operation=Operation("restore", "20260101-110000-1", ("a", "b")),
        purged=("a.txt",), commit="1" * 40, git=GitHead("2" * 40, "main"), _lazy=None,
    )  # fmt: skip


@target(lambda: [encode_record(_checkpoint())], is_json=True)
def record(data: bytes) -> None:
    found = decode_record(data, commit="1" * 40, lazy=None)
    encode_record(found)


@target(lambda: [encode_uncovered([Uncovered("a", Reason.UNREADABLE, "why")])], is_json=True)
def uncovered(data: bytes) -> None:
    decode_uncovered(data)


def _now() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC)


@cache
def _saved() -> tuple[Workspace, bytes, dict[bytes, tuple[int, bytes]]]:
    """A real checkpoint of a folder in git, with a state; its commit, and the parts of its tree."""
    area = folder("saved")
    root = area / "project"
    root.mkdir()
    environ = {**os.environ, "HOME": os.fspath(area), "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", "init", "-q", "-b", "main", root], check=True, env=environ)
    (root / "a.txt").write_text("first\n")
    (root / "inner").mkdir()
    (root / "inner" / "b.txt").write_text("second\n")
    (root / ".holdfastignore").write_text("*.log\n")
    workspace = Workspace(root, store=area / "store", home=area, environ={}, clock=_now)
    workspace.save("one", state={"plain": {"a": [1, "text"]}, "tagged": {"when": datetime(2026, 1, 1, tzinfo=UTC)}})
    (root / "a.txt").write_text("changed\n")
    saved = workspace.save("two", state={"plain": {"a": [1, "text", 2]}, "tagged": (1, b"bytes", {3})})
    objects = workspace._repository.objects
    commit = objects.commit(bytes.fromhex(saved.commit))
    entries = {entry.name: (entry.mode, entry.oid) for entry in objects.tree(decode_commit(commit))}
    return workspace, commit, entries


def _parts_of_record() -> list[bytes]:
    """Each part of a record that is a file, after its name."""
    workspace, _, entries = _saved()
    objects = workspace._repository.objects
    found = []
    for name, (mode, oid) in entries.items():
        if mode == 0o100644:
            found.append(name + SEPARATOR + objects.blob(oid))
        else:
            found.append(name + SEPARATOR + b"".join(b"%o %s\0%s" % each for each in objects.tree(oid)))
    return found


@target(_parts_of_record, is_json=True, is_slow=True)
def checkpoint_part(data: bytes) -> None:
    """Everything that is done with a checkpoint, with one part of it replaced."""
    name, content = parts(data, 2)
    workspace, _, entries = _saved()
    if name not in entries:
        return
    repository = workspace._repository
    before = set(repository.objects.ref_names())
    folder_ = repository.objects.pack_folder
    packs = set(os.listdir(folder_))
    writer = repository.objects.writer()
    mode = entries[name][0]
    oid = writer.add(ObjectKind.BLOB if mode == 0o100644 else ObjectKind.TREE, content)
    changed = {**entries, name: (mode, oid)}
    tree = encode_tree([TreeEntry(mode, key, oid) for key, (mode, oid) in changed.items()])
    commit = writer.add(ObjectKind.COMMIT, encode_commit(writer.add(ObjectKind.TREE, tree), seconds=1, message="x"))
    writer.commit()
    repository.objects.refresh()
    newest = workspace.list(1)[0].id
    old = repository.objects.ref(newest)
    repository.objects.set_ref(newest, commit)
    try:
        _use(workspace)
    finally:
        repository.objects.set_ref(newest, old)
        assert set(repository.objects.ref_names()) == before
        for left in set(os.listdir(folder_)) - packs:
            (folder_ / left).unlink()
        repository.objects.refresh()


def _use(workspace: Workspace) -> None:
    """Read a store in all ways that a person has."""
    for work in (
        lambda: [(each.files_changed, each.uncovered, each.state) for each in workspace.list(5)],
        lambda: workspace.status(),
        lambda: workspace.turns(5),
        lambda: workspace.turn(),
        lambda: workspace.changes("latest"),
        lambda: workspace.diff("latest"),
        lambda: workspace.file("latest", "a.txt"),
        lambda: workspace.preview("latest"),
        lambda: workspace.preview_undo(),
        lambda: workspace.preview_redo(),
        lambda: workspace.search("text"),
        lambda: workspace.blame("a.txt"),
        lambda: workspace.why("a.txt"),
        lambda: workspace.git_losses(),
        lambda: workspace.verify(),
        lambda: workspace.usage(),
        lambda: workspace.secrets(),
        lambda: workspace.check_status(),
        lambda: workspace.kind_rules(),
        lambda: workspace.overview(),
        lambda: workspace.reviewed("latest"),
        lambda: workspace.interrupted_bisect,
        lambda: workspace.prune(Policy(keep_last=1)),
        lambda: workspace.traces(),
        lambda: workspace.moved_from,
    ):
        quietly(work)


# ---- The files beside the objects ----

_SECRET = b"aws_access_key_id = AKIAQYLPMN5HHHFPZAM2\naws_secret = 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\n"


@cache
def _store() -> tuple[Path, list[str]]:
    """A project and its store with as many files of its own as there are, and their names."""
    area = folder("store-made")
    root = area / "project"
    root.mkdir()
    (root / ".git" / "refs").mkdir(parents=True)
    (root / ".git" / "objects").mkdir()
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / "a.txt").write_text("first\n")
    workspace = Workspace(root, store=area / "store", home=area, environ={}, check_command="true", clock=_now)
    start = workspace.begin_turn(agent="claude-code", session="s", turn="t", prompt="do it")
    workspace.save("one", state={"plain": [1]})
    workspace.note_turn_change(start.number)
    (root / "secret.env").write_bytes(_SECRET)
    workspace.save("two")
    (root / "b.txt").write_text("more\n")
    workspace.save("three", name="kept")
    workspace.restore("latest~1")
    workspace.undo()
    workspace.allow_check("true")
    workspace.check("latest")
    workspace.set_kind_rules({"tool": Policy(keep_last=3)})
    workspace.mark_reviewed("latest", ["a.txt"])
    workspace.list(paths=["a.txt"])
    workspace.search("first")
    workspace.secrets()
    workspace.thin(Policy(keep_last=1))
    workspace.close()
    shutil.copytree(area / "store", area / "pristine")
    own = area / "store" / "holdfast"
    names = sorted(path.relative_to(own).as_posix() for path in own.rglob("*") if path.is_file())
    return area, [name for name in names if not name.endswith("lock")]


def _own_files() -> list[bytes]:
    area, names = _store()
    own = area / "pristine" / "holdfast"
    files = {name: (own / name).read_bytes() for name in names}
    files |= {"journal.json": _journal(), "purge.json": write_begun(_purge())}
    return [name.encode() + SEPARATOR + content for name, content in files.items()]


@target(_own_files, is_json=True, is_slow=True)
def own_file(data: bytes) -> None:
    """Everything that is done with a store, with one of its own files replaced."""
    name, content = parts(data, 2)
    area, names = _store()
    if name.decode("utf-8", "replace") not in (*names, "journal.json", "purge.json"):
        return
    shutil.rmtree(area / "store")
    shutil.copytree(area / "pristine", area / "store")
    (area / "store" / "holdfast" / os.fsdecode(name)).write_bytes(content)
    workspace = Workspace(
        area / "project", store=area / "store", home=area, environ={}, check_command="true", clock=_now
    )
    try:
        _use(workspace)
        (area / "project" / "a.txt").write_bytes(b"1" if (area / "project" / "a.txt").read_bytes() == b"0" else b"0")
        quietly(lambda: workspace.save("another"))
        quietly(lambda: workspace.begin_turn(agent="a", session="s", turn="t2"))
    finally:
        workspace.close()


def _purge() -> PurgeInProgress:
    return PurgeInProgress(["a.txt"], {b"\1" * 20}, True, {b"\2" * 20}, ((b"\3" * 20, 1, 2),))


@target(lambda: [write_begun(_purge())], is_json=True)
def purge_journal(data: bytes) -> None:
    read_begun(data)


def _journal() -> bytes:
    entry = JournalEntry(
        "restore", "20260101-1", "20260101-2", ["a"], ["b"], True, ".holdfast-restore-0123abcd", "/p", 1, 2
    )
    Journal(folder("journal-made")).open(entry)
    return (folder("journal-made") / "journal.json").read_bytes()


@target(lambda: [_journal()], is_json=True)
def restore_journal(data: bytes) -> None:
    (folder("journal") / "journal.json").write_bytes(data)
    found = Journal(folder("journal")).read()
    if found is not None:
        found.verb + found.target + found.safety + found.stage + found.root
        list(map(os.fspath, [*(found.paths or ()), *found.made]))
        found.inode + found.root_mtime_ns + (found.touch_ns or 0)


def _turns() -> list[bytes]:
    own = folder("turns-made")
    log = TurnLog(own)
    log.begin(TurnKey("claude-code", "s", "t"), "do it", at="2026-01-01T00:00:00+00:00", after=1, least=1)
    log.note_change(1)
    return [(own / "turns.jsonl").read_bytes(), *(own / "turns.jsonl").read_bytes().splitlines()]


@target(_turns, is_json=True)
def turn_log(data: bytes) -> None:
    own = folder("turns")
    (own / "turns.jsonl").write_bytes(data)
    for each in TurnLog(own).read():
        each.key, each.number + each.after


@target(lambda: [b'{"format": 1, "workspace": "/home/me/project"}'], is_json=True)
def store_owner(data: bytes) -> None:
    read_owner(data)


# ---- Scans ----


@target(
    lambda: [
        attrs.encode_line(0o100600, 1_700_000_000_123456789, b"", ".")
        + attrs.encode_line(0o100644, -1, b"owner=0:0,xattr.user.tag=Ymx1ZQ==,link=1,parts=5", "a %\n")
        + attrs.encode_line(0o020600, 0, b"device=1281,sparse", "tty")
    ]
)
def folder_attributes(data: bytes) -> None:
    for each in attrs.decode(data).values():
        _ = each.is_sparse, each.link, each.owner, each.parts_bytes, each.device, each.xattrs, each.without_link()


def _caches() -> list[bytes]:
    one = scan_cache.Folder("", (1, 2, 0o040755, 3, 4))
    status = os.stat(__file__)
    for name in ("a", "b"):
        one.insert(name, status, 0)
    one.rules = bytes(16)
    one.tree = one.attrs = bytes(range(20))
    one.folders, one.probes, one.skipped = ["inner"], ["c"], {"d": ("reason", "detail")}
    one.extras = {"a": b"owner=1:1"}
    other = scan_cache.Folder("inner", (1, 3, 0o040755, 1 << 70, 4))
    other.rules, other.tree, other.attrs = bytes(16), bytes(20), bytes(20)
    return [scan_cache.dump([one, other], {"packs": ["pack-1"]}), scan_cache.dump([], None)]


@target(_caches)
def scan_cache_file(data: bytes) -> None:
    """As it is, and behind its checksum: a cache is only believed if it is, to the last bit, what was written."""
    scan_cache.load(data)
    scan_cache.records_at(data)


def _index() -> list[bytes]:
    """Indexes of git's versions 2 and 4."""
    root = folder("index-made")
    environ = {**os.environ, "HOME": os.fspath(root), "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", "init", "-q", root], check=True, env=environ)
    for name in ("a", "ab", "abc/d"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(name)
    found = []
    for version in ("2", "4"):
        subprocess.run(["git", "-C", root, "add", "."], check=True, env=environ)
        subprocess.run(["git", "-C", root, "update-index", "--index-version", version], check=True, env=environ)
        found.append((root / ".git" / "index").read_bytes())
    return found


@target(_index)
def git_index(data: bytes) -> None:
    git = folder("index") / ".git"
    git.mkdir(exist_ok=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "index").write_bytes(data)
    for hash_bytes in (20, 32):
        read_index(git, hash_bytes=hash_bytes)
        staged_objects(data, hash_bytes=hash_bytes)
    user_git._index_names(git, "index")


_CONFIG = b"""[core]
\texcludesFile = "~/ignore \\"it\\" # not a comment"  ; one
[extensions]
\tobjectFormat = sha256
[include]
\tpath = config
[remote "origin \\"x\\""] url = x
"""


@target(lambda: [_CONFIG, b"\xef\xbb\xbf[a]b=\\\n c\n"])
def git_config(data: bytes) -> None:
    git = folder("config") / ".git"
    git.mkdir(exist_ok=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_bytes(data)
    user_git.own_settings(git)
    user_git.excludes_file(folder("config"), folder("config"), folder("config"))


_GIT_FILES = (
    "HEAD",
    "packed-refs",
    "logs/refs/stash",
    "refs/heads/main",
    "MERGE_HEAD",
    "commondir",
    "rebase-merge/onto",
)


def _git_files() -> list[bytes]:
    commit, other = b"1" * 40, b"2" * 40
    stash = commit + b" " + other + b" A <a@b> 1700000000 +0000\tWIP on main\n"
    packed = b"# pack-refs with: peeled \n" + commit + b" refs/tags/v1\n^" + other + b"\n"
    texts = (b"ref: refs/heads/main\n", packed, stash, commit + b"\n", other, b".", commit)
    return [SEPARATOR.join(texts), SEPARATOR.join([commit, *texts[1:]])]


@target(_git_files)
def git_refs(data: bytes) -> None:
    git = folder("git-refs")
    for name, content in zip(_GIT_FILES, parts(data, len(_GIT_FILES)), strict=True):
        path = git / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    found, _ = read_git_refs(git)
    decode_git_refs(encode_git_refs(found))


@target(
    lambda: [encode_git_refs(read_git_refs(_repository())[0])],
    is_json=True,
    may_raise=(ValueError, KeyError, TypeError),
)
def git_record(data: bytes) -> None:
    """`git.json`: its callers expect these errors."""
    decode_git_refs(data)


def _repository() -> Path:
    git_refs.run(_git_files()[0])
    return folder("git-refs")


_RULES = b"# one\n*.log\n!keep.log\n/build/\na/**/b\n[a-z[:digit:]!-]?.txt\n\\#x\\ \n**/*foo**bar*/\n"


@target(lambda: [_RULES, b"[!a-]]\n[[:alpha:]\n[\n\\\n***/\n*?*?*?*?*?*?*?*?*?x\n"])
def ignore_rules(data: bytes) -> None:
    rules = ignore.Rules.root(excludes_file=data).inside("", gitignore=data, repository=True, info_exclude=data)
    rules = rules.inside("folder", holdfastignore=data)
    for path in ("a.log", "folder/keep.log", "folder/" + "a" * 60, "a/x/b", "folder/ü [x]", "folder/build"):
        rules.decide(path, is_dir=False)
        rules.decide(path, is_dir=True)


def saved_workspace() -> Workspace:
    """A workspace with two checkpoints."""
    return _saved()[0]
