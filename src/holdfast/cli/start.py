"""Where the program begins and ends: while it cannot answer yet, or has answered, Ctrl-C ends it without a word."""

from __future__ import annotations

import signal


def main() -> int:
    """Run the command line; its exit code. Loading it takes longer than many a command."""
    has_handler = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else Ctrl-C is ignored already
    if has_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from holdfast.cli import main as program  # after that, which is the purpose of this file
    from holdfast.cli.exits import Exit

    try:
        if has_handler:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = program.main()
    except KeyboardInterrupt:  # once more, while the first one was answered
        code = Exit.INTERRUPTED
    if has_handler:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code
