"""Who runs a case: the user of this run and, where that is root, somebody without any privilege as well."""

from __future__ import annotations

import codecs
import ctypes
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

IS_ROOT = os.geteuid() == 0
UNPRIVILEGED_ID = 12345
TIME_LIMIT_S = 240
_PR_SET_DUMPABLE = 4

needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can make this situation")
by_everyone = pytest.mark.parametrize("user", ["root", "somebody"] if IS_ROOT else ["somebody"])
by_somebody = pytest.mark.parametrize("user", ["somebody"])


def run_as(user: str, work: Callable[[], None]) -> None:
    """Run `work` as `user`: here, or in a child process that has given its privileges up."""
    if IS_ROOT and user == "somebody":
        _run_in_child(work)
    else:
        work()


@contextmanager
def as_root() -> Iterator[None]:
    """Prepare, from inside a case of somebody, what only root can prepare."""
    if not IS_ROOT:
        pytest.skip("only root can make this situation")
    before = os.geteuid(), os.getegid()
    os.seteuid(0)
    os.setegid(0)
    try:
        yield
    finally:
        os.setegid(before[1])
        os.seteuid(before[0])
        _keep_proc_readable()


def _run_in_child(work: Callable[[], None]) -> None:
    _load_everything()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads that idle in the parent are no danger here
        child = os.fork()
    if child == 0:
        os.close(reader)
        _be_somebody()
        outcome = _outcome(work)
        with os.fdopen(writer, "wb") as out:
            pickle.dump(outcome, out)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    kind, text = _answer(child, reader)
    if kind == "skipped":
        pytest.skip(text)
    elif kind != "passed":
        pytest.fail(text, pytrace=False)


def _load_everything() -> None:
    """Import what the engine imports late, while the files of this checkout can surely be read."""
    import holdfast.workspace  # noqa: F401  # a cost only of the cases that change user

    for encoding in ("ascii", "latin-1"):
        codecs.lookup(encoding)
    try:
        import pygit2  # noqa: F401
    except ImportError:
        pass


def _be_somebody() -> None:
    """Give up every privilege; root stays in reserve as saved id, for `as_root`."""
    os.setgroups([])
    os.setresgid(UNPRIVILEGED_ID, UNPRIVILEGED_ID, 0)
    os.setresuid(UNPRIVILEGED_ID, UNPRIVILEGED_ID, 0)
    _keep_proc_readable()


def _keep_proc_readable() -> None:
    """Undo what a change of user does to /proc/self, which an ordinary process of that user could read."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)


def _outcome(work: Callable[[], None]) -> tuple[str, str]:
    try:
        work()
    except pytest.skip.Exception as skipped:
        return "skipped", str(skipped)
    except BaseException:
        return "failed", traceback.format_exc()
    return "passed", ""


def _answer(child: int, reader: int) -> tuple[str, str]:
    deadline = time.monotonic() + TIME_LIMIT_S + 30  # the child's own alarm rings first
    with os.fdopen(reader, "rb") as source:
        os.set_blocking(source.fileno(), False)
        data = b""
        while time.monotonic() < deadline:
            piece = source.read()
            if piece == b"":
                break
            data += piece or b""
            time.sleep(0.01)
        else:
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if data:
        answer: tuple[str, str] = pickle.loads(data)
        return answer
    return "failed", f"the process of the unprivileged user ended with status {status} and said nothing"
