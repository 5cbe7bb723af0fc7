"""Create, list, show, roll back and delete checkpoints of a project.

From Holdfast: `holdfast install skill` wrote this file, and `holdfast uninstall skill` removes it.
"""

import os
import shutil
import sys
from pathlib import Path

try:
    from holdfast.compat.skill.manager import Checkpoint, CheckpointManager, CheckpointType, FeatureState, GitState
    from holdfast.compat.skill.programs import checkpoint_manager as main
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    # Perhaps it is installed for another Python, as by pipx or uv: the first line of the program says which
    program = shutil.which("holdfast")
    python = Path(program).read_bytes().partition(b"\n")[0].removeprefix(b"#!").strip().decode() if program else ""
    if "python" not in os.path.basename(python) or python == sys.executable:
        sys.exit("Holdfast is not installed for this Python. Install it first.")
    os.execv(python, [python, *sys.argv])

__all__ = ["Checkpoint", "CheckpointManager", "CheckpointType", "FeatureState", "GitState"]

if __name__ == "__main__":
    sys.exit(main())
