"""A pack that somebody cuts while a process has it mapped: an error, never the end of the process by a signal."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from unit.workspace.conftest import Project

WORK = """
import os, sys
from pathlib import Path
from holdfast import Workspace
from holdfast.errors import HoldfastError

root, store, suffix, size = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
ws = Workspace(root, store=store)
ws.save("first")
assert ws.search("nowhere") == [] and ws.verify().ok
for file in Path(store, "objects", "pack").glob(f"*{suffix}"):
    file.chmod(0o600)
    os.truncate(file, size)
for act in (lambda: ws.export("latest", sys.argv[5]), lambda: ws.search("text"), ws.usage, ws.merge, ws.compact):
    try:
        act()
    except HoldfastError as error:
        print(type(error).__name__, error.message)
assert not ws.verify().ok
(root / "new").write_text("made since")
saved = ws.save("second")
assert ws.get("latest").id == saved.id
"""


@pytest.mark.parametrize("suffix", [".pack", ".idx"])
@pytest.mark.parametrize("size", [1100, 9000])
def test_is_an_error_and_the_process_goes_on_to_save(project: Project, suffix: str, size: int) -> None:
    project.write("big", os.urandom(300_000))
    for number in range(300):
        project.write(f"small/{number}", b"%d\n" % number)
    given = [project.root, project.store, suffix, str(size), project.area / "out"]
    ran = subprocess.run([sys.executable, "-c", WORK, *given], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
    assert "Damaged" in ran.stdout
