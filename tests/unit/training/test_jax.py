"""Arrays of JAX come back exactly. They are tried in a process of their own: JAX has threads, and warns of forks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("jax_cases.py")


def test_arrays_of_jax_come_back_exactly_or_are_refused_by_name(tmp_path: Path) -> None:
    if importlib.util.find_spec("jax") is None and not os.environ.get("CI"):
        pytest.skip("JAX is not installed")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'cases'}", CASES]
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
