"""Measure checkpoints of a folder against shadow git, restic and borg, side by side on the same trees.

    python benchmarks/workspace.py            # the full table, with 30,000 and 100,000 files
    python benchmarks/workspace.py --quick    # a twentieth of it, in about a minute

Every contender has its own store and saves the same tree in turn (peer, ours, peer, ours …), caches warm, with what was
written before flushed before each timed section. Figures are medians, with the least and the greatest beside them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import contenders
import report
import trees
from contenders import PEERS
from race import CHANGED_SAVES, Race, Scope, big_file_rows, say
from report import Section
from trees import Tree

FULL_SIZE = 30_000

NOTES = (
    "*Holdfast* is the time from just before `Workspace(…)` to the end of the call, in a new process each time; "
    "*python -c* is that whole process and *holdfast command* the whole `holdfast …` process, start-up and imports "
    "included. git's time is that of its two processes (one for a restore).",
    "Holdfast fsyncs what it writes before it reports success. git's defaults do not fsync loose objects.",
    "Holdfast's saves also hold times, permissions, empty folders and small ignored files; its restores first save "
    "what they replace and prove the result afterwards. `git reset --hard` does neither.",
    "restic and borg cannot see what changed when they restore, and get the list of files to bring back.",
    "*reading and hashing* walks the tree, reads every file and computes its SHA-1, in one thread of plain Python.",
)


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # by way of the clean-up below
    peers = [peer for peer in PEERS if peer in options.peers and shutil.which(peer)]
    with tempfile.TemporaryDirectory(prefix="holdfast-benchmark-", dir=options.folder) as folder:
        facts = report.environment(Path(folder), options.peers)
        facts["python start-up"] = _start_up(Path(folder))
        if options.files < FULL_SIZE:
            facts["size"] = (
                f"smaller than the {FULL_SIZE:,} files that the goals are for: what each call costs weighs more"
            )
        sections = []
        for section in _sections(Path(folder), options, peers):
            sections.append(section)
            table = report.table(section.rows, peers, markdown=options.markdown)
            print(_heading(section.title, options), table, sep="\n\n", end="\n\n", flush=True)
    if not options.brief:
        print(_heading("Where and how", options), _remarks(facts), sep="\n\n")
    if options.json:
        found = [{"title": section.title, "rows": [row.as_json() for row in section.rows]} for section in sections]
        options.json.write_text(json.dumps({"environment": facts, "sections": found}, indent=1) + "\n")


def _sections(folder: Path, options: argparse.Namespace, peers: Sequence[str]) -> Iterator[Section]:
    """Measure tree after tree, and remove each before the next is made."""
    makers: dict[str, Callable[[Path], Tree]] = {
        "realistic": lambda root: trees.realistic(root, files=options.files),
        "small": lambda root: trees.uniform(root, files=options.files * 10 // 3),
    }
    for name in options.trees:
        room = folder / name
        (room / "tree").mkdir(parents=True)
        say(f"making the {name} tree")
        tree = makers[name](room / "tree")
        size = f"{tree.folders:,} folders, {tree.total_bytes / 1e6:,.0f} MB"
        yield Section(f"{tree.title} ({size})", Race(tree, room, peers, _scope(options)).rows())
        shutil.rmtree(room)
    if options.big_mib:
        yield Section(f"One file of {options.big_mib:,} MiB", big_file_rows(folder / "big", options.big_mib, peers))


def _scope(options: argparse.Namespace) -> Scope:
    return Scope(options.repeat, options.changes, options.pure, not options.no_deleted, options.peak)


def _start_up(folder: Path) -> str:
    """Return what an interpreter costs before Holdfast does anything; also leaves its bytecode compiled."""
    found = []
    for code in ("pass", "from holdfast import Workspace", "import holdfast.cli.group"):
        seconds = []
        for _ in range(6):
            start = time.perf_counter()
            contenders.run([sys.executable, "-c", code], cwd=folder, environ=contenders.environment(folder))
            seconds.append(time.perf_counter() - start)
        found.append(f"{min(seconds) * 1000:.0f} ms")
    return "{} bare, {} with the library imported, {} with the command line".format(*found)


def _heading(title: str, options: argparse.Namespace) -> str:
    return f"## {title}" if options.markdown else title


def _remarks(facts: dict[str, str]) -> str:
    return "\n".join([*(f"- {name}: {value}" for name, value in facts.items()), *(f"- {note}" for note in NOTES)])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the files, 3 rounds, a file of 128 MiB")
    parser.add_argument("--files", type=int, help="files in the realistic tree (30000); the small ones are 10/3 of it")
    parser.add_argument("--repeat", type=int, help="rounds of each kind of work (5); first saves at most 3")
    parser.add_argument("--trees", nargs="*", choices=("realistic", "small"), default=("realistic", "small"))
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="besides git, where installed (all; none if --quick)")
    parser.add_argument("--big-mib", type=int, help="size of the large file (2048)")
    parser.add_argument("--no-memory", action="store_true", help="leave the large file out")
    parser.add_argument("--changes", type=int, default=CHANGED_SAVES, help="saves of changed files (10)")
    parser.add_argument("--brief", action="store_true", help="print the tables alone")
    parser.add_argument("--pure", action="store_true", help="also without the native module")
    parser.add_argument("--no-deleted", action="store_true", help="leave out the restore of half of all files")
    parser.add_argument("--peak", action="store_true", help="also the memory of saves of each tree")
    parser.add_argument("--folder", type=Path, help="where the temporary folders go, to choose a file system")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample to FILE")
    parser.add_argument("--markdown", action="store_true", help="print a page for the documentation")
    options = parser.parse_args()
    options.peers = (() if options.quick else PEERS) if options.peers is None else options.peers
    options.files = options.files or (FULL_SIZE // 20 if options.quick else FULL_SIZE)
    options.repeat = options.repeat or (3 if options.quick else 5)
    options.big_mib = 0 if options.no_memory else options.big_mib or (128 if options.quick else 2048)
    return options


if __name__ == "__main__":
    main()
