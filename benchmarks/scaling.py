"""First saves on 1, 2, 4 … processors, against `git add -A` and `git commit` on as many.

    python benchmarks/scaling.py                  # 30,000 files, as many processors as there are, at most 16
    python benchmarks/scaling.py --native 0       # without the native module

Every process is held to the first N processors (`taskset`). Both save the same tree from an empty store in turns, what
they read is in memory, and what was written before is flushed first. Medians by the clock; `processor` is what all
processors spent. It needs nothing but Holdfast's own dependencies and git.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

import contenders
import trees
from contenders import GIT, INSIDE, PROCESS, of_processor
from race import read_and_hash, say

COUNTS = (1, 2, 4, 8, 16)


def main() -> None:
    """Measure, and print a line for each number of processors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--native", choices=("0", "1"), default="1", help="0: the pure implementation")
    parser.add_argument("--folder", type=Path, help="where the temporary folders go, to choose a file system")
    options = parser.parse_args()
    usable = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="holdfast-scaling-", dir=options.folder) as area:
        room = Path(area)
        say(f"making {options.files:,} files")
        tree = trees.realistic(room / "tree", files=options.files)
        both = [
            contenders.ShadowGit(tree.root, room / "git"),
            contenders.Library(tree.root, room / "holdfast"),
        ]
        print(f"{tree.title}, {tree.total_bytes / 1e6:,.0f} MB; {len(usable)} processors; {_scan(options.native)} scan")
        print("processors  git      holdfast  ratio    process  processor: git  holdfast")
        alone = 0.0
        for count in (count for count in COUNTS if count <= len(usable)):
            os.sched_setaffinity(0, usable[:count])
            found = _measured(tree, both, options)
            ours, git = median(found[INSIDE]), median(found[GIT])
            alone = alone or ours
            print(
                f"{count:10}  {git:6.3f} s {ours:6.3f} s  {ours / git:5.3f} ×  {median(found[PROCESS]):5.3f} s"
                f"  {median(found[of_processor(GIT)]):12.3f} s {median(found[of_processor(INSIDE)]):6.3f} s"
                f"   {alone / ours:4.2f} × as fast as on one",
                flush=True,
            )


def _measured(
    tree: trees.Tree, both: list[contenders.Contender], options: argparse.Namespace
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for number in range(options.rounds):
        for contender in both if number % 2 else both[::-1]:
            contender.begin()
            contender.environ["HOLDFAST_NATIVE"] = options.native
            contender.environ["PYTHONPATH"] = os.pathsep.join(sys.path[1:])  # where this process found Holdfast
            os.sync()
            read_and_hash(tree.root)  # so that both find it in memory
            for name, value in contender.save().items():
                found.setdefault(name, []).append(value)
            shutil.rmtree(contender.room)
    return found


def _scan(native: str) -> str:
    from holdfast.scan import sweep

    return "native" if native == "1" and sweep.native is not None else "pure"


if __name__ == "__main__":
    main()
