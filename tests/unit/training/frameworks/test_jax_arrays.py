"""Arrays of JAX come back exactly. They are tried in a process of their own: JAX has threads, and warns of forks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extras

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("cases", "libraries"), [("jax_cases.py", ["jax"]), ("jax_tree_cases.py", ["jax", "optax", "flax"])]
)
def test_states_of_jax_come_back_exactly_or_are_refused(cases: str, libraries: list[str], tmp_path: Path) -> None:
    missing = [name for name in libraries if importlib.util.find_spec(name) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"{', '.join(missing)} is not installed")
    folder = f"--basetemp={tmp_path / 'cases'}"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder, HERE / cases]
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
