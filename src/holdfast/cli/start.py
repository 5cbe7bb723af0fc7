"""Where the program begins and ends.

`hook` is dealt with before anything else is loaded: an agent waits for it. While the program cannot answer yet, or has
answered, Ctrl-C ends it without a word.
"""

from __future__ import annotations

import os
import sys

_OBJECTS_BETWEEN_COLLECTIONS = 50_000


def main() -> int:
    """Run the program and return its exit code."""
    if sys.getfilesystemencoding() != "utf-8":  # a name must not be another text here than where it was saved
        os.execv(sys.executable, [sys.orig_argv[0], "-X", "utf8", *sys.orig_argv[1:]])
    words = sys.argv[1:]
    if len(words) > 1 and words[0] == "hook" and not words[1].startswith("-"):
        from holdfast.adapters.agents.client import run

        run(words[1:])
    if not words and "CLAUDE_PROJECT_DIR" in os.environ and not os.isatty(0):
        from holdfast.adapters.agents.client import run

        run(["claude-code"])  # a version of it that knows no `args` calls us without: help and 2 would block its tools
    return _command()


def _command() -> int:
    import _signal as signal  # type: ignore[import-not-found]  # without `enum`: Ctrl-C must find us ready at once
    import gc

    has_handler = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else Ctrl-C is ignored already
    if has_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)  # as it comes, a tenth of a short command goes into looking for none
    from holdfast.cli import main as program  # loading it takes longer than many a command
    from holdfast.cli.exits import Exit

    try:
        if has_handler:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = program.main()
    except KeyboardInterrupt:  # once more, while the first one was answered
        code = Exit.INTERRUPTED
    if has_handler:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # nor is what ends with the process looked through once more
    return code
