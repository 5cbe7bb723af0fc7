"""Where the program begins. `hook` is dealt with before anything else is loaded: an agent waits for it."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the program and return its exit code."""
    words = sys.argv[1:]
    if len(words) > 1 and words[0] == "hook" and not words[1].startswith("-"):
        from holdfast.adapters.agents.client import run

        run(words[1:])
    if not words and "CLAUDE_PROJECT_DIR" in os.environ and not os.isatty(0):
        from holdfast.adapters.agents.client import run

        run(["claude-code"])  # a version of it that knows no `args` calls us without: help and 2 would block its tools
    from holdfast.cli.main import main as run_command

    return run_command()
