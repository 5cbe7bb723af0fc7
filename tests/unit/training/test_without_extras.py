"""Where only torch, NumPy and safetensors are installed, checkpoints are made and verified all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import Unavailable
from holdfast.training import load_checkpoint, save_checkpoint
from holdfast.training.stored import digests

pytestmark = pytest.mark.extras

_BARE = """
import sys
for name in ("blake3", "msgspec", "isal", "pygit2", "rich", "click", "platformdirs"):
    sys.modules[name] = None
import torch
from holdfast.errors import Damaged
from holdfast.training import load_checkpoint, save_checkpoint, wait_for_save
state = {"x": torch.arange(1_000_000), "lr": 0.1, "steps": [1, None, "text"], "nan": float("inf")}
for step in (1, 2):
    meta = save_checkpoint(sys.argv[1], step, state, block=step == 1)
done = wait_for_save()
assert done["files_shared"] == 2, done
loaded = load_checkpoint(sys.argv[1])
assert torch.equal(loaded["x"], state["x"]) and loaded["steps"] == state["steps"] and loaded["nan"] == state["nan"]
"""


def test_nothing_else_need_be_installed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _BARE, str(tmp_path)], check=True)
    manifest = json.loads((tmp_path / "step-00000002" / "manifest.json").read_text())
    assert manifest["digest_algorithm"] == "sha256"
    assert load_checkpoint(tmp_path)["lr"] == 0.1


def test_what_is_verified_by_a_package_that_is_missing_says_so(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["blake3"] = None
from holdfast.errors import Unavailable
from holdfast.training import load_checkpoint
try:
    load_checkpoint(sys.argv[1])
except Unavailable as error:
    assert "BLAKE3" in str(error)
else:
    sys.exit(1)
assert load_checkpoint(sys.argv[1], verify=False) == {"x": 1}
"""
    path = save_checkpoint(tmp_path, 1, {"x": 1})["path"]
    subprocess.run([sys.executable, "-c", code, path], check=True)


def test_a_digest_that_nobody_knows_is_damage() -> None:
    assert digests.preferred() == "blake3"
    with pytest.raises(Exception, match="unknown digest algorithm: 'md5'"):
        digests.new("md5")
    assert issubclass(Unavailable, Exception)


def test_importing_the_room_loads_no_framework() -> None:
    code = "import sys, holdfast.training\nsys.exit(bool({'torch', 'numpy', 'blake3', 'jax'} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = (
        "import sys\nfrom holdfast.training import CheckpointManager, save_checkpoint\n"
        "sys.exit(bool({'torch', 'numpy', 'jax', 'blake3'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
