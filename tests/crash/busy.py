"""A process that is always busy with one workspace, until it is killed: run by `test_real_kill`.

It says in a file what it is about to do, and what the workspace is before and must be after: a line each.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

from holdfast import Workspace
from holdfast.testing.disk_contract import describe


def main(area: Path, seed: int) -> None:
    ws = Workspace(area / "ws", store=area / "store", home=area / "home", environ={})
    chance = random.Random(seed)
    with open(area / "log", "a", buffering=1) as log:
        say(log, does="nothing")
        print("ready", flush=True)
        while True:
            step(ws, chance, log)


def step(ws: Workspace, chance: random.Random, log: Any) -> None:
    """Edit, then save, restore, undo or merge."""
    edit(ws.path, chance, log)
    before = digest(ws.path)
    saved = known(ws.path.parent)
    what = chance.choice(["save", "restore", "restore", "undo", "merge"])
    if what == "restore" and saved:
        target = chance.choice(sorted(saved))
        say(log, does="restore", before=before, after=saved[target])
        ws.restore(target)
    elif what == "undo" and saved:
        target = chance.choice(sorted(saved))
        ws.restore(target)
        say(log, does="undo", before=saved[target], after=before)
        ws.undo()
    elif what == "merge":
        say(log, does="merge", before=before, after=before)
        ws.merge()
    else:
        say(log, does="save", before=before, after=before)
        say(log, saved=ws.save(allow_empty=True).id, digest=before)
    say(log, does="nothing")


def edit(root: Path, chance: random.Random, log: Any) -> None:
    say(log, does="edit")
    for number in range(6):
        path = root / f"folder-{number % 3}" / f"file-{number}"
        path.parent.mkdir(exist_ok=True)
        if chance.random() < 0.3:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(chance.randbytes(chance.randrange(2000)))


def digest(root: Path) -> str:
    return hashlib.sha256(repr(sorted(describe(root).items())).encode()).hexdigest()


def known(area: Path) -> dict[str, str]:
    """The checkpoints that were made, and what they hold."""
    lines = map(json.loads, (area / "log").read_text().splitlines())
    return {line["saved"]: line["digest"] for line in lines if "saved" in line}


def say(log: Any, **words: str) -> None:
    log.write(json.dumps(words) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
