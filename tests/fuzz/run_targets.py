"""Runs targets under Atheris, one after the other: `python -m fuzz.run_targets FOLDER RUNS SECONDS NAME…`.

What a target may not raise is a line of JSON in `FOLDER/NAME.jsonl`, and the run goes on: one run finds many. A process
that ends otherwise than by itself leaves `FOLDER/NAME.ended` with its status, and libFuzzer's file with the input.

Each target has a process, forked from one that has Holdfast instrumented already, which takes seconds. Its memory is
limited, so that a huge allocation is a MemoryError, whatever the machine has. The same inputs are tried each time with
the same `HOLDFAST_FUZZ_SEED`, which is 1 unless it is set.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
import tempfile
import traceback
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["holdfast"]):
    from fuzz.all_targets import TARGETS
from fuzz.target import Target, problem_with

_SEED = int(os.environ.get("HOLDFAST_FUZZ_SEED", "1"))
_MAX_MEMORY_BYTES = 512 << 20
"""More than a process needs that has taken all seeds."""
_MAX_INPUT_BYTES = 16 << 10
_HANG_S = 300  # on the clock; `problem_with` is earlier, by the time of the processor
_SLOW = 20
"""Of a slow target, one in this many runs."""


def main(found: Path, runs: int, seconds: int, names: list[str]) -> None:
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="hf-fuzz-") as own:
        for name in names:
            (Path(own) / name).mkdir()
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                tempfile.tempdir = os.path.join(own, name)  # all of it goes with the parent's folder
                _fuzz(TARGETS[name], found, runs, seconds)
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if status:
                (found / f"{name}.ended").write_text(str(status))


def _fuzz(one: Target, found: Path, runs: int, seconds: int) -> None:
    with (found / f"{one.name}.log").open("wb") as log:
        os.dup2(log.fileno(), 2)
    corpus = Path(tempfile.mkdtemp(prefix="corpus-"))
    for number, data in enumerate(one.seeds()):
        problem_with(one, data)  # loads what is loaded late
        (corpus / f"{number:04}").write_bytes(data)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _MAX_MEMORY_BYTES, size + _MAX_MEMORY_BYTES))
    options = [
        f"-seed={_SEED}", f"-runs={max(1, runs // _SLOW) if one.is_slow else runs}", f"-max_total_time={seconds}",
        f"-timeout={_HANG_S}", "-rss_limit_mb=8192", f"-max_len={_MAX_INPUT_BYTES}", "-len_control=0",
        f"-artifact_prefix={found}/{one.name}.", "-print_final_stats=1", "-reload=0",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(corpus)], _Tester(one, found / f"{one.name}.jsonl"))
    atheris.Fuzz()


class _Tester:
    """Gives inputs to a target, and notes each problem once."""

    def __init__(self, one: Target, found: Path) -> None:
        self._target = one
        self._found = found
        self._known: set[tuple[str, ...]] = set()

    def __call__(self, data: bytes) -> None:
        error = problem_with(self._target, data)
        if error is None:
            return
        last = traceback.extract_tb(error.__traceback__)[-3:]
        key = (type(error).__name__, *(f"{each.filename}:{each.lineno}" for each in last))
        if key not in self._known:
            self._known.add(key)
            text = "".join(traceback.format_exception(error))
            with self._found.open("a") as file:
                file.write(json.dumps({"input": repr(data), "error": text}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
