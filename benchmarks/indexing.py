"""Indexes against CocoIndex and LangChain's indexing API: what is paid for, and how long it takes.

Each run is a process of its own (`index_contenders.py`) over the same 400 files, with the same chunker, model and
store; only the work is timed, not the imports. Prints a table of texts that the model was sent, and of seconds.

    pip install -r benchmarks/requirements.txt    # a system that is not installed is left out
    python benchmarks/indexing.py [--files 400] [--rounds 5] [--only holdfast langchain]
    python benchmarks/indexing.py --scale [--documents 1000000] [--where FOLDER]     see index_scale.py
    python benchmarks/indexing.py --search [--vectors 100000] [--dimension 384]      see index_search.py
"""

from __future__ import annotations

import argparse
import importlib.util
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
from report import verdict

CHANCE = random.Random(5)
WORDS = ["".join(CHANCE.choices("abcdefghijklmnopqrstuvwxyz", k=CHANCE.randint(2, 9))) for _ in range(3000)]
CHUNK, OTHER_CHUNK = 400, 800
GOALS = {"first run": 1.0, "unchanged": 0.5}
NEEDS = {"holdfast": "holdfast", "langchain": "langchain_classic", "cocoindex": "cocoindex"}
"""The package of each system."""
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
    texts, _ = first = run(who, folder)
    anew = [first[1], *(run(who, _copy(corpus, work / f"{who}-{number}"))[1] for number in range(1, rounds))]
    spent = [each for each in anew if each is not None]
    spread = f"{chunks} chunks, median of {rounds} ({min(spent):.2f}–{max(spent):.2f})"
    yield Row("first run", who, texts, median(spent), spread)
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


def _copy(corpus: Path, to: Path) -> Path:
    shutil.copytree(corpus, to)
    return to


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
        there = [who for who in given.only if importlib.util.find_spec(NEEDS[who])]
        rows = [row for who in there for row in cases(who, corpus, chunks, Path(work), given.rounds)]
    names = list(dict.fromkeys(row.case for row in rows))
    print("| case | who | texts sent | seconds | |\n|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: names.index(row.case)):
        seconds = "" if row.seconds is None else f"{row.seconds:.2f}"
        print(f"| {row.case} | {row.who} | {row.texts} | {seconds} | {row.note} |")
    for who in given.only:
        if who not in there:
            print(f"\n{who} is not installed: pip install -r benchmarks/requirements.txt")
    for case, goal in GOALS.items():
        seconds = {row.who: row.seconds for row in rows if row.case == case and row.seconds}
        for who, theirs in seconds.items():
            if who != "holdfast" and "holdfast" in seconds:
                ratio = seconds["holdfast"] / theirs
                asked = verdict(ratio, goal) if (case, who) != ("first run", "cocoindex") else "no goal"
                print(f"\n{case}: Holdfast takes {ratio:.2f} × the time of {who}, {asked}")


if __name__ == "__main__":
    main()
