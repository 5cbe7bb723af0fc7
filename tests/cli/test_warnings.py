"""With warnings as errors (`python -X dev -W error`) every command says what it says without."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest

STRICT = (sys.executable, "-X", "dev", "-W", "error", "-m", "holdfast.cli")
COMMANDS = """
init
save one
log
log --flat
show latest
status
search one
blame a.txt
why a.txt
diff latest
restore latest --yes
undo
redo
export latest ../out
guard -- true
guard -- false
fork latest ../fork
pin latest
usage
verify
prune --keep-last 5 --yes
purge src/b.py --yes
compact
where
config
workspaces
install claude-code
doctor
uninstall claude-code
completion bash
rm latest --yes
nonsense
"""


@pytest.mark.slow
def test_no_command_warns(holdfast, write):
    for line in COMMANDS.strip().splitlines():
        write("a.txt", f"one, before {line}\n")
        ran = subprocess.run([*STRICT, *shlex.split(line)], capture_output=True, text=True, check=False, timeout=60)
        said = ran.stderr.lower()
        assert ran.returncode in (0, 1, 2, 6, 8), (line, ran)
        assert not any(word in said for word in ("warning", "exception ignored", "traceback", "bug")), (
            line,
            ran.stderr,
        )


@pytest.mark.parametrize("helper", ["0", "1"])
def test_a_hook_leaves_nothing_open(holdfast, helper):
    event = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash", "cwd": str(holdfast.project)}
    environ = os.environ | {"HOLDFAST_HELPER": helper, "HOLDFAST_HELPER_IDLE_S": "1"}
    ran = subprocess.run(
        [*STRICT, "hook", "claude-code"],
        input=json.dumps(event).encode(),
        capture_output=True,
        env=environ,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    assert len(holdfast("log", "--json").json["items"]) == 1
