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
status
log
log --flat
log --stat
log --since 1d --until now --grep one --actor you
log a.txt
show latest
show latest:a.txt
show latest --uncovered
cat latest:a.txt
search one
search one -- '*.txt'
blame a.txt
why a.txt
diff
diff --stat
diff latest
diff a1..latest a.txt
restore latest --dry-run
restore latest --yes
restore latest a.txt
restore
restore -p
undo
redo
undo --agent
undo --turn
export latest ../out
guard -- true
guard -- false
check
bisect a1 -- true
bisect a1 --in-place -- grep -q one a.txt
git status
git rescue
notes
report
fork latest ../fork
-C ../fork save
adopt ../fork
pin latest
usage
secrets
secrets --all
verify
prune --keep-last 5 --dry-run
prune --keep-last 5 --yes
purge src/b.py --yes
compact
where
config
workspaces
workspaces --remove-gone --dry-run
install claude-code --dry-run
install claude-code
doctor
uninstall claude-code
install skill
completion bash
completion zsh
completion fish
import git . --dry-run
-C sqlite:///state.db log
training info --dir .
index status
index init
index plan
demo
hook nonsense
help save
rewind
--version --verbose
rm latest --yes
nonsense
"""


@pytest.mark.slow
def test_no_command_warns(holdfast, write):
    for line in COMMANDS.strip().splitlines():
        write("a.txt", f"one, before {line}\n")
        ran = subprocess.run([*STRICT, *shlex.split(line)], capture_output=True, text=True, check=False, timeout=60)
        said = ran.stderr.lower()
        assert ran.returncode in (0, 1, 2, 3, 4, 5, 6, 7, 8) and "this is a bug" not in ran.stderr, (line, ran)
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
