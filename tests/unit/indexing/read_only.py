"""An index that its user may read and not write, looked at by a process that has given its privileges up."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError

from .scene import Scene

_NOBODY = 65534
_WHAT = {
    "plan": lambda run: run.plan(),
    "search": lambda run: run.search("dense", "word0"),
    "apply": lambda run: run.apply(run.plan()),
}


def try_all(folder: Path, spelt: str, part: str, tells: Any) -> None:
    """Make an index, take the right to write to its store or its ledger away, and tell what becomes of each verb."""
    module, _, name = spelt.partition(":")
    kind = getattr(importlib.import_module(module), name)
    scene = Scene(folder)
    scene.store.close()
    (folder / "store.db").unlink(missing_ok=True)
    for each in ("store", "ledger"):
        (folder / each).mkdir()
    scene.ledger = lambda: folder / "ledger" / "index.db"
    scene.store = kind(folder / "store" / "vectors")
    scene.fill(1)
    scene.done().close()
    scene.store.close()
    scene.write("new.md", "something new")
    _bar(folder, part)
    said = {}
    for what, call in _WHAT.items():
        try:
            scene.store = kind(folder / "store" / "vectors")
            with scene.run() as run:
                call(run)
        except HoldfastError as error:
            said[what] = (type(error).__name__, error.message, error.hint)
        except Exception as error:
            said[what] = (type(error).__name__, str(error), "")
    tells.send(said)


def _bar(folder: Path, part: str) -> None:
    for path in (folder, *folder.rglob("*")):
        if os.geteuid() == 0:
            os.chown(path, _NOBODY, _NOBODY)
    for path in (folder / part, *(folder / part).rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
