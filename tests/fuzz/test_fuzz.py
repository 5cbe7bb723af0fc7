"""Every parser of stored or foreign bytes under Atheris, which looks for inputs that reach new code.

`HOLDFAST_FUZZ_RUNS` is how many inputs each target gets (a slow one a twentieth), `HOLDFAST_FUZZ_SECONDS` how long it
may take at most, `HOLDFAST_FUZZ_SEED` which inputs they are. What is found here belongs into a unit test of the parser,
with its bytes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.all_targets import TARGETS

pytestmark = [pytest.mark.slow, pytest.mark.extras]
_TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the fuzzer found in the targets whose tests run."""
    if importlib.util.find_spec("atheris") is None:
        there_is_none = "atheris is not installed; there are wheels for Linux and Python up to 3.13"
        (pytest.fail if os.environ.get("CI") and sys.version_info < (3, 14) else pytest.skip)(there_is_none)
    folder = tmp_path_factory.mktemp("fuzz")
    names = {item.callspec.params["name"] for item in request.session.items if item.path == Path(__file__)}
    limits = [os.environ.get("HOLDFAST_FUZZ_RUNS", "2000"), os.environ.get("HOLDFAST_FUZZ_SECONDS", "60")]
    environ = {**os.environ, "PYTHONPATH": os.fspath(_TESTS)}
    command = [sys.executable, "-m", "fuzz.run_targets", os.fspath(folder), *limits, *sorted(names)]
    subprocess.run(command, check=True, cwd=_TESTS, env=environ)
    return folder


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_fuzzer_finds_nothing(name: str, found: Path) -> None:
    lines = (found / f"{name}.jsonl").read_text().splitlines() if (found / f"{name}.jsonl").exists() else []
    told = [f"{each['error']}\nThe input: {each['input']}" for each in map(json.loads, lines)]
    told += [f"{path.name}: {path.read_bytes()!r}" for path in sorted(found.glob(f"{name}.*-*"))]
    told += [f"the process ended with {path.read_text()}" for path in found.glob(f"{name}.ended")]
    assert not told, "\n\n".join([*told, (found / f"{name}.log").read_text("utf-8", "replace")[-2000:]])
    assert "Done" in (found / f"{name}.log").read_text("utf-8", "replace")
