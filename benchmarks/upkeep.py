"""Upkeep, measured: the size of a store after fifty saves, against a shadow git repository after `git gc`.

    python benchmarks/upkeep.py            # size, and the time of compacting and of restoring from deltas
    python benchmarks/upkeep.py --many     # 100, 2,000 and 10,000 checkpoints: what is asked of them, and upkeep
    python benchmarks/upkeep.py --blame    # blame and the lines of a commit, with 10,000 checkpoints of 200 files
    python benchmarks/upkeep.py --large    # a file of 1 GiB, of which one byte changes, twenty times
    python benchmarks/upkeep.py --similar 200000   # small files that are alike, before and after `compact`

Everything happens in a temporary folder; the tree is a copy of Python's own library. Times are of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import Workspace
from holdfast.retention import Policy
from holdfast.shadowgit import FILE_MODE, ObjectKind, TreeEntry, encode_tree
from holdfast.shadowgit.git_repack import DEPTH, WINDOW
from holdfast.workspace.stored.ids import new_id
from holdfast.workspace.stored.record import encode_record, read_contents, write_commit
from report import verdict

ROUNDS = 50
FILES_A_ROUND = 5
LARGE_MIB, LARGE_SAVES = 1024, 20
COUNTS = (100, 2_000, 10_000)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--many", action="store_true", help="measure many checkpoints instead of sizes")
    parser.add_argument("--blame", action="store_true", help="measure who wrote which lines instead of sizes")
    parser.add_argument("--large", action="store_true", help="measure one large file instead of sizes")
    parser.add_argument("--similar", type=int, metavar="FILES", help="measure many small files that are alike")
    options = parser.parse_args()
    similar = partial(_similar, count=options.similar) if options.similar else None
    chosen = {_many: options.many, _large: options.large, _blame: options.blame, _sizes: True}
    measure = similar or next(each for each, wanted in chosen.items() if wanted)
    with tempfile.TemporaryDirectory(prefix="holdfast-upkeep-") as area:
        for label, value in measure(Path(area)):
            print(f"{label:<58} {value:>16}", flush=True)


# sizes


def _sizes(area: Path) -> Iterator[tuple[str, str]]:
    tree = area / "tree"
    ignored = shutil.ignore_patterns("__pycache__", "site-packages", "*.pyc", "*.so", "*.a")
    shutil.copytree(sysconfig.get_path("stdlib"), tree, ignore=ignored, symlinks=True)
    ws, shadow = _open(area, tree), area / "shadow.git"
    _git(shadow, tree, "init", "-q")
    for number in range(ROUNDS + 1):
        if number:
            _edit(tree, random.Random(number))
        ws.save(f"save {number}")
        _git(shadow, tree, "add", "-A")
        _git(shadow, tree, "commit", "-q", "--allow-empty", "-m", f"save {number}")
    yield "files", f"{sum(len(names) for _, _, names in os.walk(tree)):,}"
    yield f"store after {ROUNDS + 1} saves", _bytes(store := _size(ws.store))
    seconds, _ = _timed(lambda: _git(shadow, tree, "gc", "-q", "--prune=now"))
    yield f"shadow git after `git gc` ({seconds:.1f} s)", _bytes(git := _size(shadow))
    before = _restored(ws)
    seconds, _ = _timed(ws.compact)
    yield f"store after `compact`, window {WINDOW}, depth {DEPTH} ({seconds:.1f} s)", _bytes(after := _size(ws.store))
    yield "of which packs", _bytes(_size(ws.store / "objects"))
    yield "store / shadow git", f"{after / git:.3f} {verdict(after / git, 1.1)}"
    yield "store / store before", f"{after / store:.3f}"
    yield "restore to the first save, from whole objects", f"{before:.2f} s"
    yield "restore to the first save, from deltas", f"{_restored(ws):.2f} s"


def _large(area: Path) -> Iterator[tuple[str, str]]:
    """One large file of chance, of which a byte changes somewhere."""
    tree = area / "tree"
    tree.mkdir()
    with open(tree / "large.bin", "wb") as file:
        for _ in range(LARGE_MIB):
            file.write(os.urandom(1 << 20))
    ws, chance = _open(area, tree), random.Random(1)
    seconds, _ = _timed(lambda: ws.save("first"))
    yield f"store after the first save of {LARGE_MIB:,} MiB ({seconds:.1f} s)", _bytes(_size(ws.store))
    for number in range(LARGE_SAVES):
        with open(tree / "large.bin", "r+b") as file:
            place = chance.randrange(LARGE_MIB << 20)
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1]))
        seconds, _ = _timed(lambda number=number: ws.save(f"save {number}"))
    yield f"store after {LARGE_SAVES} more ({seconds:.1f} s the last)", _bytes(_size(ws.store))
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    yield "memory of the process, mapped packs aside", " ".join(own.split()[1:])


def _similar(area: Path, *, count: int) -> Iterator[tuple[str, str]]:
    """Small files that are alike, of which a hundredth changes from save to save; processor time, of children too."""
    tree, chance = area / "tree", random.Random(1)
    for number in range(count):
        path = tree / f"{number // 1000:03}" / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_record(number, chance))
    ws = _open(area, tree)

    def save_changes() -> float:
        for number in chance.sample(range(count), count // 100):
            (tree / f"{number // 1000:03}" / f"{number}.json").write_text(_record(number, chance))
        return _cpu(lambda: ws.save("changed"))

    yield f"first save of {count:,} files", f"{_cpu(lambda: ws.save('first')):.2f} s"
    for _ in range(2):
        save_changes()
    measured: dict[str, list[float]] = {}
    for round_ in range(2):
        if round_:
            seconds = _cpu(ws.compact)
            yield "compact", f"{seconds:.1f} s"
            ws.close()
        measured.setdefault("store", []).append(_size(ws.store / "objects"))
        found = {"verify": _cpu(ws.verify), "save of a hundredth, all else unchanged": save_changes()}
        ws.close()
        found["export of the first save"] = _cpu(
            lambda round_=round_: ws.export(ws.list(None)[-1].id, area / f"out{round_}")
        )
        found["save that reads every file"] = _cpu(lambda: ws.save("again", rehash=True))
        for label, value in found.items():
            measured.setdefault(label, []).append(value)
    for label, (before, after) in measured.items():
        shown = f"{_bytes(before)} {_bytes(after)}" if label == "store" else f"{before:.2f} s {after:.2f} s"
        goal = verdict(after / before, 1.0 if label == "store" else 1.3)
        yield f"{label}: before, after, ratio", f"{shown} {after / before:.2f} {goal}"


def _record(number: int, chance: random.Random) -> str:
    row = {"id": number, "name": f"item {number}", "price": chance.randrange(10**6), "stock": chance.randrange(100)}
    fixed = {
        "currency": "EUR",
        "category": "garden",
        "tags": ["new", "sale"],
        "supplier": {"city": "Ghent", "rating": 4},
    }
    return json.dumps(row | fixed, indent=2)


def _cpu(work: Callable[[], object]) -> float:
    """Processor time of a call, with what it spent in other processes."""

    def now() -> float:
        return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

    start = now()
    work()
    return now() - start


def _edit(tree: Path, chance: random.Random) -> None:
    """Change a few lines of a few files, as an agent does."""
    files = sorted(path for path in tree.rglob("*.py") if path.is_file() and path.stat().st_size > 2000)
    for path in chance.sample(files, FILES_A_ROUND):
        lines = path.read_bytes().splitlines(keepends=True)
        at = chance.randrange(len(lines))
        lines[at : at + 2] = [b"# line %d, written anew\n" % chance.randrange(10**9) for _ in range(3)]
        path.write_bytes(b"".join(lines))


def _restored(ws: Workspace) -> float:
    """How long it takes to bring the whole tree back from nothing."""
    first = ws.list(None)[-1].id
    for path in ws.path.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    seconds, _ = _timed(lambda: ws.restore(first))
    ws.undo()
    ws.restore("latest")
    return seconds


def _git(shadow: Path, tree: Path, *command: str) -> None:
    identity = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x", "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x"}
    settings = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "PATH": os.environ["PATH"]}
    where = ["--git-dir", str(shadow), "--work-tree", str(tree)]
    subprocess.run(["git", *where, *command], check=True, env=identity | settings, cwd=tree)


# many


def _many(area: Path) -> Iterator[tuple[str, str]]:
    """Processor time; medians of what is quick, one call of what is not."""
    times: dict[str, list[float]] = {}
    for count in COUNTS:
        ws = generate(area / str(count), count)
        time.sleep(0.1)
        listed = ws.list(60)
        key, newest = listed[-1].id, listed[0].id
        for label, work in {
            "list(20)": lambda ws=ws: ws.list(20),
            "get(short id)": lambda ws=ws, key=key: ws.get(key.partition("-")[0]),
            "show": lambda ws=ws, key=key: (lambda one: (one.state, one.files_changed, one.uncovered))(ws.get(key)),
            "diff of two checkpoints": lambda ws=ws, key=key, newest=newest: ws.diff(key, newest),
        }.items():
            work()
            times.setdefault(label, []).append(sorted(_cpu(work) for _ in range(21))[10])
        for label, work in {
            "search": lambda ws=ws: ws.search("17"),
            "verify": lambda ws=ws: ws.verify(),
            "prune, dry run": lambda ws=ws: ws.prune(Policy(keep_last=50)),
            "prune to a size, dry run": lambda ws=ws: ws.prune(Policy(max_bytes=1 << 20)),
            "usage": lambda ws=ws: ws.usage(),
            "compact": lambda ws=ws: ws.compact(),
            "verify after compact": lambda ws=ws: ws.verify(),
            "prune": lambda ws=ws: ws.prune(Policy(keep_last=50), dry_run=False),
        }.items():
            times.setdefault(label, []).append(_cpu(work))
        ws.close()
    for label, found in times.items():
        shown = " ".join(f"{seconds * 1000:.1f}" for seconds in found)
        goal = verdict(found[-1] / found[0], 2) if label in ("list(20)", "get(short id)", "show") else ""
        yield f"{label} at 100, 2,000, 10,000 (ms)", f"{shown} {goal}".rstrip()


def generate(area: Path, count: int, **options: Any) -> Workspace:
    """A store with this many checkpoints, each with one file of its own, without saving each."""
    project = area / "project"
    for number in range(15):
        path = project / f"folder-{number % 3}" / f"file-{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n" * 50)
    ws = Workspace(project, **({"store": area / "store", "home": area, "environ": {}} | options))
    first, objects = ws.save("first"), ws._repository.objects
    base = read_contents(objects, objects.commit(objects.ref(first.id)))
    attrs = objects.tree(base.root.attrs)
    entries, writer, chance = objects.tree(base.root.tree), objects.writer(), random.Random(1)
    changes = writer.add(ObjectKind.BLOB, b'["own"]\n')
    refs = {}
    for sequence in range(2, count + 1):
        own = TreeEntry(FILE_MODE, b"own", writer.add(ObjectKind.BLOB, chance.randbytes(300)))
        root = base.root._replace(tree=writer.add(ObjectKind.TREE, encode_tree([*entries, own])))
        one = first.replace(
            id=new_id(sequence), sequence=sequence, message=f"step {sequence}", session=f"s{sequence % 9}"
        )
        record = writer.add(ObjectKind.BLOB, encode_record(one))
        refs[one.id] = write_commit(writer, one, base._replace(root=root, record=record, changes=changes))
    writer.commit()
    assert attrs
    for checkpoint_id, commit in refs.items():
        (ws.store / "refs" / "tags" / checkpoint_id).write_text(f"{commit.hex()}\n")
    objects.refresh()
    return ws


# blame


def _blame(area: Path) -> Iterator[tuple[str, str]]:
    """Processor time and memory of a fresh process."""
    for label, every in (("every checkpoint changes another file", False), ("all change the same file", True)):
        folder = area / label.replace(" ", "-")
        ws = generate_history(folder, 10_000, is_same_file=every)
        time.sleep(0.1)
        ws.list(1)  # the catalog of a store that was not made by saving is made now
        where = ["-C", str(ws.path), "--store", str(ws.store)]
        command = [sys.executable, "-m", "holdfast", *where, "blame", "folder/file-0.txt"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds, _ = _timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))  # noqa: B023
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = sum(after[:2]) - sum(before[:2])
        yield f"blame, {label}: processor, wall", f"{spent:.2f} s {seconds:.2f} s {verdict(spent, 2, unit=' s')}"
    goal = verdict(after.ru_maxrss / 1000, 200, unit=" MB")
    yield "largest memory of these processes", f"{_bytes(after.ru_maxrss << 10)} {goal}"


def generate_history(area: Path, count: int, *, is_same_file: bool) -> Workspace:
    """A store with this many checkpoints of 200 files, each the parent of the next and with one line changed."""
    project, names = area / "project", [f"folder/file-{number}.txt" for number in range(200)]
    texts = {name: [f"line {at} of {name}\n" for at in range(100)] for name in names}
    for name, lines in texts.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("".join(lines))
    ws = Workspace(project, store=area / "store", home=area, environ={})
    first, objects = ws.save("first"), ws._repository.objects
    base = read_contents(objects, objects.commit(objects.ref(first.id)))
    writer, chance, refs, before = objects.writer(), random.Random(1), {}, first
    root = {entry.name: entry for entry in objects.tree(base.root.tree)}
    folders = {name: {entry.name: entry for entry in objects.tree(one.oid)} for name, one in root.items()}
    for sequence in range(2, count + 1):
        name = names[0 if is_same_file else sequence % 200]
        texts[name][chance.randrange(1, 100)] = f"line of checkpoint {sequence}\n"
        folder, file = (part.encode() for part in name.split("/"))
        blob = writer.add(ObjectKind.BLOB, "".join(texts[name]).encode())
        folders[folder][file] = folders[folder][file]._replace(oid=blob)
        root[folder] = root[folder]._replace(oid=writer.add(ObjectKind.TREE, encode_tree(folders[folder].values())))
        tree = base.root._replace(tree=writer.add(ObjectKind.TREE, encode_tree(root.values())))
        actor = "claude-code" if sequence % 2 else None
        one = before = first.replace(
            id=new_id(sequence), sequence=sequence, message=f"step {sequence}", parent=before.id, actor=actor
        )
        record = writer.add(ObjectKind.BLOB, encode_record(one))
        changes = writer.add(ObjectKind.BLOB, json.dumps([name]).encode())
        refs[one.id] = write_commit(writer, one, base._replace(root=tree, record=record, changes=changes))
    writer.commit()
    for checkpoint_id, commit in refs.items():
        (ws.store / "refs" / "tags" / checkpoint_id).write_text(f"{commit.hex()}\n")
    for name, lines in texts.items():
        (project / name).write_text("".join(lines))
    objects.refresh()
    return ws


# both


def _open(area: Path, folder: Path) -> Workspace:
    return Workspace(folder, store=area / "store", home=area, environ={})


def _timed(work: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    answer = work()
    return time.perf_counter() - start, answer


def _size(folder: Path) -> int:
    return sum(os.lstat(os.path.join(where, name)).st_size for where, _, names in os.walk(folder) for name in names)


def _bytes(count: int) -> str:
    return f"{count / (1 << 20):.2f} MiB"


if __name__ == "__main__":
    main()
