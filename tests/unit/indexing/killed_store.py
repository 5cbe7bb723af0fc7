"""A process that indexes into a store, and says so each time before it changes the store.

killed_store.py FOLDER KIND [CHUNK_SIZE]

With a chunk size it stops within its second upsert, half of which is done, and waits to be killed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from holdfast.indexing import PlainChunker
from unit.indexing.scene import Scene
from unit.indexing.stores import store


def _told(name: str, step: Any) -> Any:
    def told(*args: Any) -> Any:
        print(name, flush=True)
        return step(*args)

    return told


def _stopping(step: Any) -> Any:
    calls: list[int] = []

    def stopping(collection: str, points: Sequence[Any]) -> None:
        calls.append(len(points))
        step(collection, points if len(calls) == 1 else points[: len(points) // 2])
        if len(calls) == 2:
            print("half", flush=True)
            sys.stdin.read()

    return stopping


def main(folder: Path, kind: str, size: int | None = None) -> None:
    scene = Scene(folder)
    scene.store = store(kind)(folder / kind)
    if size is None:
        for name in ("upsert", "delete"):
            setattr(scene.store, name, _told(name, getattr(scene.store, name)))
    else:
        scene.chunker = PlainChunker(size=size)
        scene.store.upsert = _stopping(scene.store.upsert)  # type: ignore[method-assign]
    with scene.run() as run:
        run.apply(run.plan())
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
