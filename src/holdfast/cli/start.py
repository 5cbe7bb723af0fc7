"""Where the program begins and ends.

`hook` is dealt with before anything else is loaded: an agent waits for it. So is a command that the background helper
runs (`through_helper`). While the program cannot answer yet, or has
answered, Ctrl-C ends it without a word.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sys import UnraisableHookArgs

    from holdfast.adapters.agents.command_server import Runner

_OBJECTS_BETWEEN_COLLECTIONS = 50_000
_MOMENT_S = 0.001
_INTERRUPTED = 130  # `Exit.INTERRUPTED`, before that can be loaded


def main() -> int:
    """Run the program and return its exit code."""
    try:
        return _main(sys.argv[1:])
    except KeyboardInterrupt:  # before we were ready for it
        return _INTERRUPTED


def _main(words: list[str]) -> int:
    if sys.getfilesystemencoding() != "utf-8":  # a name must not be another text here than where it was saved
        _begin_anew(["-X", "utf8"])
    if len(words) > 1 and words[0] == "hook" and not words[1].startswith("-"):
        if words[1] == "generic":
            return _generic()
        from holdfast.adapters.agents.client import run

        run(words[1:], load_runner)
    import gc

    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)  # by default a tenth of a short command goes into collections
    from holdfast.cli.through_helper import ask

    if (code := ask(words)) is not None:
        os._exit(code)  # nothing was written here; the clean-up of the interpreter takes longer than all of this
    return _command()


def _generic() -> int:
    from holdfast.adapters.agents.generic import serve

    try:
        serve(sys.stdin.buffer, sys.stdout.buffer, dict(os.environ), os.getcwd())
    except (OSError, AttributeError, KeyboardInterrupt):  # a stream was closed: the agent has gone
        os._exit(0)  # not even a flush
    return 0


def start_helper() -> None:
    """Start the background helper as a process of its own, unless there is one; commands use it from then on."""
    from holdfast.adapters.agents.protocol import is_listening

    if os.environ.get("HOLDFAST_HELPER") == "0" or is_listening(os.environ):
        return
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = f"import sys; sys.path.append({root!r}); from holdfast.cli.start import become_helper; become_helper()"
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    try:
        child = os.posix_spawn(
            sys.executable, [sys.executable, "-P", "-c", code], os.environ, file_actions=null, setsid=True
        )
        os.waitpid(child, 0)  # it forks the helper and ends
    except (OSError, NotImplementedError):
        pass  # commands work without it


def become_helper() -> None:
    """Be the background helper until it has been idle for a while; return at once in the process that was started."""
    if os.fork():
        os._exit(0)
    from holdfast.adapters.agents.helper import stay

    os.chdir("/")
    stay(dict(os.environ), load_runner)


def load_runner() -> Runner:
    """Load what the helper runs commands with."""
    from holdfast.cli.served import load

    return load()


def _begin_anew(options: list[str]) -> None:
    """Have Python run all this again with options; where that cannot be, or has not helped, go on as we are."""
    program, words = sys.orig_argv[:1], sys.orig_argv[1:]
    if program and words[: len(options)] != options:
        try:
            os.execv(sys.executable or "", [*program, *options, *words])
        except (OSError, ValueError):  # inside of another program: it is not Python, or is not known
            pass


def _command() -> int:
    import _signal as signal  # type: ignore[import-not-found]  # without `enum`: Ctrl-C must find us ready at once

    has_handler = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else Ctrl-C is ignored already
    if has_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import gc

    from holdfast.cli import caller
    from holdfast.cli import main as program  # loading it takes longer than many a command

    code = _INTERRUPTED
    sys.unraisablehook = _raise_later
    try:
        if has_handler:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = program.main()
        if caller.wants_helper:
            start_helper()
    except KeyboardInterrupt:  # once more, while the first one was answered
        pass
    while has_handler:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            has_handler = False
        except KeyboardInterrupt:  # between the answer and this
            pass
    if program.may_end_at_once:
        os._exit(code)  # all is written and closed; the clean-up of the interpreter is a twentieth of `status`
    gc.freeze()  # no last collection either: the process ends
    return code


def _raise_later(told: UnraisableHookArgs) -> None:
    """Repeat Ctrl-C in a moment if Python cannot raise it now, as while it frees an object."""
    import _signal as signal

    if told.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(told)
        return
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, _MOMENT_S)
