"""Somebody whom permissions bind, for tests that the superuser runs."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_CAPABILITIES_3 = 0x20080522  # the version of Linux's interface, as <linux/capability.h> has it


def unprivileged(work: Callable[[], T]) -> T:
    """Do work in a thread that gave every privilege up; so have the threads that it begins.

    Linux counts privileges by thread: nobody else loses any, and the files stay those of the same user.
    """
    with ThreadPoolExecutor(1, initializer=_give_up_privileges) as thread:
        return thread.submit(work).result()


def _give_up_privileges() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(struct.pack("Ii", _CAPABILITIES_3, 0), bytes(24)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
