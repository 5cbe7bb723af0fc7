"""`torch.distributed.checkpoint` on several ranks, with an object store behind it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.training import CheckpointManager, load_checkpoint

from .scenes import same

pytestmark = [
    pytest.mark.extras,
    pytest.mark.filterwarnings("ignore"),  # what the server says of its own dependencies
]

_SCRIPT = Path(__file__).parents[1] / "adapters" / "dcp_ranks.py"


def run(act: str, folder: Path, ranks: int, url: str) -> list[str]:
    """Run an act on several ranks; returns the ranks that came to its end."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    done = subprocess.run(
        [*command, str(_SCRIPT), act, str(folder), url],
        env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    print(done.stderr[-6000:])
    return sorted(path.name for path in folder.glob(f"{act}-done-*"))


def test_dying_rank_leaves_the_remote_store_as_it_was(url: str, tmp_path: Path) -> None:
    assert run("in_store", tmp_path, 3, url) == [f"in_store-done-{rank}" for rank in range(3)]
    before = load_checkpoint(url)  # on one machine, without DCP
    assert (before["epoch"], before["rank1"]["mine"]) == (3, 1)
    assert run("kill_in_store", tmp_path, 2, url) == []
    manager = CheckpointManager(url)
    assert [each.step for each in manager.history()] == [1, 2, 3]
    assert manager.verify().ok
    assert same(before, load_checkpoint(url))
