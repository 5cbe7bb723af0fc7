"""Indexes against CocoIndex and LangChain's indexing API: what is paid for, and how long it takes.

Each run is a process of its own (`index_contenders.py`) over the same 400 files, with the same chunker, model and
store; only the work is timed, not the imports. Prints a table of texts that the model was sent, and of seconds.

    pip install cocoindex lancedb langchain-classic greenlet
    python benchmarks/indexing.py [--files 400] [--rounds 5] [--only holdfast langchain]
    python benchmarks/indexing.py --scale [--documents 1000000] [--where FOLDER]     see index_scale.py
    python benchmarks/indexing.py --search [--vectors 100000] [--dimension 384]      see index_search.py
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import index_scale
import index_search
from holdfast.indexing import PlainChunker
from index_contenders import BATCH, DIMENSION, SYSTEMS, sent

CHANCE = random.Random(5)
WORDS = ["".join(CHANCE.choices("abcdefghijklmnopqrstuvwxyz", k=CHANCE.randint(2, 9))) for _ in range(3000)]
CHUNK, OTHER_CHUNK = 400, 800
CONTENDER = Path(__file__).with_name("index_contenders.py")


class Row(NamedTuple):
    """What one system did in one case."""

    case: str
    who: str
    texts: int
    seconds: float | None
    note: str = ""


def make_corpus(folder: Path, files: int) -> int:
    """Files of one to nine chunks; how many chunks there are."""
    chunk = PlainChunker(CHUNK)
    for number in range(files):
        path = folder / f"docs/{number % 20:02}/{number:05}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        paragraphs = (" ".join(CHANCE.choices(WORDS, k=50)) for _ in range(CHANCE.randint(1, 9)))
        path.write_text("\n\n".join(paragraphs) + "\n")
    return sum(len(chunk(path.read_text())) for path in (folder / "docs").rglob("*.md"))


def run(who: str, folder: Path, size: int = CHUNK, **environment: str) -> tuple[int, float | None]:
    """The texts that one run sent, and its seconds; None if it was killed."""
    before = sent(folder)
    done = subprocess.run(
        [sys.executable, str(CONTENDER), who, str(folder), str(size)],
        env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode and "KILL_AT" not in environment:
        raise SystemExit(f"{who} failed:\n{done.stderr}")
    return sent(folder) - before, float(done.stdout.split()[-1]) if not done.returncode else None


def cases(who: str, corpus: Path, chunks: int, work: Path, rounds: int) -> Iterator[Row]:
    """Everything that one system is asked to do."""
    folder = work / who
    shutil.copytree(corpus, folder)
    yield Row("first run", who, *run(who, folder), f"{chunks} chunks")
    unchanged = [run(who, folder) for _ in range(rounds)]
    seconds = median(each[1] for each in unchanged if each[1] is not None)
    yield Row("unchanged", who, sum(each[0] for each in unchanged), seconds, f"median of {rounds}")
    changed = folder / "docs/00/00000.md"
    changed.write_text(changed.read_text() + "\nOne more sentence.\n")
    yield Row("one file changed", who, *run(who, folder))
    yield Row("chunks of another size", who, *run(who, folder, OTHER_CHUNK))
    yield Row("and back", who, *run(who, folder))
    if who == "holdfast":
        half, small = str(DIMENSION // 2), "int8"
        yield Row("dimensions halved", who, *run(who, folder, DIMENSION=half))
        yield Row("datatype reduced", who, *run(who, folder, DATATYPE=small))
        shutil.rmtree(folder / "lance")
        yield Row("store lost", who, *run(who, folder, DATATYPE=small))
    killed = work / f"{who}-killed"
    shutil.copytree(corpus, killed)
    paid, _ = run(who, killed, KILL_AT=str(chunks * 6 // 10))
    again, took = run(who, killed)
    canaries = 2 * 8 if who == "holdfast" else 0
    lost = paid + again - chunks - canaries
    yield Row("killed after 60 %", who, paid + again, took, f"{lost} of {paid} paid again (a batch is {BATCH})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    index_scale.add_arguments(parser)
    index_search.add_arguments(parser)
    given = parser.parse_args()
    if index_scale.run(given) or index_search.run(given):
        return
    with tempfile.TemporaryDirectory() as work:
        corpus = Path(work) / "corpus"
        chunks = make_corpus(corpus, given.files)
        rows = [row for who in given.only for row in cases(who, corpus, chunks, Path(work), given.rounds)]
    names = list(dict.fromkeys(row.case for row in rows))
    print("| case | who | texts sent | seconds | |\n|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: names.index(row.case)):
        seconds = "" if row.seconds is None else f"{row.seconds:.2f}"
        print(f"| {row.case} | {row.who} | {row.texts} | {seconds} | {row.note} |")
    quiet = {row.who: row.seconds for row in rows if row.case == "unchanged" and row.seconds}
    for who, seconds in quiet.items():
        if who != "holdfast" and "holdfast" in quiet:
            print(f"\nunchanged: Holdfast takes {quiet['holdfast'] / seconds:.2f} × the time of {who}")


if __name__ == "__main__":
    main()
