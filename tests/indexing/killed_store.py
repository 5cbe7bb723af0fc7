"""A process that indexes into a store, and says so each time before it changes the store.

killed_store.py FOLDER KIND
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from indexing.scene import Scene
from indexing.stores import store


def _told(name: str, step: Any) -> Any:
    def told(*args: Any) -> Any:
        print(name, flush=True)
        return step(*args)

    return told


def main(folder: Path, kind: str) -> None:
    scene = Scene(folder)
    scene.store = store(kind)(folder / kind)
    for name in ("upsert", "delete"):
        setattr(scene.store, name, _told(name, getattr(scene.store, name)))
    with scene.run() as run:
        run.apply(run.plan())
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
