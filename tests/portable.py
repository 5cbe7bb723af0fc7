"""A plugin of pytest that takes every Linux-only call away: `make portable`, or `pytest -p portable tests/cases`.

What remains is what macOS and other systems have too. Only calls of Holdfast are taken away, not those of a test:
a test may still read an extended attribute. Files in /proc look absent to Python code of Holdfast. Tests with the mark
`linux` are left out: extended attributes, bind mounts, inotify, and what /proc says about other processes. Processes
that a test starts have all calls.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import pytest

from holdfast.durable import platform
from holdfast.durable.platform import inotify

_PATH_EVENTS = ("open", "os.listdir", "os.scandir", "os.chmod", "os.chown")
FROM = os.path.join("src", "holdfast")


def _absent(*_: object) -> Any:
    raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))


def _no_inotify(self: object) -> None:
    raise OSError("this system has no inotify")


class _Bare:
    """The C library without what only Linux has."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        if name in ("renameat2", "syncfs", "inotify_init1", "mallopt", "malloc_trim"):
            raise AttributeError(name)
        return getattr(self._whole, name)


def _hide_proc(event: str, arguments: tuple[Any, ...]) -> None:
    path = arguments[0] if arguments else None
    is_hidden = event in _PATH_EVENTS and isinstance(path, str) and path.startswith("/proc")
    if is_hidden and FROM in (caller := sys._getframe(1).f_code.co_filename) and "testing" not in caller:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of what only Linux has."""
    left_out = [item for item in items if item.get_closest_marker("linux")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker("linux")]


platform._loaded = _Bare(platform._libc())  # type: ignore[assignment]
os.sync = lambda: None  # it would wait for every disk of this machine, each time
platform._PROC_FDS = ""
platform._O_PATH = 0
platform.O_NOATIME = 0
for name in ("list_xattrs", "get_xattr", "set_xattr", "remove_xattr"):
    setattr(platform, name, _absent)
inotify.Inotify.__init__ = _no_inotify  # type: ignore[method-assign]
sys.addaudithook(_hide_proc)
