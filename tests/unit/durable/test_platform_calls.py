"""Calls that only Linux has are in `durable.platform`, with what is done without them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__).parent
EXCEPT = {
    "adapters/agents/protocol.py": {"SO_PEERCRED", "/proc/"},  # the client of the helper, which exists on Linux only
}
ELSEWHERE = ("durable/platform/", "testing/")
NAMES = frozenset(
    {
        *("listxattr", "getxattr", "setxattr", "removexattr", "posix_fallocate", "posix_fadvise", "sync_file_range"),
        *("copy_file_range", "sendfile", "splice", "memfd_create", "eventfd", "pidfd_open", "unshare", "setns"),
        *("prlimit", "prctl", "epoll", "sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "SCHED_BATCH"),
        *("O_PATH", "O_NOATIME", "O_TMPFILE", "O_DIRECT", "F_OFD_SETLK", "F_OFD_GETLK", "F_SETLEASE", "F_FULLFSYNC"),
        *("MADV_HUGEPAGE", "MADV_POPULATE_READ", "MAP_POPULATE", "SO_PEERCRED", "SO_PASSCRED", "CDLL", "renameat2"),
        *("renameatx_np", "renamex_np", "syncfs", "inotify_init1", "st_birthtime", "chflags", "lchflags"),
    }
)


def calls(module: str) -> Iterator[str]:
    """What a module uses of these names, and paths in /proc that it passes to a call."""
    if not any(each in module for each in ("/proc", "/sys", *NAMES)):
        return  # to parse all modules would take seconds
    for node in ast.walk(ast.parse(module)):
        if isinstance(node, ast.Attribute) and node.attr in NAMES:
            if isinstance(node.value, ast.Name) and node.value.id != "platform":  # nor of the Disk
                yield node.attr
        elif isinstance(node, ast.Call):
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield from (each.value for each in _texts(argument) if each.value in NAMES)
                yield from ("/proc/" for each in _texts(argument) if each.value.startswith(("/proc", "/sys")))
        elif isinstance(node, ast.Return) and node.value is not None:
            yield from ("/proc/" for each in _texts(node.value) if each.value.startswith("/proc/"))


def _texts(node: ast.expr) -> Iterator[ast.Constant]:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    yield from (each for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str))


def test_no_other_module_makes_them() -> None:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(ELSEWHERE):
            used = set(calls(path.read_text("utf-8"))) - EXCEPT.get(name, set())
            if used:
                found[name] = used
    assert found == {}


def test_the_exceptions_are_used() -> None:
    assert {name: set(calls((SOURCE / name).read_text("utf-8"))) & given for name, given in EXCEPT.items()} == EXCEPT


def test_what_is_looked_for_is_found() -> None:
    text = """
import ctypes, os
os.getxattr("a", "b"); ctypes.CDLL(None); getattr(os, "O_DIRECT", 0)
open("/proc/self/stat"); open(f"/proc/{os.getpid()}/fd")
"""
    assert sorted(calls(text)) == ["/proc/", "/proc/", "CDLL", "O_DIRECT", "getxattr"]
