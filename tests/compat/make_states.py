"""Make the store of states that `test_states_before_tags.py` opens: by a version whose states were JSON alone.

    cd tests && python -m compat.make_states compat/states-json.tar.xz

It was run once, by the last version before states could hold more than JSON, and is never run again.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from holdfast import Workspace

from .make_store import _SOMEWHERE, _plain


def states() -> list[dict[str, Any]]:
    """What was saved: JSON that looks tagged, JSON that is awkward, and a conversation that grew."""
    deep: Any = "the bottom"
    for number in range(200):
        deep = [deep] if number % 2 else {"in": deep}
    talk = [{"role": "user", "content": f"message {number} " * 40, "$ref": "#/x"} for number in range(120)]
    looks = {"$tuple": [1, 2], "a": {"$dict": [["x", 1]]}, "b": {"$bytes": "?"}, "c": {"$nonsense": None}}
    odd = {"half \ud800": 2**80, "": [-0.0, 1e308, 5e-324], "caf\xe9": "\U0001f600\0"}
    return [
        {"looks": looks, "just": {"$set": [1]}, "odd": odd},
        {"talk": talk[:100], "deep": deep, "a.json": 1, "b.json-tagged": {"$tuple": [1]}},
        {"talk": talk},
    ]


def main(archive: str) -> None:
    """Make the store and put it into an archive."""
    with tempfile.TemporaryDirectory() as name:
        area = Path(os.path.realpath(name))
        for folder in ("project", "home"):
            (area / folder).mkdir()
        ws = Workspace(area / "project", store=area / "store", home=area / "home", environ={})
        for number, state in enumerate(states()):
            ws.save(f"number {number}", state=state)
        owner = area / "store" / "holdfast" / "store.json"
        owner.write_text(json.dumps(json.loads(owner.read_bytes()) | {"workspace": _SOMEWHERE}, indent=1) + "\n")
        with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT) as tar:
            tar.add(area / "store", "store", filter=_plain)


if __name__ == "__main__":
    main(sys.argv[1])
